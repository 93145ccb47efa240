"""The durable store of a run, the only code that knows SQL."""

from orchestrator.store.store import Store

__all__ = ["Store"]
