"""Runs compared with each other, and runs held against requirements."""
