"""Notes of people on items and answers: a file of its own in the run's folder.

Each line is a note as JSON, and the last one of an item and a model is what holds: a note is
changed by adding a line. What a killed process has left of a line is skipped.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, TypedDict

import msgspec
import polars as pl

from orchestrator.disk import files
from orchestrator.errors import UsageError, on_disk_error

FILE: Final = "notes.jsonl"
"""Name of the file in the run's folder."""
FRAME: Final = "notes"
"""Name of the frame that is exported."""
_MOST_BYTES: Final = 64 << 20
_MOST_TEXT: Final = 4_000
_MOST_TAG: Final = 60
_SCHEMA: Final = {
    "item": pl.String,
    "model": pl.String,
    "thumb": pl.Int64,
    "tag": pl.String,
    "text": pl.String,
    "at": pl.String,
}


class Note(TypedDict):
    """A note: `model` is empty where it is about the item; `thumb` is 1 up, -1 down or 0."""

    item: str
    model: str
    thumb: int
    tag: str
    text: str
    at: str


_decode = msgspec.json.Decoder(Note).decode


def read_notes(run: Path) -> pl.DataFrame:
    """The notes of a run that hold: columns of `Note`, in the order of their last change.

    Raises:
        UsageError: If the file can't be read.
    """
    path = run / FILE
    try:
        lines = files.read(path, _MOST_BYTES).splitlines()
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    held: dict[tuple[str, str], Note] = {}
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            note = _decode(line)
            held.pop((note["item"], note["model"]), None)
            if note["thumb"] or note["tag"] or note["text"]:
                held[note["item"], note["model"]] = note
    return pl.DataFrame([*held.values()], schema=_SCHEMA)


def add_note(run: Path, note: Note) -> None:
    """Add a note, or take one away by an empty one; it outlasts a crash.

    Raises:
        UsageError: If the note is too long or no note, or the file can't be written.
    """
    tag, text = note["tag"].strip(), note["text"].strip()
    if len(text) > _MOST_TEXT or len(tag) > _MOST_TAG or note["thumb"] not in {-1, 0, 1}:
        raise UsageError(
            f"a note has at most {_MOST_TEXT:,} characters, a tag {_MOST_TAG}; a thumb is 1 or -1"
        )
    path = run / FILE
    line = msgspec.json.encode({**note, "tag": tag, "text": text}) + b"\n"
    with (
        on_disk_error(f"{path} cannot be written"),
        os.fdopen(files.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b") as file,
    ):
        # Two viewers may write at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end + len(line) > _MOST_BYTES:
            raise UsageError(f"{path} has {end:,} bytes, and takes no more notes")
        file.seek(max(0, end - 1))
        # A process that was killed may have left half a line.
        file.write(line if file.read() in {b"", b"\n"} else b"\n" + line)
        file.flush()
        os.fsync(file.fileno())
