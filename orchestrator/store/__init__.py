"""The durable store of a run, the only code that knows SQL."""
