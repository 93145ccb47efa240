"""Reading a distribution over labels: normalising, coverage, estimators."""
