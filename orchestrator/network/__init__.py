"""Bounded bodies, and proxies of the environment, for all HTTP clients."""
