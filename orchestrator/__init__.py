"""Evaluates language models with the models' own probabilities."""

__version__ = "0.1.0"
