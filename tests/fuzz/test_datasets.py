"""Whatever a file of rows holds, it is read or refused by an error of ours."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from orchestrator import contracts
from orchestrator.ask import GenerateAsk
from orchestrator.dataset import Dataset, DatasetKind
from orchestrator.datasets._files import FileConfig, JsonlKind
from orchestrator.errors import DatasetError
from orchestrator.ranking.human_labels import read_labels
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import Failure, Generation, Item, Message, Sampling
from orchestrator.runner.models.answers import given_answers
from tests.fuzz.fuzzing import HOSTILE, JUNK, change, cut_bytes, fuzz

ROWS: list[dict[str, Any]] = [
    {"key": "a", "prompt": "What is 2 + 2?", "reference": "4", "category": "sums", "x": 1},
    {"key": "b", "messages": [{"role": "user", "content": "hi"}], "reference": None, "n": [1.5]},
    {"key": "c", "prompt": ["first", "then"], "references": ["1", "2"], "turns": 2},
]
LABELS: list[dict[str, Any]] = [
    {"item": "a", "turn": 1, "model_a": "x", "model_b": "y", "label": "x", "annotator": "p"},
    {"item": "b", "turn": 2, "model_a": "x", "model_b": "y", "label": "0.5", "annotator": "q"},
]
ANSWERS: list[dict[str, Any]] = [
    {
        "question_id": 81,
        "model_id": "m",
        "choices": [{"index": 0, "turns": ["one"]}, {"index": 1, "turns": ["two"]}],
    },
    {"instruction": "hi", "output": "there", "generator": "m"},
    {"doc_id": 3, "doc": {"question": "q"}, "arguments": [["q", {}]], "resps": [["yes"]]},
    {"item": "a", "turn": 1, "model": "m", "text": "four"},
]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    plain = [{name: str(row.get(name, "")) for name in rows[0]} for row in rows]
    return pl.DataFrame(plain).write_csv().encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    pl.DataFrame([{name: str(row.get(name)) for name in rows[0]} for row in rows]).write_parquet(
        written
    )
    return written.getvalue()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".jsonl": as_lines,
    ".json": lambda rows: json.dumps(rows).encode(),
    ".csv": as_csv,
    ".tsv": lambda rows: as_csv(rows).replace(b",", b"\t"),
    ".parquet": as_parquet,
}
KINDS = {".jsonl": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}


def opened(path: Path) -> Dataset:
    kind = contracts.load(DatasetKind, KINDS[path.suffix])
    return kind(kind.Config.model_validate({"path": path.name})).open(path.parent)


@st.composite
def files(draw: st.DrawFn, rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    """A suffix and content that went wrong, as JSON values or as bytes."""
    suffix = draw(st.sampled_from(list(FORMS)))
    if suffix in {".jsonl", ".json"} and draw(st.integers(0, 2)):
        changed = json.loads(json.dumps(rows))
        for _ in range(draw(st.integers(1, 3))):
            changed = change(draw, changed, JUNK)
        if suffix == ".jsonl":
            lines = changed if isinstance(changed, list) else [changed]
            return suffix, b"\n".join(json.dumps(line).encode() for line in lines)
        return suffix, json.dumps(changed).encode()
    content = draw(cut_bytes((FORMS[suffix](rows),)) | st.binary(max_size=60))
    return suffix, content


def in_a_file(case: tuple[str, bytes], read: Callable[[Path], None]) -> None:
    """Read the content as a file; errors of ours are what a reader may raise."""
    suffix, content = case
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        path.write_bytes(content)
        try:
            read(path)
        except DatasetError as error:
            str(error).encode()


@fuzz(300, case=files(ROWS))
def test_rows_are_items_or_refused(case):
    def read(path: Path) -> None:
        dataset = opened(path)
        items = [dataset.item(index) for index in range(len(dataset))]
        assert len({item.key for item in items}) == len(items) > 0
        for item in items:
            assert item.messages
            repr(item).encode()
            "".join(message.content for message in item.messages).encode()

    in_a_file(case, read)


@fuzz(200, case=files(LABELS))
def test_labels_are_numbers_and_words_or_refused(case):
    def read(path: Path) -> None:
        frame = read_labels(path)
        assert frame["item"].null_count() == frame["label"].null_count() == 0
        assert frame["value"].drop_nulls().is_finite().all()

    in_a_file(case, read)


@fuzz(300, case=st.sampled_from(ANSWERS).flatmap(lambda row: files([row])))
def test_given_answers_are_found_or_refused(case):
    def read(path: Path) -> None:
        find, identity, _ = given_answers(GivenAnswers(path=str(path)), "m")
        assert identity["answers"]
        for key in ("81", "3", "a", "other"):
            item = Item(key=key, messages=(Message("user", "hi"),))
            found = find(item, GenerateAsk("m", item.messages, Sampling(), turn=1))
            assert isinstance(found, Generation | Failure)

    in_a_file(case, read)


@pytest.mark.parametrize("turn", ["9" * 30, "9" * 5000, str(2**63), "²", "-1", "1.5"])
def test_turns_that_no_column_holds_are_refused(tmp_path, turn):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(as_lines([{"item": "a", "label": "1", "turn": turn}]))
    with pytest.raises(DatasetError):
        read_labels(path)


@pytest.mark.parametrize(
    "path", ["~no-such-user/x.jsonl", "a\0b.jsonl", "x" * 5000 + ".jsonl", "."]
)
def test_paths_that_name_no_file_are_refused(tmp_path, path):
    with pytest.raises(DatasetError):
        JsonlKind(FileConfig(path=path)).open(tmp_path)


@pytest.mark.parametrize("depth", [100, 100_000])
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_rows_nested_deeply_are_read_or_refused(depth, suffix):
    row = b'{"prompt": "p", "x": ' + b"[" * depth + b"]" * depth + b"}"
    content = b"[" + row + b"]" if suffix == ".json" else row

    def read(path: Path) -> None:
        opened(path).item(0)

    in_a_file((suffix, content), read)


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isprintable() and text])
def test_hostile_texts_come_out_as_they_went_in(tmp_path, text):
    (tmp_path / "rows.jsonl").write_bytes(as_lines([{"prompt": f"a{text}b"}]))
    dataset = opened(tmp_path / "rows.jsonl")
    assert dataset.item(0).prompt == f"a{text}b"
