"""Options of commands, apart from what the commands do: `--help` imports only these."""

import argparse

from orchestrator.paths import RUNS


def html_option(command: argparse.ArgumentParser) -> None:
    """`--html`, of every command that shows results."""
    command.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="F",
        help="write the report as one HTML file; report.html of the run where F is left out",
    )


def untrusted_option(command: argparse.ArgumentParser) -> None:
    """`--untrusted`, of every command that reads runs."""
    command.add_argument(
        "--untrusted",
        action="store_true",
        help="treat runs as another user's: only read them, within bounds of time and memory",
    )


def charts_option(command: argparse.ArgumentParser) -> None:
    """`--charts`."""
    command.add_argument("--charts", metavar="DIR", help="write each chart there, as SVG and PNG")


def export_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator export`, but for the run."""
    command.add_argument("--to", required=True, metavar="DIR", help="folder; made if need be")
    command.add_argument(
        "--format",
        choices=["parquet", "csv", "jsonl"],
        default="parquet",
        help="parquet (default) and jsonl are exact; csv is made safe for spreadsheets",
    )


def probe_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator probe`, but for those that it shares with other commands."""
    command.add_argument("what", metavar="URL|RECIPE", help="a running server, or a recipe's")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument(
        "--model", action="append", default=[], help="at a URL: only this one; may be given again"
    )
    command.add_argument("--backend", metavar="KIND", help="at a URL: recognised where left out")
    command.add_argument("--api-key-env", metavar="VAR", help="at a URL: variable with the key")
    command.add_argument("--plain", action="store_true", help="at a URL: models without a chat")


def servers_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator servers`."""
    command.add_argument(
        "action", nargs="?", choices=["list", "stop"], default="list", help="list where left out"
    )
    command.add_argument("name", nargs="*", metavar="NAME", help="of the servers to stop")
    command.add_argument("--all", action="store_true", help="stop all of them")
    command.add_argument("--json", action="store_true", help="the list for programs")


def limit_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator limit`, after the run."""
    command.add_argument("model", metavar="MODEL", help="its name in the recipe")
    command.add_argument("n", metavar="N", type=int, help="requests it may have at a time")


def gc_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator gc`, after the run."""
    command.add_argument(
        "--keep", type=int, default=1, metavar="N",
        help="keep what the last N recipes of the run ask; 1 where left out",
    )  # fmt: skip
    command.add_argument("--drop", action="store_true", help="drop it; else it is only counted")
    allow_code_option(command)


def allow_code_option(
    command: argparse.ArgumentParser, words: str = "import code that the recipe names"
) -> None:
    """Add the permission to run code that a recipe names; `words` are its help."""
    said = f"{words} (once for a folder: orchestrator allow)"
    command.add_argument("--allow-code", action="store_true", help=said)


def listing_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the commands that list kinds of plug-ins."""
    command.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="also list the code that this recipe names"
    )
    command.add_argument("--json", action="store_true", help="print machine-readable JSON")


def new_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `orchestrator new`."""
    command.add_argument(
        "family", choices=["method", "dataset", "backend"], help="kind of plug-in to write"
    )
    command.add_argument("name", metavar="NAME", help="name of the module, such as brevity")
    command.add_argument(
        "--in", dest="folder", default=".", metavar="DIR", help="the working directory if omitted"
    )


def allow_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator allow`."""
    command.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="the working directory where left out"
    )
    command.add_argument("--revoke", action="store_true", help="take the permission back")
    command.add_argument("--list", action="store_true", help="list the allowed folders")


def view_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator view`."""
    untrusted_option(command)
    command.add_argument(
        "runs",
        nargs="?",
        default=RUNS,
        metavar="RUNS",
        help="folder of runs, or one run; runs/ where left out",
    )
    command.add_argument(
        "--port", type=int, metavar="N", help="8765 where it is free, else any; 0 takes any"
    )
    command.add_argument("--open", action="store_true", help="open it in the browser")
    allow_code_option(command)
