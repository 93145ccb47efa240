import csv
import gc
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.dataset import rows as _lines
from orchestrator.errors import DatasetError
from tests.datasets.test_open import message_of, opened

CR = "lines end with a carriage return alone; save the file with line feeds"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda name, content: write(tmp_path / name, content)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# -- JSON Lines --------------------------------------------------------------------------------


def test_blank_lines_a_byte_order_mark_and_a_missing_last_line_break_are_fine(file):
    path = file(
        "x.jsonl", b'\xef\xbb\xbf{"prompt": "a"}\n\n  \r\n{"prompt": "b"}\r\n{"prompt": "c"}'
    )
    dataset = opened(path)
    assert [dataset.item(index).prompt for index in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "x.jsonl:2: an object over several lines"),
        (b"[1]", "x.jsonl:2: a list; each line must be an object"),
        (b'"a"', "x.jsonl:2: a value without names"),
        (b"\xff", "x.jsonl:2: not UTF-8 text"),
        (b'{"prompt": "b"}\r{"prompt": "c"}', f"x.jsonl:2: {CR}"),
        (b'{"prompt": ' + b"[" * 9_999, "x.jsonl:2: not JSON: nested too deep; the line begins"),
        (b'{"prompt": "\\ud800"}', "x.jsonl:2: has half a character (\\ud800"),
        (b"[" * 100_000, "x.jsonl:2: not JSON"),
        (b'{"prompt": 1e999}', "x.jsonl:2: 'prompt', which is the prompt, is empty"),
        (b'{"prompt": ["a", ""]}', "x.jsonl:2: prompt[1] is empty"),
        (b'{"prompt": ["a", 2]}', "x.jsonl:2: prompt[1] must be text"),
        (b'{"prompt": []}', "x.jsonl:2: 'prompt', which is the prompt, is empty"),
        (
            b'{"prompt": ["a", "b"], "reference": ["c"]}',
            "x.jsonl:2: 'reference' lists 1 references, but there are 2 turns",
        ),
        (
            b'{"prompt": "a", "reference": ["c", "d"]}',
            "x.jsonl:2: 'reference' lists 2 references, but there is 1 turn; choose another column",
        ),
        (b'{"prompt": {"a": 1}}', "x.jsonl:2: 'prompt' is a mapping, not text"),
        (b'{"promt": "x"}', "x.jsonl:2: no 'prompt', which is the prompt; available: 'promt'; did"),
        (b'{"prompt": null}', "x.jsonl:2: 'prompt', which is the prompt, is empty"),
    ],
)
def test_a_wrong_line_is_named(file, line, message):
    content = b'{"prompt": "a"}\n' + line + b'\n{"prompt": "b"}\n'
    assert message_of(file("x.jsonl", content)).startswith(message)


def test_the_line_of_a_wrong_row_counts_blank_lines(file):
    path = file("x.jsonl", '{"prompt": "a"}\n\n\n{"prompt": ""}\n')
    assert message_of(path).startswith("x.jsonl:4: ")


def test_a_json_list_over_many_lines_is_recognised(file):
    message = message_of(file("x.jsonl", '[\n  {"prompt": "a"},\n  {"prompt": "b"}\n]\n'))
    assert message == "x.jsonl:1: a list; JSON Lines needs one object per line; the line begins '['"


def test_columns_that_only_later_rows_have_are_found(file):
    dataset = opened(file("x.jsonl", '{"prompt": "a"}\n{"prompt": "b", "answer": 2}\n'))
    assert [dataset.item(index).reference for index in range(2)] == [None, "2"]


def test_a_row_without_the_key_that_others_have_is_an_error(file):
    path = file("x.jsonl", '{"prompt": "a", "id": 1}\n{"prompt": "b"}\n')
    assert message_of(path) == (
        "x.jsonl:2: no 'id', which is the key; or set dataset: {fields: {key: null}}"
    )


def test_keys_that_are_numbers_are_the_same_as_texts(file):
    path = file("x.jsonl", '{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}\n')
    said = "x.jsonl:2: the id '1' was already given at x.jsonl:1; if it is no key, set"
    assert message_of(path).startswith(said)


def test_a_key_given_three_times_is_named_twice(file):
    lines = [json.dumps({"prompt": str(index), "id": "same"}) for index in range(3)]
    message = message_of(file("x.jsonl", "\n".join(lines)))
    assert message.startswith("x.jsonl:2: the id 'same' was already given at x.jsonl:1")
    assert message.endswith("; the same at 3")
    assert "\n" not in message


def test_other_columns_keep_their_json_values_sorted_by_name(file):
    fields = {"z": [1, {"b": None, "a": True}], "n": 2**80, "a": 1.5}
    item = opened(file("x.jsonl", json.dumps({"prompt": "x", **fields}))).item(0)
    assert list(item.fields) == ["a", "n", "z"]
    assert item.fields == {"a": 1.5, "n": str(2**80), "z": [1, {"a": True, "b": None}]}


def test_a_file_replaced_under_its_name_is_still_read_as_it_was(file, tmp_path):
    path = file("x.jsonl", '{"prompt": "a"}\n{"prompt": "b"}\n')
    dataset = opened(path)
    write(tmp_path / "new", '{"prompt": "changed"}\n').replace(path)
    assert dataset.item(1).prompt == "b"


@pytest.mark.parametrize("content", ['{"prompt": "c"}\n', "xxxxxxxxxxxxxxxx", ""])
def test_a_file_changed_in_place_is_an_error(file, content):
    path = file("x.jsonl", '{"prompt": "a"}\n')
    dataset = opened(path)
    write(path, content)
    with pytest.raises(DatasetError, match=r"changed (meanwhile|while it was in use)"):
        dataset.item(0)


def test_a_line_without_end_is_refused_before_memory_is_full(file, monkeypatch):
    monkeypatch.setattr(_lines, "MAX_ROW_BYTES", 1 << 20)
    message = message_of(file("x.jsonl", b'{"prompt": "' + b"x" * (2 << 20)))
    assert message.startswith("x.jsonl:1: a line of more than 1 MB")


def test_no_file_stays_open_when_a_dataset_is_gone(file):
    path = file("x.jsonl", '{"prompt": "a"}\n')
    message_of(path, fields={"prompt": "none"})
    opened(path).item(0)
    gc.collect()  # what was raised holds its frames for a while
    open_files = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    assert path not in open_files


# -- CSV ---------------------------------------------------------------------------------------


def test_every_value_of_a_csv_is_text_and_an_empty_one_is_missing(file):
    item = opened(file("x.csv", "prompt,id,n,e\r\n007,01,1.50,\r\n")).item(0)
    assert (item.prompt, item.key, item.fields) == ("007", "01", {"n": "1.50", "e": None})


def test_a_byte_order_mark_is_not_part_of_the_first_name(file):
    assert opened(file("x.csv", b"\xef\xbb\xbfprompt\nx\n")).item(0).prompt == "x"


def test_blank_lines_are_skipped_and_quoted_line_breaks_kept(file):
    dataset = opened(file("x.csv", 'prompt,note\n\n"a\n\nb",1\n\nc,2\n\n'))
    assert [dataset.item(index).prompt for index in range(2)] == ["a\n\nb", "c"]


@given(
    st.sampled_from([",", ";", "\t", "|"]),
    st.lists(st.text("ab;,| é", min_size=1).filter(str.strip), min_size=1, max_size=3),
    st.sampled_from(["id{}prompt", "prompt{}note{}id"]),
)
def test_the_separator_is_found_in_the_header(tmp_path_factory, separator, prompts, header):
    columns = header.format(separator, separator).split(separator)
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, delimiter=separator, restval="-")
        writer.writeheader()
        writer.writerows({"id": n, "prompt": one} for n, one in enumerate(prompts))
    dataset = opened(path)
    assert [dataset.item(n).prompt for n in range(len(dataset))] == prompts


def test_a_separator_may_be_given(file):
    assert opened(file("x.csv", "prompt;note\na,b;1\n"), separator=";").item(0).prompt == "a,b"


def test_a_column_without_a_name_gets_one(file):
    assert opened(file("x.csv", ",prompt\n0,x\n")).item(0).fields == {"column_1": "0"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"prompt,note\na,1\nb\n", "x.csv:3: 1 values, but the header has 2 columns"),
        (b"prompt,note\na,1,2\n", "x.csv:2: 3 values, but the header has 2 columns"),
        (b'prompt,note\na,1\n"b,2\nc,3\n', "x.csv:3: not CSV: unexpected end of data"),
        (b'prompt,note\n"a"b,1\n', "x.csv:2: not CSV: "),
        (b"prompt,note\na,1\n\xff,2\n", "x.csv:3: not UTF-8 text"),
        (b"prompt,prompt\na,1\n", "x.csv:1: 2 columns are named 'prompt'"),
        (b'prompt,note\n"a\nb",1\n,2\n', "x.csv:4: 'prompt', which is the prompt, is empty"),
        (b"", "x.csv has no items"),
        (b"prompt,note\ra,1\r", f"x.csv:1: not CSV: {CR}"),
        (b'"prompt","note"\r"a","1"\r', f"x.csv:1: not CSV: {CR}"),
        (b"prompt,note\na,1\rb,2\n", f"x.csv:2: not CSV: {CR}"),
    ],
)
def test_a_wrong_row_is_named_by_its_first_line(file, content, message):
    assert message_of(file("x.csv", content)).startswith(message)


def test_what_is_no_parquet_is_an_error(file):
    assert message_of(file("x.parquet", b"PAR1 no")).startswith("x.parquet: not readable as Par")


# -- any content -------------------------------------------------------------------------------

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(_TEXTS.filter(str.strip), _TEXTS), min_size=1, max_size=10))
def test_what_is_written_as_csv_and_as_json_is_read_back_the_same(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    with (folder / "x.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("prompt", "note"), *rows])
    lines = [json.dumps({"prompt": prompt, "note": note or None}) for prompt, note in rows]
    write(folder / "x.jsonl", "\n".join(lines))
    of_csv, of_json = opened(folder / "x.csv"), opened(folder / "x.jsonl")
    assert [of_csv.item(i).prompt for i in range(len(rows))] == [prompt for prompt, _ in rows]
    assert of_csv.fingerprint == of_json.fingerprint


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(["x.jsonl", "x.csv", "x.tsv", "x.parquet"]), st.binary(max_size=100))
def test_any_bytes_are_a_dataset_or_a_dataset_error(tmp_path_factory, name, content):
    path = write(tmp_path_factory.mktemp("any") / name, content)
    try:
        dataset = opened(path)
    except DatasetError:
        return
    assert dataset.item(0).prompt
