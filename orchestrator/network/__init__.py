"""What all HTTP clients share: bounded bodies, and proxies of the environment."""
