"""Frames written to files that other programs read, and the README.md of a folder of them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import polars as pl
import yaml

from orchestrator.disk import columnar, files
from orchestrator.errors import on_disk_error
from orchestrator.frames import write_part
from orchestrator.report.text import escaped

# Frames written to files that other programs read.
#
# Parquet and JSON Lines hold the data exactly. CSV is for spreadsheets, which take some texts for
# formulas and terminals some for commands, so there both are made harmless: see `docs/export.md`.


Format = Literal["parquet", "csv", "jsonl"]

PART_ROWS: Final = 20_000
"""Of a frame that is written, so many are held at a time."""
# What JSON need not escape, but a terminal obeys or shows as nothing. Escapes change no value.
_UNSEEN: Final = (
    "\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}]")
_CONTROL: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNSEEN}]")
# A formula to a spreadsheet, in some locales of full width; "- item" and "-1.5" are none.
_FORMULA: Final = re.compile(
    r"\s*(?:[=@\uff1d\uff20]"
    r"|[+\-\uff0b\uff0d](?!\s)(?![\d.,]+(?:[eE][+-]?\d+)?%?\s*$))"
)
# What may be either.
_ODD: Final = f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNSEEN}]|^\\s*[=@\uff1d\uff20+\\-\uff0b\uff0d]"


def write_frame(parts: Iterable[pl.DataFrame], path: Path, form: Format) -> int:
    """Write a frame to one file, replaced as a whole when all of it is there; its rows.

    Its parts, of which there is at least one, are held one at a time.

    Raises:
        UsageError: If the file can't be written.
    """
    n_rows = 0
    with on_disk_error(f"{path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            files.replacing(path) as file,
            files.temporary_folder(path.parent) as aside,
        ):
            written: list[Path] = []
            for at, part in enumerate(parts):
                n_rows += part.height
                if form == "parquet":
                    written.append(write_part(part, aside / f"{at}.parquet"))
                else:
                    file.write(_part_text(part, form, at).encode())
            if written:
                columnar.scan(written).sink_parquet(file)
    return n_rows


def frame_text(parts: Iterable[pl.DataFrame], form: Literal["csv", "jsonl"]) -> str:
    """Return a frame as the text that `write_frame` writes."""
    return "".join(_part_text(part, form, at) for at, part in enumerate(parts))


def _part_text(part: pl.DataFrame, form: Literal["csv", "jsonl"], at: int) -> str:
    """Return a part of a frame, the first of which has the header."""
    if form == "csv":
        return harmless(part).write_csv(include_header=not at)
    # Hidden characters stand in JSON inside of strings only.
    return _HIDDEN.sub(
        lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), part.write_ndjson()
    )


def write_text(path: Path, text: str) -> None:
    """Write a text to a file that a user asked for, replaced as a whole; its folder is made.

    Raises:
        UsageError: If the file can't be written.
    """
    with on_disk_error(f"{path} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Lone surrogates, which UTF-8 can't hold, are written out.
        files.write(path, text.encode(errors="backslashreplace"))


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame as CSV can hold it: lists as JSON, no formulas or control characters."""
    changed: list[pl.Series] = []
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.List):
            values = frame[name].to_list()
            lists = [None if value is None else json.dumps(value) for value in values]
            changed.append(pl.Series(name, lists))
        elif kind == pl.String and (odd := frame[name].str.contains(_ODD)).any():
            cells = zip(frame[name], odd, strict=True)
            texts = [_cell(value) if is_odd else value for value, is_odd in cells]
            changed.append(pl.Series(name, texts, pl.String))
    return frame.with_columns(changed).rename({name: str(_cell(name)) for name in frame.columns})


def _cell(text: str | None) -> str | None:
    if text is None:
        return None
    shown = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
    return f"'{shown}" if _FORMULA.match(shown) else shown


# The README.md of a folder that `datasets.load_dataset` of Hugging Face reads.
#
# Each Parquet file under `data/` is a configuration of its own, because frames differ in columns.
# https://huggingface.co/docs/hub/datasets-manual-configuration


FOLDER = "data"


def card(name: str, rows: Mapping[str, int], *, about: Sequence[str] = (), bibtex: str = "") -> str:
    """Return the card as Markdown with a YAML head.

    Args:
        name: Of the run.
        rows: Rows of each Parquet file by its name without a suffix, the default one first.
        about: Sentences on the run; may come from outside.
        bibtex: Entries to cite.
    """
    configs = [
        {
            "config_name": one,
            "data_files": [{"split": "train", "path": f"{FOLDER}/{one}.parquet"}],
            **({"default": True} if place == 0 else {}),
        }
        for place, one in enumerate(rows)
    ]
    head = yaml.safe_dump(
        {"pretty_name": name, "configs": configs}, sort_keys=False, allow_unicode=True
    )
    lines = [
        "---", head.rstrip(), "---", "",
        f"# {escaped(name)}", "",
        "Results of an evaluation of language models with selfeval-orchestrator. Texts of models "
        "are untrusted.", "",
        *(f"{escaped(line)}\n" for line in about),
        "| configuration | rows |", "| :--- | ---: |",
        *(f"| {escaped(one)} | {n:,} |" for one, n in rows.items()), "",
        "Hugging Face calls the one split of each `train`; nothing was trained on it.", "",
    ]  # fmt: skip
    if bibtex:
        lines += ["```bibtex", bibtex.rstrip().replace("```", "'''"), "```", ""]
    return "\n".join(lines)
