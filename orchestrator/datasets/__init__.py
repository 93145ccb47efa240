"""Datasets, one file a kind: a class derived from `orchestrator.dataset.DatasetKind`."""
