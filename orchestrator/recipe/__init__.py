"""Recipes: YAML to validated settings, every fault with file and line."""
