"""The composition root: the only place that names every step of a run."""
