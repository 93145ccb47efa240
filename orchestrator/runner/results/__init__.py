"""Frames and tables of a run, and what is kept beside them."""
