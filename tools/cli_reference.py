"""Write docs/cli.md, the reference of the command line, from the commands' own declarations.

`python tools/cli_reference.py [--to FILE]`, called by `make schema`; a test holds the page current.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final

from orchestrator import cli
from orchestrator.commands.options import COMMANDS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
_HEAD: Final = """\
# Command line

This page lists every command and option of `orchestrator`. `make schema` writes it from the code's
help texts. Every command also takes `-h`/`--help`, and `-q`/`--quiet` (print results, warnings and
errors only).
"""
# An argument that so many commands have alike is told once.
_SHARED_BY: Final = 2
_NO_DEFAULT: Final[tuple[object, ...]] = (None, False, "", [], argparse.SUPPRESS)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, default=PAGE)
    options = parser.parse_args()
    options.to.write_text(page(), encoding="utf-8")
    print(options.to)


def page() -> str:
    """Return the page as Markdown."""
    parser = cli._parser()  # noqa: SLF001 (it is built once a call, and only by commands)
    counts = Counter(_row(a) for command in _all(parser) for a in _arguments(command))
    # Of an argument that commands word differently only the commonest is shared.
    often = [row for row, n in reversed(counts.most_common()) if n >= _SHARED_BY]
    shared = set({_name(row): row for row in often}.values())
    users = {row: [c.prog.removeprefix("orchestrator ") for c in _all(parser)
                   if any(_row(a) == row for a in _arguments(c))] for row in shared}  # fmt: skip
    told = [f"{row} {', '.join(f'`{one}`' for one in users[row])} |" for row in sorted(shared)]
    head = ["| argument | effect | commands |", "| --- | --- | --- |"]
    sections = [_HEAD, "## Arguments of several commands\n", "\n".join([*head, *told]) + "\n"]
    added = _subcommands(parser)
    for title, commands in COMMANDS.items():
        names = [named.partition(" ")[0] for named, *_ in commands]
        rows = [row for name in names for row in _rows(added[name], shared)]
        sections += [f"## {_sentence(title).rstrip('.')}\n", _table(rows)]
    return "\n".join([*sections, _exit_codes(parser)])


def _all(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for command in _subcommands(parser).values():
        yield command
        yield from _all(command)


def _table(rows: Sequence[str]) -> str:
    return "\n".join(["| argument | effect |", "| --- | --- |", *rows]) + "\n"


def _rows(command: argparse.ArgumentParser, shared: Set[str]) -> Iterator[str]:
    """Yield a row of a command, one of each of its own arguments, and those of its actions."""
    yield f"| **`{_cell(_usage(command))}`** | **{_sentence(command.description or '')}** |"
    rows = [_row(action) for action in _arguments(command)]
    yield from (row for row in rows if row not in shared)
    for action in _subcommands(command).values():
        yield from _rows(action, shared)


def _name(row: str) -> str:
    return row.split(" | ")[0].removeprefix("| ")


def _usage(command: argparse.ArgumentParser) -> str:
    """Return the usage with what is optional as one word: the table below has it."""
    text = command.format_usage().removeprefix("usage: ")
    # argparse folds long usages to the terminal's width; here the browser does.
    text = re.sub(r"\s+", " ", text).strip()
    options = re.compile(r"\[-(?:[^\[\]]|\[[^\[\]]*\])*\] ?")
    where = options.search(text)
    assert where is not None  # noqa: S101 (-h)
    given = [one for one in _arguments(command) if one.option_strings and not one.required]
    return (
        options.sub("", text[: where.start()])
        + ("[options] " if given else "")
        + options.sub("", text[where.start() :])
    )


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 (argparse has no public way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001
        is_own = not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)  # noqa: SLF001
        is_common = "--quiet" in action.option_strings
        if is_own and not is_common and action.help != argparse.SUPPRESS:
            yield action


def _row(action: argparse.Action) -> str:
    value = _value(action)
    spelt = action.option_strings or [value]
    shown = f"[{value}]" if action.nargs == "?" and action.option_strings else value
    takes = f" {shown}" if action.option_strings and action.nargs != 0 else ""
    names = ", ".join(f"`{name}{takes}`" for name in spelt)
    notes = [_sentence(action.help % vars(action) if action.help else "")]
    if action.choices is not None and action.metavar is not None:
        notes.append(f"One of {', '.join(f'`{one}`' for one in action.choices)}.")
    is_said = "default" in notes[0]
    if not is_said and action.nargs != 0 and action.default not in _NO_DEFAULT:
        notes.append(f"Default: `{action.default}`.")
    if action.required and action.option_strings:
        notes.append("Required.")
    return f"| {_cell(names)} | {_cell(' '.join(filter(None, notes)))} |"


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _exit_codes(parser: argparse.ArgumentParser) -> str:
    text = re.sub(r"\s+", " ", parser.epilog or "").removeprefix("exit codes: ")
    rows = [f"| {code} | {_sentence(said)} |" for code, said in re.findall(r"(\d+) ([^;]+)", text)]
    return "\n".join(["## Exit codes\n", "| code | meaning |", "| --- | --- |", *rows]) + "\n"


def _sentence(text: str, *, is_start: bool = True) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    first = text[:1].upper() if is_start else text[:1]
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) or not text else ".")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    main()
