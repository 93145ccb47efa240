import json

import msgspec
import polars as pl
import pytest

from orchestrator import contracts, plugins
from orchestrator.ask import item_digest
from orchestrator.commands.listing import listed
from orchestrator.dataset import DatasetKind
from orchestrator.dataset.shapes import CHATS
from orchestrator.errors import DatasetError
from orchestrator.plugins import DATASETS
from orchestrator.recipe.schema import PluginRef
from orchestrator.records import Message
from orchestrator.runner.planning.prepare import open_dataset

ROWS: list[dict[str, str | None]] = [
    {"id": "a", "question": "1+1?", "answer": "2", "category": "sum", "note": "x"},
    {"id": "b", "question": "2+2?\n", "answer": None, "category": "sum", "note": None},
    {"id": "c", "question": 'Say "é", 😀', "answer": "é, 😀", "category": None, "note": "z"},
]
SUFFIXES = ["jsonl", "json", "csv", "tsv", "parquet"]


def write(path, rows):
    frame = pl.DataFrame(rows)
    match path.suffix:
        case ".jsonl":
            frame.write_ndjson(path)
        case ".json":
            frame.write_json(path)
        case ".csv":
            frame.write_csv(path)
        case ".tsv":
            frame.write_csv(path, separator="\t")
        case _:
            frame.write_parquet(path)
    return path


def opened(path, kind="", **settings):
    kind = kind or {"tsv": "csv", "xlsx": "excel"}.get(path.suffix[1:], path.suffix[1:])
    config = contracts.load(DatasetKind, kind).Config.model_validate(
        {"path": str(path), **settings}
    )
    return open_dataset(PluginRef(kind, config))


def message_of(path, **settings):
    with pytest.raises(DatasetError) as caught:
        opened(path, **settings)
    return str(caught.value)


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / f"items.{request.param}"


# -- what every kind of file does --------------------------------------------------------------


def test_a_file_of_another_suffix_is_read_by_its_kind(path):
    renamed = write(path, ROWS).rename(path.with_suffix(".data"))
    kind = {".tsv": "csv"}.get(path.suffix, path.suffix[1:])
    config = contracts.load(DatasetKind, kind).Config.model_validate(
        {"path": str(renamed), "fields": {"prompt": "question"}}
    )
    dataset = open_dataset(PluginRef(kind, config))
    assert [dataset.item(n).prompt for n in range(len(ROWS))] == [row["question"] for row in ROWS]


def test_a_tab_divides_a_tsv_whatever_its_header_holds(tmp_path):
    path = tmp_path / "items.tsv"
    path.write_text("prompt\ta, b; c, d\nx\ty\n", encoding="utf-8")
    assert opened(path).item(0).prompt == "x"


def test_rows_become_items_with_the_usual_columns(path):
    dataset = opened(write(path, ROWS))
    item = dataset.item(0)
    assert len(dataset) == 3
    assert (item.key, item.prompt, item.reference, item.category) == ("a", "1+1?", "2", "sum")
    assert item.messages == (Message("user", "1+1?"),)
    assert item.fields == {"note": "x"}


def test_missing_references_and_categories_are_none(path):
    dataset = opened(write(path, ROWS))
    assert dataset.item(1).reference is None
    assert dataset.item(2).category is None


def test_line_breaks_quotes_and_signs_beyond_ascii_come_through(path):
    dataset = opened(write(path, ROWS))
    assert dataset.item(1).prompt == "2+2?\n"
    assert dataset.item(2).prompt == 'Say "é", 😀'


def test_columns_may_be_mapped(path):
    dataset = opened(write(path, ROWS[:1]), fields={"prompt": "note", "reference": "question"})
    assert (dataset.item(0).prompt, dataset.item(0).reference) == ("x", "1+1?")
    assert dataset.item(0).fields == {"answer": "2"}


def test_a_column_that_is_null_is_left_among_the_others(path):
    dataset = opened(write(path, ROWS), fields={"reference": None, "key": None})
    assert dataset.item(0).reference is None
    assert dataset.item(0).fields == {"answer": "2", "id": "a", "note": "x"}


def test_the_fingerprint_is_that_of_the_content_and_not_of_the_file(path, tmp_path):
    first = opened(write(path, ROWS))
    other = tmp_path / "elsewhere.parquet"
    assert opened(write(other, ROWS)).fingerprint == first.fingerprint


@pytest.mark.parametrize("change", [{"question": "1+2?"}, {"id": "z"}, {"note": "y"}])
def test_another_content_has_another_fingerprint(path, change):
    before = opened(write(path, ROWS)).fingerprint
    assert opened(write(path, [{**ROWS[0], **change}, *ROWS[1:]])).fingerprint != before


def test_another_order_has_another_fingerprint(path):
    before = opened(write(path, ROWS)).fingerprint
    assert opened(write(path, ROWS[::-1])).fingerprint != before


def test_another_mapping_has_another_fingerprint(path):
    plain = opened(write(path, ROWS)).fingerprint
    assert opened(path, fields={"category": None}).fingerprint != plain


def test_keys_made_of_content_do_not_depend_on_the_order_of_rows(path):
    rows = [{"prompt": p, "note": n} for p, n in [("x", "1"), ("y", "2"), ("x", "3"), ("x", "1")]]
    keys = {}
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        dataset = opened(write(path, order))
        items = [dataset.item(index) for index in range(4)]
        assert len({item.key for item in items}) == 4
        keys[str(order)] = {(item.key, item.prompt, item.fields["note"]) for item in items}
    assert len({frozenset(found) for found in keys.values()}) == 1


def test_a_column_more_changes_no_key(path):
    before = opened(write(path, [{"prompt": "x"}])).item(0)
    after = opened(write(path, [{"prompt": "x", "n": "1"}])).item(0)
    assert before.key == after.key
    assert before.fields != after.fields


def test_a_key_given_twice_is_an_error_that_names_both_rows(path):
    message = message_of(write(path, [*ROWS, {**ROWS[0], "note": "again"}]))
    assert "the id 'a' was already given at" in message
    first, second = ("row 1", "row 4") if path.suffix == ".parquet" else (":", ":")
    assert message.startswith(f"items{path.suffix}")
    assert first in message.split("already given")[1]
    assert second in message.split("already given")[0]


def test_a_limited_dataset_has_the_first_items_under_the_same_keys(path):
    dataset = opened(write(path, ROWS), fields={"key": None})
    limited = dataset.limit(2)
    assert len(limited) == 2
    assert [limited.item(i) for i in range(2)] == [dataset.item(i) for i in range(2)]
    assert limited.fingerprint not in {dataset.fingerprint, dataset.limit(1).fingerprint}
    assert dataset.limit(99).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("index", [-1, 3])
def test_an_item_beyond_the_end_is_an_index_error(path, index):
    with pytest.raises(IndexError, match="has 3 items"):
        opened(write(path, ROWS)).item(index)


def test_a_column_that_is_not_there_is_an_error_that_lists_those_that_are(path):
    message = message_of(write(path, ROWS), fields={"prompt": "qestion"})
    assert "no column 'qestion' (fields.prompt)" in message
    assert "available: 'id', 'question', 'answer'" in message
    assert "did you mean 'question'?" in message


def test_a_file_without_a_prompt_says_how_to_name_it(path):
    message = message_of(write(path, [{"text": "x"}]))
    assert "no column for the prompt" in message
    assert "available: 'text'" in message
    assert "fields: {prompt: COLUMN}" in message


def test_two_columns_that_could_be_meant_are_an_error(path):
    message = message_of(write(path, [{"prompt": "Add", "input": "1 2"}]))
    assert "'prompt' and 'input' could each be the prompt" in message
    rows = write(path, [{"prompt": "x", "id": "1", "key": "2"}])
    assert "set dataset: {fields: {key: key}}, or set dataset: {fields: {key: null}}" in message_of(
        rows
    )
    assert opened(rows, fields={"key": "id"}).item(0).key == "1"


def test_a_column_named_for_one_part_is_not_taken_for_another(path):
    dataset = opened(write(path, [{"prompt": "x", "question": "y"}]), fields={"key": "question"})
    assert (dataset.item(0).prompt, dataset.item(0).key) == ("x", "y")


def test_an_empty_prompt_is_an_error_that_names_the_row(path):
    message = message_of(write(path, [{"prompt": "x"}, {"prompt": " "}, {"prompt": "y"}]))
    assert message.startswith(f"items{path.suffix}:")
    assert "'prompt', which is the prompt, is empty" in message


def test_every_wrong_row_of_one_kind_is_named_up_to_ten_in_one_line(path):
    message = message_of(write(path, [{"prompt": " ", "note": "x"}] * 25))
    assert len(message.splitlines()) == 1
    assert message.count(",") >= 9
    assert message.endswith("and 15 more")


def test_a_file_without_rows_is_an_error(path):
    if path.suffix == ".jsonl":
        path.write_text("\n\n", encoding="utf-8")
    else:
        write(path, {"prompt": []})
    assert message_of(path) == f"items{path.suffix} has no items"


def test_a_file_that_is_not_there_is_an_error(path):
    assert message_of(path.with_stem("none")).endswith("there is no such file")


def test_a_folder_is_an_error(path):
    path.mkdir()
    assert message_of(path).endswith("is a folder")


def test_a_text_of_ten_megabytes_is_an_item(path):
    dataset = opened(write(path, [{"prompt": "x" * 10_000_000}, {"prompt": "y"}]))
    assert len(dataset.item(0).prompt) == 10_000_000
    assert dataset.item(1).prompt == "y"


def test_the_content_of_an_item_is_known_without_reading_it_where_it_has_a_key(path):
    dataset = opened(write(path, ROWS))
    items = [dataset.item(index) for index in range(3)]
    assert [dataset.content(index) for index in range(3)] == [item_digest(one) for one in items]
    assert dataset.limit(2).shuffled(1).content(0) in {item_digest(one) for one in items[:2]}
    assert opened(path, fields={"key": None}).content(0) is None


def test_reading_items_keeps_nothing(path):
    dataset = opened(write(path, ROWS))
    held = set(vars(dataset))
    for index in range(3):
        dataset.item(index)
    assert set(vars(dataset)) == held
    assert dataset.item(0) is not dataset.item(0)


# -- conversations -----------------------------------------------------------------------------

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "And doubled?"},
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_column_of_messages_is_a_conversation(suffix, tmp_path):
    item = opened(write(tmp_path / f"x.{suffix}", [{"messages": TALK}])).item(0)
    assert item.messages == tuple(Message(turn["role"], turn["content"]) for turn in TALK)
    assert item.prompt == "And doubled?"


def test_a_conversation_may_be_json_in_a_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('messages\n"[{""role"": ""user"", ""content"": ""x""}]"\n', encoding="utf-8")
    assert opened(path).item(0).messages == (Message("user", "x"),)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (TALK[:1], "no turn by 'user' at its end"),
        ([], "must be a list of {role, content}, not an empty list"),
        ("hello", "must be a list of {role, content}, not a text"),
        ("[hello", "is text, but not JSON"),
        ("3", "must be a list"),
        (None, "not a missing value"),
        ([{"role": "oracle", "content": "x"}], "'role' must be one of system, developer, user"),
        ([{"content": "x"}], "must be a list of {role, content}"),
        (["x"], "must be a list of {role, content}"),
        ([{"role": "user", "content": ""}], "messages[0]: 'content' is empty"),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "has a part of type 'text'; only texts",
        ),
    ],
)
def test_a_conversation_that_can_t_be_answered_is_an_error(tmp_path, messages, message):
    path = tmp_path / "x.jsonl"
    path.write_bytes(msgspec.json.encode({"messages": messages}))
    assert message in message_of(path)


def test_a_prompt_beside_a_conversation_is_an_error_until_one_is_named(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"prompt": "x", "messages": TALK}])
    assert "could each be the prompt" in message_of(path)
    assert opened(path, fields={"prompt": "prompt"}).item(0).prompt == "x"
    assert opened(path, fields={"messages": "messages"}).item(0).prompt == "And doubled?"
    assert opened(path, fields={"messages": None}).item(0).prompt == "x"


# -- the demo ----------------------------------------------------------------------------------


def demo(**settings):
    return open_dataset(PluginRef("demo", contracts.load(DatasetKind, "demo").Config(**settings)))


def test_the_demo_has_as_many_items_as_asked_each_with_its_answer():
    dataset = demo(n=20, seed=1)
    items = [dataset.item(index) for index in range(20)]
    assert len({item.key for item in items}) == 20
    assert all(item.reference and item.category for item in items)


def test_the_demo_is_the_same_for_the_same_seed_only():
    assert demo(n=5, seed=1).fingerprint == demo(n=5, seed=1).fingerprint
    assert demo(n=5, seed=1).fingerprint != demo(n=5, seed=2).fingerprint


def test_every_kind_says_what_it_is_in_a_line():
    said = {one.kind: one.about for one in listed("datasets")}
    assert set(said) == set(plugins.kinds(DATASETS)) >= {"csv", "demo", "json", "jsonl", "parquet"}
    assert all(0 < len(line) <= 100 for line in said.values())


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet", "xlsx"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
        (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "a web page"),
        ("key,prompt\n1,a\n".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_told(tmp_path, suffix, content, said):
    path = tmp_path / f"items.{suffix}"
    path.write_bytes(content)
    assert said in message_of(path)


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("column", CHATS)
def test_a_column_of_conversations_is_said_unless_it_is_named_or_usual(tmp_path, column, is_named):
    turns = [{"role": "user", "content": "Why?"}]
    (tmp_path / "d.jsonl").write_text(json.dumps({"id": "a", column: turns}) + "\n")
    settings = {"fields": {"messages": column}} if is_named else {}
    said = opened(tmp_path / "d.jsonl", **settings).read_as
    is_said = column != CHATS[0] and not is_named
    assert said.endswith(f"read with conversations from {column!r}" if is_said else "")
    assert bool(said) is is_said
