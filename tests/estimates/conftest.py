from tests.cli.conftest import command, here, recipe

__all__ = ["command", "here", "recipe"]
