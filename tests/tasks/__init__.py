"""Fifteen tasks of a day of work, done by the commands that the documentation shows."""
