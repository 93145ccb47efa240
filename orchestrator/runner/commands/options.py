"""Options of commands, apart from what the commands do: `--help` imports only these."""

import argparse
import re
from functools import partial
from typing import Final


def flag(command: argparse.ArgumentParser, name: str, words: str) -> None:
    """Add an option without a value; `words` are its help."""
    command.add_argument(name, action="store_true", help=words)


def json_option(command: argparse.ArgumentParser) -> None:
    """`--json`, of every command that lists or counts."""
    flag(command, "--json", "print machine-readable JSON")


def quiet_option(command: argparse.ArgumentParser) -> None:
    """Add `--quiet`, which every command has."""
    command.add_argument(
        "-q", "--quiet", action="store_true", help="print results, warnings and errors only"
    )


class _Subset(argparse.Action):
    """An override of the recipe's `subset`, so that it is checked like every other."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 (of argparse)
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002 (of argparse)
    ) -> None:
        """Called by argparse."""
        namespace.overrides = [*namespace.overrides, f"subset={values}"]


def _shard(text: str) -> str:
    found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if found and int(found[1]) <= int(found[2]):
        return text
    raise argparse.ArgumentTypeError(f"expected I/N from 1/N to N/N, such as 2/8, not {text!r}")


def subset_option(command: argparse.ArgumentParser) -> None:
    """Add `--subset`, `--shard` and `--shards`, which commands with `--limit` have."""
    command.add_argument(
        "--subset",
        action=_Subset,
        dest="overrides",
        metavar="N|P%",
        type=_part,
        default=[],
        help="use only N random items, or P%% of them; a larger subset keeps those of a smaller",
    )
    command.add_argument(
        "--shard",
        action=_Subset,
        dest="overrides",
        metavar="I/N",
        type=_shard,
        default=[],
        help="use only the I-th of N parts of the items; put the runs together by --shards N",
    )
    command.add_argument(
        "--shards",
        metavar="N[%K]",
        type=_shards,
        help="run N shards as jobs of the cluster, at most K at a time, and put their runs "
        "together; without --on slurm or --on ray, put those together that have run",
    )


def _shards(text: str) -> tuple[int, int]:
    """Return the number of shards, and how many may run at a time."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})(?:%([1-9][0-9]{0,5}))?", text)
    if found:
        return int(found[1]), min(int(found[1]), int(found[2] or found[1]))
    raise argparse.ArgumentTypeError(f"expected N or N%K, such as 32 or 32%8, not {text!r}")


def _part(text: str) -> str:
    # As the recipe's `subset`, whose pattern only commands that read recipes import.
    share = r"(100(\.0+)?|[1-9][0-9]?(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)%"
    if re.fullmatch(rf"[1-9][0-9]*|{share}", text):
        return text
    raise argparse.ArgumentTypeError(
        f"expected a number of items of at least 1, or a share such as 10%, not {text!r}"
    )


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    if 0.0 < level < 1.0:
        return level
    raise argparse.ArgumentTypeError(f"expected a level between 0 and 1 such as 0.95, not {text!r}")


def html_option(command: argparse.ArgumentParser) -> None:
    """`--html`, of every command that shows results."""
    command.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="F",
        help="write the report to the HTML file F (default: report.html in the run folder)",
    )


def full_option(command: argparse.ArgumentParser) -> None:
    """`--full`, of every command that shows results in a terminal."""
    flag(command, "--full", "print every table, not only the first screen")


def untrusted_option(command: argparse.ArgumentParser) -> None:
    """`--untrusted`, of every command that reads runs."""
    flag(
        command,
        "--untrusted",
        "treat runs as untrusted: only read them, with limits on time and memory",
    )


def charts_option(command: argparse.ArgumentParser) -> None:
    """`--charts`."""
    command.add_argument(
        "--charts", metavar="DIR", help="write each chart to DIR as SVG, PDF and PNG"
    )


def export_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator export`, but for the first run."""
    add = command.add_argument
    several = partial(add, action="append", default=[])
    add("--to", metavar="DIR", help="output folder, created if necessary")
    add(
        "--format", default="parquet",
        choices=["parquet", "csv", "jsonl", "latex", "markdown", "html", "hf", "inspect"],
        help="parquet (default) and jsonl are exact; csv is escaped for spreadsheets; hf is a "
        "dataset folder for Hugging Face; inspect is the logs of Inspect",
    )  # fmt: skip
    several("--table", metavar="NAME",
            help="export only this table of the report (repeatable); without --to print it"
    )  # fmt: skip
    several("--frame", metavar="NAME",
        help="export only this frame (repeatable); side_by_side has all that was judged, with its "
        "texts, for people")  # fmt: skip
    add("beside", nargs="*", metavar="RUN", help="more runs, whose rows of --table are added")
    add("--column", nargs="+", default=[], metavar="HEADING", help="columns of --table, in order")
    several("--where", metavar="HEADING=TEXT",
        help="only rows of --table with this text (repeatable)")  # fmt: skip
    add("--across", metavar="HEADING",
        help="give every text of this column, such as run, columns of its own")  # fmt: skip
    flag(command, "--average", "add the mean of the first of these columns (--across)")
    command.add_argument(
        "--figures", metavar="DIR", help="write each figure to DIR as SVG, PDF and PNG"
    )
    flag(command, "--list", "list the tables and frames")
    flag(command, "--json", "print machine-readable JSON (--list)")


def compare_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator compare`, but for the format."""
    command.add_argument(
        "compared", nargs="+", metavar="RUN", help="folders of runs, or their names in runs/"
    )
    command.add_argument(
        "--by",
        choices=["run", "model", "judge", "method"],
        help="what to compare (default: runs if there are several, else models)",
    )
    command.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="KIND=A:B",
        help="match names between runs: model=large:large_v2, judge=J:K or method=M:N (repeatable)",
    )
    command.add_argument(
        "--score",
        action="append",
        default=[],
        metavar="NAME",
        help="compare only this score: METHOD.COLUMN, METHOD or COLUMN (repeatable)",
    )
    command.add_argument(
        "--baseline", default="", metavar="NAME", help="compare only with this run or name"
    )
    command.add_argument(
        "--confidence",
        type=_level,
        default=0.95,
        metavar="LEVEL",
        help="confidence level of intervals and of all resolved differences (default: 0.95)",
    )
    command.add_argument("--html", metavar="F", help="write the comparison to the HTML file F")
    allow_code_option(command)
    untrusted_option(command)


def cite_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator cite`, but for the run."""
    command.add_argument(
        "--format",
        choices=["text", "bibtex", "json"],
        default="text",
        help="a paragraph with BibTeX (text, default), BibTeX alone, or machine-readable JSON",
    )


def gate_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator gate`, after the run."""
    command.add_argument(
        "--require",
        action="append",
        metavar="TEXT",
        help='requirement, such as "large > medium" (repeatable; default: `gates` of the recipe)',
    )
    command.add_argument(
        "--against", metavar="OLD", help="older run, which requirements call `old`"
    )
    command.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="KIND=NEW:OLD",
        help="match names of both runs: model=large_v2:large, judge=J:K or method=M:N (repeatable)",
    )
    command.add_argument(
        "--confidence",
        type=_level,
        metavar="LEVEL",
        help="confidence level of all verdicts together (default: the recipe's)",
    )
    flag(
        command,
        "--pass-unknown",
        "exit with 0 instead of 5 if no requirement fails, but one is not known yet",
    )
    command.add_argument("--junit", metavar="FILE", help="write the verdicts to FILE as JUnit XML")
    command.add_argument(
        "--summary",
        metavar="FILE",
        help='append the verdicts to FILE as Markdown: --summary "$GITHUB_STEP_SUMMARY"',
    )
    allow_code_option(command)
    untrusted_option(command)


def labels_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator labels`, but for the run."""
    command.add_argument("--to", metavar="FILE.csv", required=True, help="sheet to write")
    command.add_argument(
        "--n", type=count, metavar="N", help="rows to label (default: 100; with --below all)"
    )
    command.add_argument(
        "--below", type=float, metavar="MARGIN",
        help="only pairs with a smaller margin, for people to decide in the judge's place",
    )  # fmt: skip
    command.add_argument(
        "--method", metavar="NAME", help="method whose judgments are labelled (default: the first)"
    )
    command.add_argument(
        "--by",
        choices=["random", "uncertainty"],
        default="random",
        help="choose rows at random (default), or more often where the judge is unsure",
    )
    command.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the choice (default: 0)"
    )
    flag(command, "--force", "overwrite a sheet, and labels that it holds")


def count(text: str) -> int:
    """Return a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")


def probe_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator servers probe`, but for those of other commands."""
    command.add_argument(
        "what", metavar="URL|RECIPE", help="URL of a running server, or a recipe with servers"
    )
    json_option(command)
    command.add_argument(
        "--model", action="append", default=[], help="probe only this model of a URL (repeatable)"
    )
    command.add_argument("--backend", metavar="KIND", help="backend of a URL (default: detect it)")
    command.add_argument(
        "--api-key-env", metavar="VAR", help="environment variable with the API key of a URL"
    )
    flag(command, "--plain", "probe the models of a URL without a chat template")


def stop_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator servers stop`."""
    command.add_argument("name", nargs="*", metavar="NAME", help="names of the servers to stop")
    flag(command, "--all", "stop all servers")


def cancel_option(command: argparse.ArgumentParser) -> None:
    """`--cancel`, of `orchestrator stop`."""
    flag(
        command,
        "--cancel",
        "cancel batches too, when what they had answered is read; else they go on",
    )


def limit_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator limit`, after the run."""
    command.add_argument("model", metavar="MODEL", help="name of the model in the recipe")
    command.add_argument("n", metavar="N", type=int, help="maximum number of concurrent requests")


def merge_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator runs merge`."""
    command.add_argument(
        "runs", nargs="+", metavar="RUN", help="folders of runs, or their names in runs/"
    )
    command.add_argument(
        "--into", required=True, metavar="DIR", help="folder of the merged run"
    )  # fmt: skip
    flag(command, "--accept-server-change", "merge even if different servers answered for a model")


def gc_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator runs gc`."""
    command.add_argument(
        "run", nargs="?", metavar="RUN",
        help="folder of a run, or its name in runs/ (without RUN: count those of all in runs/)",
    )  # fmt: skip
    flag(command, "--drop", "delete the outcomes (default: only count them)")
    allow_code_option(command)


def _age(text: str) -> float:
    """Seconds of an age such as 30d."""
    if found := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([hdw]?)", text, re.ASCII):
        return float(found[1]) * 3600 * {"h": 1, "w": 7 * 24}.get(found[2], 24)
    raise argparse.ArgumentTypeError(f"expected an age such as 30d, 12h or 8w, not {text!r}")


def rm_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator runs rm`."""
    command.add_argument(
        "runs", nargs="*", metavar="RUN", help="folders of runs, or their names in runs/"
    )
    command.add_argument(
        "--older-than", type=_age, metavar="AGE",
        help="only runs last written longer ago, such as 30d, 12h or 8w (without RUN: of all in "
        "runs/); a bare number is days",
    )  # fmt: skip
    flag(command, "--yes", "delete without asking")


def allow_code_option(
    command: argparse.ArgumentParser, words: str = "import code that the recipe names"
) -> None:
    """Add the permission to run code that a recipe names; `words` are its help."""
    said = f"{words} (permanently for a folder: orchestrator allow)"
    flag(command, "--allow-code", said)


LISTED: Final = (
    "methods", "analyses", "statistics", "backends", "datasets", "plugins", "recipes", "weights",
)  # fmt: skip
"""What `orchestrator list` lists; "plugins" is all that a package can add."""


def list_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator list`."""
    command.add_argument("kind", metavar="KIND", choices=LISTED, help=f"one of {', '.join(LISTED)}")
    command.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="also list the code that this recipe names"
    )
    json_option(command)


def new_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `orchestrator new`."""
    command.add_argument(
        "family", choices=["method", "dataset", "backend"], help="kind of plug-in to write"
    )
    command.add_argument("name", metavar="NAME", help="name of the module, such as brevity")


def allow_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator allow`."""
    command.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="folder to allow (default: working directory)"
    )
    flag(command, "--revoke", "revoke the permission")
    flag(command, "--list", "list the allowed folders")
    json_option(command)


def view_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator view`."""
    untrusted_option(command)
    command.add_argument(
        "runs", nargs="*", metavar="RUNS", help="folders of runs, or runs (default: runs/)"
    )
    command.add_argument(
        "--port", type=int, metavar="N", help="port (default: 8765 if free, else any; 0 picks any)"
    )
    flag(command, "--open", "open the page in the browser")
    command.add_argument(
        "--items", metavar="QUERY", help="begin at these items of RUN, such as show=lost&of=MODEL"
    )
    command.add_argument(
        "--labels", metavar="FILE.csv", help="fill in a sheet of orchestrator labels; shows no run"
    )
    allow_code_option(command)


def get_weights_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator get weights`."""
    command.add_argument("name", metavar="NAME", help="name as listed, such as smollm2")
    flag(command, "--yes", "install without asking")


def get_recipe_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator get recipe`."""
    command.add_argument("name", metavar="NAME", help="name as listed, such as pairwise_ranking")
    command.add_argument(
        "to", nargs="?", metavar="TO", help="file or folder to write (default: NAME.yaml here)"
    )
    flag(command, "--force", "overwrite an existing file")


def init_options(command: argparse.ArgumentParser) -> None:
    """Arguments of `orchestrator init`."""
    command.add_argument(
        "to",
        nargs="?",
        default="evaluation.yaml",
        metavar="FILE",
        help="recipe to write (default: evaluation.yaml)",
    )
    command.add_argument(
        "--url",
        action="append",
        default=[],
        help="address of a server (repeatable; default: search the usual ports of 127.0.0.1)",
    )
    command.add_argument(
        "--model", action="append", default=[], help="use only this model (repeatable)"
    )
    command.add_argument(
        "--judge", metavar="MODEL", help="model that judges the others (default: the last)"
    )
    command.add_argument(
        "--dataset", metavar="D", help="file of questions, or a kind of dataset (default: everyday)"
    )
    command.add_argument(
        "--api-key-env", metavar="VAR", help="environment variable with the API key of --url"
    )
    flag(command, "--yes", "ask nothing; use defaults for what is not given")
    flag(command, "--force", "overwrite an existing file")


def place_option(command: argparse.ArgumentParser) -> None:
    """Machines that launched servers run on."""
    command.add_argument(
        "--on",
        choices=["local", "slurm", "ray"],
        default="local",
        help="start servers on this machine, or on the nodes of a Slurm or Ray cluster",
    )


def submit_option(
    command: argparse.ArgumentParser,
    words: str = "submit this as a Slurm job, which hands on to another before its limit",
) -> None:
    """Option by which a run is a job of the cluster; `words` are its help."""
    flag(command, "--submit", words)
