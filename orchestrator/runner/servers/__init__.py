"""Servers of a run: launched or found, restarted, kept, and placed on GPUs."""
