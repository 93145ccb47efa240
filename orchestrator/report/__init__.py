"""Reports for people: tables, live progress, plain lines."""

from orchestrator import numbers

__all__ = ["numbers"]
