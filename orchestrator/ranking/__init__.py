"""Pairwise judgments to rankings, and trust in the judges that made them."""
