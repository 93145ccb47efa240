"""Writes the table of maximum errors into docs/servers.md.

`python -m tests.conformance.table [COLUMN ...]` measures these (all where none is named) and leaves
the columns of others as they are. A column is a kind of server, or `KIND_smollm2` for the same
server with a real chat model.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from launch import _weights
from tests.conformance.measure import QUANTITIES, errors
from tests.conformance.reference import reference
from tests.conformance.servers import KINDS, MODEL, REAL_KINDS, Kind, running
from tests.conftest import BUNDLED, ROOT

PAGE: Final = ROOT / "docs" / "servers.md"
BEGIN: Final = "<!-- maximum errors: python -m tests.conformance.table -->"
END: Final = "<!-- end of maximum errors -->"
Columns = dict[str, dict[str, str]]
MEASURED: Final[dict[str, Kind]] = {
    **{name: kind for name, kind in KINDS.items() if kind.tolerance is not None},
    **{f"{name}_smollm2": kind for name, kind in REAL_KINDS.items()},
}


def main(kinds: list[str]) -> None:
    """Measure and write."""
    text = PAGE.read_text(encoding="utf-8")
    columns = parse(between(text))
    for name in kinds or MEASURED:
        is_real = name.endswith("_smollm2")
        weights = _weights.folder_now(MEASURED[name].weights) if is_real else BUNDLED / MODEL
        with (
            tempfile.TemporaryDirectory() as folder,
            running(MEASURED[name], Path(folder) / "server.log") as run,
        ):
            found = errors(run, reference(weights))
        columns[name] = {quantity: f"{error:.1e}" for quantity, error in found.items()}
        PAGE.write_text(replaced(text, columns), encoding="utf-8")
        sys.stdout.write(f"{name}: at most {max(found.values()):.1e}\n")


def between(text: str) -> str:
    """The lines of the table in a page."""
    return text.partition(BEGIN)[2].partition(END)[0]


def replaced(text: str, columns: Columns) -> str:
    """The page with another table."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table(columns)}{END}{after}"


def table(columns: Columns) -> str:
    """Markdown: a row a quantity, a column a server."""
    names = list(columns)
    rows = [["ln p of", *names], ["---"] * (len(names) + 1)]
    rows += [
        [quantity, *(columns[name].get(quantity, "") for name in names)] for quantity in QUANTITIES
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def parse(text: str) -> Columns:
    """The columns of a table that `table` wrote."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.strip().splitlines()
    ]
    if len(rows) < 3:
        return {}
    return {
        name: {row[0]: row[place] for row in rows[2:]}
        for place, name in enumerate(rows[0])
        if place
    }


if __name__ == "__main__":
    main(sys.argv[1:])
