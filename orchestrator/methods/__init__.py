"""Methods of evaluation: one file each."""
