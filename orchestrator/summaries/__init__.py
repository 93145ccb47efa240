"""Tables that summarise the rows of each method: one file a method, found by its name."""
