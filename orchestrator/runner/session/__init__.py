"""One call of `orchestrator run`: store, scheduler and servers working together."""
