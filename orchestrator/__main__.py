"""The console script, and `python -m orchestrator`."""


def entry() -> None:
    """Run the command line; Ctrl-C ends it without a traceback also while modules load."""
    try:
        from orchestrator import cli  # noqa: PLC0415 (half of the time of a short command)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # nothing was begun
    cli.entry()


if __name__ == "__main__":
    entry()
