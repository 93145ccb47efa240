"""Statistics of a column of rows: one file each."""
