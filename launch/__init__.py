"""Launching of model servers."""
