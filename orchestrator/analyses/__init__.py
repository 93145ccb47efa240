"""Analyses over the frames of a run, asked for under `analyses:` in a recipe."""
