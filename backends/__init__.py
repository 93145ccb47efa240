"""Back-ends: one file for each kind of inference server."""
