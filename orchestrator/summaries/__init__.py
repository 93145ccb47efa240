"""What the rows of each method mean, as tables: one file a method, found by its name."""
