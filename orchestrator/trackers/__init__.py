"""Trackers of experiments (wandb, mlflow, trackio), each behind the same small interface.

One module a tracker, found by the `kind` of `log_to` in a recipe. Their libraries are optional and
are imported when a run with that tracker begins.
"""
