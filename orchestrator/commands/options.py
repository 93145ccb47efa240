"""Commands and their options, apart from what the commands do: `--help` imports only these."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestrator.commands.parser import AGE, COUNT, LEVEL, LISTED, PART, PORT, SHARD, SHARDS
from orchestrator.disk.paths import RUNS

Option = tuple[str, Mapping[str, Any]]
"""Names of an option or argument, and what argparse's `add_argument` takes beside them."""


def _value(name: str, words: str, **settings: object) -> Option:
    """Return an argument, or an option with a value, as "run RUN" or "--to DIR"."""
    name, _, metavar = name.partition(" ")
    return name, {"help": words, **({"metavar": metavar} if metavar else {}), **settings}


def _several(name: str, words: str, **settings: object) -> Option:
    """Return an option that may be given several times."""
    return _value(name, words, **{"action": "append", "default": [], **settings})


def _flag(name: str, words: str) -> Option:
    """Return an option without a value."""
    return name, {"action": "store_true", "help": words}


# -- options of several commands -------------------------------------------------------------------


def _allow_code(words: str) -> Option:
    return _flag("--allow-code", f"{words} (permanently for a folder: orchestrator allow)")


_CODE: Final = _allow_code("import code that the recipe names")
_CODE_IS_READ: Final = _allow_code("import code that the recipe names, without starting programs")
_CODE_IS_RUN: Final = _allow_code("run code and programs that the recipe names")
_NO_CODE: Final = _allow_code("accepted for consistency; this command imports no code")
QUIET: Final = _flag("-q --quiet", "print results, warnings and errors only")
_JSON: Final = _flag("--json", "print machine-readable JSON")
_FORCE: Final = _flag("--force", "overwrite an existing file")
_UNTRUSTED: Final = _flag(
    "--untrusted", "treat runs as untrusted: only read them, with limits on time and memory"
)
_RUN: Final = _value("run RUN", "folder of a run, or its name in runs/")
_READS: Final = (_RUN, _CODE, _UNTRUSTED)
_FORM: Final = _value(
    "--format",
    "format of the results on stdout (default: table)",
    choices=["table", "markdown", "json"],
    default="table",
)
_SHOWN: Final = (
    _FORM,
    _flag("--full", "print every table, not only the first screen"),
    _value(
        "--html F",
        "write the report to the HTML file F (default: report.html in the run folder)",
        nargs="?",
        const=True,
    ),
)
_OVERRIDES: Final = _several("--set A.B=C", "override a setting of the recipe", dest="overrides")
_PLACE: Final = _value(
    "--on",
    "start servers on this machine, or on the nodes of a Slurm or Ray cluster",
    choices=["local", "slurm", "ray"],
    default="local",
)
# Of the commands that count or send the requests of a recipe.
_RECIPE: Final = (
    _value("recipe RECIPE", "path of a recipe, or its name in recipes/"),
    _value(
        "--run-dir D", "folder of the run (default: runs/NAME; of a shard runs/NAME.shard-I-of-N)"
    ),
    _value("--limit N", "use only the first N items", type=COUNT),
    _several(
        "--subset N|P%",
        "use only N random items, or P%% of them; a larger subset keeps those of a smaller",
        dest="overrides",
        type=PART,
    ),
    _several(
        "--shard I/N",
        "use only the I-th of N parts of the items; put the runs together by --shards N",
        dest="overrides",
        type=SHARD,
    ),
    _value(
        "--shards N[%K]",
        "run N shards as jobs of the cluster, at most K at a time, and put their runs "
        "together; without --on slurm or --on ray, put those together that have run",
        type=SHARDS,
    ),
    _value(
        "--retry CAUSE",
        "ask failed requests of this cause again, such as bad_request, or all",
        default="",
    ),
    _OVERRIDES,
)

# -- commands --------------------------------------------------------------------------------------

Command = tuple[str, str, *tuple[Option, ...]]
"""Name and module, help and options of a command. Its function has its name unless the module names
another one; a command without a module has actions."""
COMMANDS: Final[Mapping[str, Sequence[Command]]] = {
    "recipes": (
        (
            "init recipes",
            "write a first recipe for the servers that are running",
            _value(
                "to FILE",
                "recipe to write (default: evaluation.yaml)",
                nargs="?",
                default="evaluation.yaml",
            ),
            _several(
                "--url",
                "address of a server (repeatable; default: search the usual ports of 127.0.0.1)",
            ),
            _several("--model", "use only this model (repeatable)"),
            _value("--judge MODEL", "model that judges the others (default: the last)"),
            _value("--dataset D", "file of questions, or a kind of dataset (default: everyday)"),
            _value("--api-key-env VAR", "environment variable with the API key of --url"),
            _FORCE,
        ),
        (
            "check check",
            "check recipes and list every fault with file:line",
            _value("recipes RECIPE", "paths or names of recipes", nargs="+"),
            _flag(
                "--online",
                "ask servers that run already, by a few small requests, if they answer what is "
                "needed",
            ),
            _OVERRIDES,
            _CODE_IS_READ,
        ),
        (
            "plan plan",
            "count the requests of a recipe without sending any",
            *_RECIPE,
            _CODE_IS_READ,
            _PLACE,
            _flag("--submit", "print the batch script that `run --submit` would send"),
            _JSON,
            _flag("--exact", "count every unit instead of estimating large plans"),
        ),
        (
            "run run",
            "run a recipe, or resume its run",
            *_RECIPE,
            _CODE_IS_RUN,
            _flag("--fresh", "start a new run in runs/NAME.2, .3, and so on"),
            _value(
                "--display",
                "progress on stderr (default: live at a terminal, else plain)",
                choices=["live", "plain", "json", "none"],
            ),
            *_SHOWN,
            _flag(
                "--strict", "exit with 3 if a judge can't be trusted, so that there is no ranking"
            ),
            _PLACE,
            _flag(
                "--submit", "submit this as a Slurm job, which hands on to another before its limit"
            ),
            _flag("--keep-servers", "keep launched servers running for the next run"),
            _value(
                "--on-end COMMAND",
                "run COMMAND when the call ends, with the result in its environment",
            ),
            _flag("--accept-server-change", "continue even if the server has changed"),
        ),
    ),
    "results": (
        ("report results", "show the results of a run", *_READS, *_SHOWN),
        (
            "view results",
            "browse runs in a web browser",
            _UNTRUSTED,
            _value("runs RUNS", "folders of runs, or runs (default: runs/)", nargs="*"),
            _value("--port N", "port (default: 8765 if free, else any; 0 picks any)", type=int),
            _flag("--open", "open the page in the browser"),
            _value("--items QUERY", "begin at these items of RUN, such as show=lost&of=MODEL"),
            _value("--labels FILE.csv", "fill in a sheet of orchestrator labels; shows no run"),
            _CODE,
        ),
        (
            "compare results",
            "compare runs, models, judges or methods on common items",
            _value("compared RUN", "folders of runs, or their names in runs/", nargs="+"),
            _value(
                "--by",
                "what to compare (default: runs if there are several, else models)",
                choices=["run", "model", "judge", "method"],
            ),
            _several(
                "--match KIND=A:B",
                "match names between runs: model=large:large_v2, judge=J:K or method=M:N "
                "(repeatable)",
            ),
            _several(
                "--score NAME",
                "compare only this score: METHOD.COLUMN, METHOD or COLUMN (repeatable)",
            ),
            _value("--baseline NAME", "compare only with this run or name", default=""),
            _value(
                "--confidence LEVEL",
                "confidence level of intervals and of all resolved differences (default: 0.95)",
                type=LEVEL,
                default=0.95,
            ),
            _value("--html F", "write the comparison to the HTML file F"),
            _CODE,
            _UNTRUSTED,
            _FORM,
        ),
        (
            "gate results",
            "hold a run against requirements, with verdicts for CI",
            _RUN,
            _several(
                "--require TEXT",
                'requirement, such as "large > medium" (repeatable; default: `gates` of the '
                "recipe)",
                default=None,
            ),
            _value("--against OLD", "older run, which requirements call `old`"),
            _several(
                "--match KIND=NEW:OLD",
                "match names of both runs: model=large_v2:large, judge=J:K or method=M:N "
                "(repeatable)",
            ),
            _value(
                "--confidence LEVEL",
                "confidence level of all verdicts together (default: the recipe's)",
                type=LEVEL,
            ),
            _flag(
                "--pass-unknown",
                "exit with 0 instead of 5 if no requirement fails, but one is not known yet",
            ),
            _value("--junit FILE", "write the verdicts to FILE as JUnit XML"),
            _value(
                "--summary FILE",
                'append the verdicts to FILE as Markdown: --summary "$GITHUB_STEP_SUMMARY"',
            ),
            _CODE,
            _UNTRUSTED,
            _FORM,
        ),
        (
            "export results",
            "write tables, frames and figures of a run to files",
            _RUN,
            _CODE,
            _UNTRUSTED,
            _value("--to DIR", "output folder, created if necessary"),
            _value(
                "--format",
                "parquet (default) and jsonl are exact; csv is escaped for spreadsheets; hf is a "
                "dataset folder for Hugging Face",
                default="parquet",
                choices=["parquet", "csv", "jsonl", "latex", "markdown", "html", "hf"],
            ),
            _several(
                "--table NAME",
                "export only this table of the report (repeatable); without --to print it",
            ),
            _several(
                "--frame NAME",
                "export only this frame (repeatable); side_by_side has all that was judged, with "
                "its texts, for people",
            ),
            _value("beside RUN", "more runs, whose rows of --table are added", nargs="*"),
            _value("--column HEADING", "columns of --table, in order", nargs="+", default=[]),
            _several("--where HEADING=TEXT", "only rows of --table with this text (repeatable)"),
            _value(
                "--across HEADING",
                "give every text of this column, such as run, columns of its own",
            ),
            _flag("--average", "add the mean of the first of these columns (--across)"),
            _value("--figures DIR", "write each figure to DIR as SVG, PDF and PNG"),
            _flag("--list", "list the tables and frames"),
            _flag("--json", "print machine-readable JSON (--list)"),
        ),
        (
            "cite results",
            "print a methods paragraph and BibTeX of a run",
            *_READS,
            _value(
                "--format",
                "a paragraph with BibTeX (text, default), BibTeX alone, or machine-readable JSON",
                choices=["text", "bibtex", "json"],
                default="text",
            ),
        ),
        (
            "labels results",
            "write a sheet for human labels of a run's answers",
            *_READS,
            _value("--to FILE.csv", "sheet to write", required=True),
            _value("--n N", "rows to label (default: 100; with --below all)", type=COUNT),
            _value(
                "--below MARGIN",
                "only pairs with a smaller margin, for people to decide in the judge's place",
                type=float,
            ),
            _value("--method NAME", "method whose judgments are labelled (default: the first)"),
            _value("--seed S", "seed of the choice (default: 0)", type=int, default=0),
            _flag("--force", "overwrite a sheet, and labels that it holds"),
        ),
    ),
    "runs under way": (
        ("status status", "show the state of a run", _RUN, _NO_CODE, _UNTRUSTED, _JSON),
        ("pause status", "pause a run: stop sending new requests", _RUN),
        ("resume status", "resume a paused run", _RUN),
        (
            "limit status",
            "change a model's limit of concurrent requests",
            _RUN,
            _value("model MODEL", "name of the model in the recipe"),
            _value("n N", "maximum number of concurrent requests", type=int),
        ),
        (
            "stop status",
            "stop a run, as Ctrl-C does",
            _RUN,
            _flag(
                "--cancel",
                "cancel batches too, when what they had answered is read; else they go on",
            ),
        ),
    ),
    "runs, servers and plug-ins": (
        ("runs", "list, merge, repair, clean up or delete runs"),
        ("servers", "list, stop, serve or probe servers"),
        (
            "list listing:kinds",
            "list methods, datasets, weights and what else a recipe names",
            _value("kind KIND", f"one of {', '.join(LISTED)}", choices=LISTED),
            _JSON,
        ),
        ("get", "install weights, or copy a recipe"),
        (
            "new recipes",
            "create a plug-in with a test and a recipe",
            _value("family", "kind of plug-in to write", choices=["method", "dataset", "backend"]),
            _value("name NAME", "name of the module, such as brevity"),
        ),
        (
            "allow check",
            "allow the recipes of a folder to run code",
            _value("folder FOLDER", "folder to allow (default: working directory)", nargs="?"),
            _flag("--revoke", "revoke the permission"),
            _flag("--list", "list the allowed folders"),
            _JSON,
        ),
    ),
}
ACTIONS: Final[Mapping[str, Sequence[Command]]] = {
    "runs": (
        (
            "list status:runs",
            "list the runs in a folder (default)",
            _UNTRUSTED,
            _value("folder", "folder of runs (default: runs/)", nargs="?", default=RUNS),
            _JSON,
        ),
        (
            "merge runs",
            "put runs of one recipe together into one run",
            _value("runs RUN", "folders of runs, or their names in runs/", nargs="+"),
            _value("--into DIR", "folder of the merged run", required=True),
            _flag("--accept-server-change", "merge even if different servers answered for a model"),
        ),
        ("repair runs", "recover what is readable in a damaged run", _RUN),
        (
            "gc runs",
            "delete outcomes that the last recipe of a run does not need",
            _RUN,
            _flag("--drop", "delete the outcomes (default: only count them)"),
            _CODE,
        ),
        (
            "rm runs",
            "delete runs, after a question",
            _value("runs RUN", "folders of runs, or their names in runs/", nargs="*"),
            _value(
                "--older-than AGE",
                "only runs last written longer ago, such as 30d, 12h or 8w (without RUN: of all in "
                "runs/); a bare number is days",
                type=AGE,
            ),
            _flag("--yes", "delete without asking"),
        ),
    ),
    "servers": (
        ("list servers:servers", "list the servers left running (default)", _JSON),
        (
            "start servers",
            "start servers on a cluster that any number of runs share",
            _value("recipe RECIPE", "recipe whose servers are started"),
            _PLACE,
            _OVERRIDES,
            _CODE_IS_RUN,
        ),
        (
            "stop servers",
            "stop servers left running",
            _value("name NAME", "names of the servers to stop", nargs="*"),
            _flag("--all", "stop all servers"),
        ),
        (
            "serve servers",
            "serve models on this machine",
            _value(
                "model",
                "[NAME=]DIR, [NAME=]FILE.gguf or [NAME=]bundled:NAME; a name with --fake",
                nargs="+",
            ),
            _flag("--fake", "serve deterministic replies without a model"),
            _value("--host", "address to listen on", default="127.0.0.1"),
            _value("--port", "port to listen on; 0 picks a free port", type=PORT, default=8000),
            _value("--threads", "number of CPU threads of the embedded server", type=COUNT),
            _value("--device", "device of the model: cpu, cuda or cuda:1", default="cpu"),
            _value("--dtype", "number format of the weights in memory", default="float32"),
        ),
        (
            "probe servers",
            "probe servers for the features they support",
            _value("what URL|RECIPE", "URL of a running server, or a recipe with servers"),
            _JSON,
            _several("--model", "probe only this model of a URL (repeatable)"),
            _value("--backend KIND", "backend of a URL (default: detect it)"),
            _value("--api-key-env VAR", "environment variable with the API key of a URL"),
            _flag("--plain", "probe the models of a URL without a chat template"),
            _OVERRIDES,
            _CODE_IS_RUN,
        ),
    ),
    "get": (
        (
            "weights listing:get",
            "install weights, after showing size and licence",
            _value("name NAME", "name as listed, such as smollm2"),
            _flag("--yes", "install without asking"),
        ),
        (
            "recipe recipes:copy",
            "copy a recipe that comes with the project, to change it",
            _value("name NAME", "name as listed, such as pairwise_ranking"),
            _value("to TO", "file or folder to write (default: NAME.yaml here)", nargs="?"),
            _FORCE,
        ),
    ),
}
