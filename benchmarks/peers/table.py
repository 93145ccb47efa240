"""The sections of docs/performance.md that this folder writes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.peers.measure import Slope


@dataclass
class Line:
    """Measurements of one client.

    Attributes:
        title: Its name on the page.
        version: Of its package.
        remark: What a reader must know to compare it.
        slopes: By column: a body's name, or "late".
        opened: The most requests that were open at once, by how many were asked for.
        faults: Why there is no figure, by column; "install" where there is none at all.
    """

    title: str
    version: str = ""
    remark: str = ""
    slopes: dict[str, Slope] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def cost(self, column: str) -> str:
        """CPU milliseconds a request, with the range of several repeats."""
        if (found := self.slopes.get(column)) is None:
            return "failed" if column in self.faults else "-"
        shown = _short(found.cpu_ms)
        if found.low == found.high:
            return shown
        return f"{shown} ({_short(found.low)}-{_short(found.high)})"

    def kept(self) -> str:
        """Of which bodies the client's own result has the log-probabilities."""
        bodies = {name: found.larger for name, found in self.slopes.items() if name != "late"}
        kept = [name for name, run in bodies.items() if run.with_logprobs == run.n]
        if not bodies:
            return "-"
        return "yes" if len(kept) == len(bodies) else ", ".join(kept) or "no"


def compared(lines: Sequence[Line], bodies: Sequence[str], levels: Sequence[int], late: int) -> str:
    """One row a client, then what failed and what differs."""
    heads = [
        "client", "version", "log-probs kept",
        *(f"{body}: CPU ms" for body in bodies),
        "judge, 200 ms late: CPU ms", "requests/s", "peak RSS MB",
        *(f"open of {level:,}" for level in levels),
    ]  # fmt: skip
    rows = [_row(heads), _row(["---"] * 3 + ["--:"] * (len(heads) - 3))]
    for line in lines:
        if "install" in line.faults:
            rows.append(_row([line.title, "not installed", *["-"] * (len(heads) - 2)]))
            continue
        slow = line.slopes.get("late")
        peak = max((found.larger.rss_mb for found in line.slopes.values()), default=None)
        cells = [line.title, line.version, line.kept()]
        cells += [line.cost(body) for body in bodies]
        cells += [
            line.cost("late"),
            f"{slow.per_s:,.0f}" if slow and slow.per_s == slow.per_s else "-",
        ]
        cells += [f"{peak:,.0f}" if peak is not None else "-"]
        cells += [f"{line.opened[n]:,}" if n in line.opened else "-" for n in levels]
        rows.append(_row(cells))
    notes = [f"- {line.title}: {line.remark}." for line in lines if line.remark]
    faults = [
        f"- {line.title}, {column}: {fault}"
        for line in lines
        for column, fault in line.faults.items()
    ]
    limit = f"200 ms late, {late} may be open: {late / 0.2:,.0f} requests/s are possible."
    return "\n".join([*rows, "", limit, "", *notes, *faults])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rate(found: Slope | None) -> str:
    return "-" if found is None or math.isnan(found.per_s) else f"{found.per_s:,.0f}"


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds < 1 else f"{milliseconds:.3g}"
