r"""Tables as LaTeX that needs no package but `booktabs`.

Every text may come from a model: nothing in it is obeyed by TeX. Numbers are typeset in math mode,
so that signs and thousands separators come out right; a value, its interval and its sample size
stand in columns of their own, which aligns each of them.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from string import ascii_lowercase
from typing import Final

from orchestrator import figures, numbers
from orchestrator.report.text import safe_line
from orchestrator.tables import GROUP, Cell, Column, Table, cell_parts

_NUMBER: Final = re.compile(r"(?<![\w.])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
# What TeX obeys, what it sets as another sign, and what a row or `\\` takes for an argument.
_ESCAPES: Final = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "`": r"\textasciigrave{}", "'": "'{}", "-": "-{}", "[": "{[}", "]": "{]}", "*": "{*}",
    "\N{EN DASH}": "--", "\N{EM DASH}": "---", "\N{MINUS SIGN}": "$-$",
    "·": r"\textperiodcentered{}", "…": r"\ldots{}", "≥": r"$\geq$", "≤": r"$\leq$",
    "≈": r"$\approx$", "≠": r"$\neq$", "±": r"$\pm$", "\N{MULTIPLICATION SIGN}": r"$\times$",
    "→": r"$\rightarrow$", "Δ": r"$\Delta$", "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "κ": r"$\kappa$", "\N{GREEK SMALL LETTER RHO}": r"$\rho$", "τ": r"$\tau$", "²": r"$^2$",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
})  # fmt: skip
# Beyond this pdfLaTeX has no glyphs without more packages.
_LAST_LATIN: Final = 0x17F


def escaped(text: str) -> str:
    """Return text from outside as LaTeX that sets it as it is, on one line."""
    line = safe_line(text).translate(_ESCAPES)
    # Two hyphens or apostrophes would become one sign; a lone one needs no braces.
    return re.sub(r"([-'])\{\}(?!\1)", r"\1", line)


def latex(table: Table, *, name: str, about: str = "") -> str:
    """Return a table as a `table` environment with caption, label and notes.

    Args:
        table: The table.
        name: Of the table in its run; the label is made of it.
        about: Where it comes from, for a comment.
    """
    footnotes: dict[str, str] = {}
    columns = _columns(table)
    body = [_row(table.columns, columns, row, footnotes) for row in table.rows]
    heads = []
    for column, fields in zip(table.columns, columns, strict=True):
        head = escaped(column.name.rpartition(GROUP)[2])
        n = len(fields)
        heads.append(head if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{head}}}")
    aligned = "".join(
        "l" if fields == ("text",) else "r" + r"@{\ }l" * (len(fields) - 1) for fields in columns
    )
    lines = [
        rf"\begin{{tabular}}{{{aligned}}}",
        r"  \toprule",
        *_groups(table.columns, columns),
        rf"  {' & '.join(heads)} \\",
        r"  \midrule",
        *(rf"  {line} \\" for line in body),
        r"  \bottomrule",
        r"\end{tabular}",
        *_notes(table, footnotes),
    ]
    caption = ". ".join(part for part in (escaped(table.title), escaped(table.basis)) if part)
    text = "\n".join([
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}.}}",
        rf"  \label{{tab:{figures.key(name)}}}",
        *(f"  {line}" for line in lines),
        r"\end{table}",
    ]) + "\n"  # fmt: skip
    comments = [safe_line(about)] if about else []
    comments.append(r"Needs \usepackage{booktabs} in the preamble.")
    if any(ord(character) > _LAST_LATIN for character in text):
        font = "Compile with LuaLaTeX or XeLaTeX and a font that has all of its characters."
        comments.append(font)
    return "".join(f"% {line}\n" for line in comments) + text


def _columns(table: Table) -> list[tuple[str, ...]]:
    """Return the fields of `Parts` that each column of a table has, `value` first."""
    found: list[tuple[str, ...]] = []
    for place, column in enumerate(table.columns):
        cells = [cell_parts(column, row[place]) for row in table.rows]
        more = [field for field in ("interval", "n") if any(getattr(c, field) for c in cells)]
        found.append(("text",) if column.is_text else ("value", *more))
    return found


def _groups(columns: Sequence[Column], fields: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines above the headings that name groups of columns, if there are any."""
    cells, rules, end = [], [], 0
    names = [column.name.rpartition(GROUP)[0] for column in columns]
    for group, members in groupby(zip(names, fields, strict=True), key=itemgetter(0)):
        width = sum(len(own) for _, own in members)
        end += width
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(group)}}}")
        rules += [rf"\cmidrule(lr){{{end - width + 1}-{end}}}"] if group else []
    return [rf"  {' & '.join(cells)} \\", f"  {' '.join(rules)}"] if rules else []


def _row(
    columns: Sequence[Column],
    fields: Sequence[tuple[str, ...]],
    row: Sequence[Cell],
    footnotes: dict[str, str],
) -> str:
    cells: list[str] = []
    for column, wanted, cell in zip(columns, fields, row, strict=True):
        parts = cell_parts(column, cell)
        if wanted == ("text",):
            cells.append(escaped(parts.value))
            continue
        value = _number(parts.value)
        if parts.why:
            mark = footnotes.setdefault(parts.why, _mark(len(footnotes)))
            value += rf"\textsuperscript{{{mark}}}"
        cells.append(value)
        cells += [_number(getattr(parts, field)) for field in wanted[1:]]
    return " & ".join(cells)


def _mark(place: int) -> str:
    """Return the mark of a footnote: a to z, then aa, ab and so on."""
    repeated, letter = divmod(place, len(ascii_lowercase))
    return (_mark(repeated - 1) if repeated else "") + ascii_lowercase[letter]


def _number(text: str) -> str:
    """Typeset our own spelling of a number or interval."""
    parts: list[str] = []
    at = 0
    for found in _NUMBER.finditer(text):
        number = found[0].replace(",", "{,}")
        parts += [_words(text[at : found.start()]), f"${number}$"]
        at = found.end()
    return "".join([*parts, _words(text[at:])])


def _words(text: str) -> str:
    """Escape our own words between numbers, whose blanks at the ends count."""
    before = " " if text.startswith(" ") and text.strip() else ""
    after = " " if text.endswith(" ") else ""
    found = f"{before}{escaped(text)}{after}".replace(r" \%", r"\,\%")
    # No row begins with a bracket of ours.
    return found.replace("{[}", "[").replace("{]}", "]")


def _notes(table: Table, footnotes: dict[str, str]) -> list[str]:
    found = [rf"\textbf{{{escaped(table.warning)}}}"] if table.warning else []
    found += [rf"\textsuperscript{{{mark}}} {escaped(why)}." for why, mark in footnotes.items()]
    parts = (cell_parts(*one) for row in table.rows for one in zip(table.columns, row, strict=True))
    if any(numbers.OPEN in part.interval for part in parts):
        found.append("open: the data give no bound on this side.")
    found += [f"{escaped(note)}." for note in table.notes]
    if not found:
        return []
    return [
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
        *(rf"  {line}\par" for line in found),
        r"\end{minipage}",
    ]
