"""The frame of items: all columns of the dataset, written once, beside what methods made."""

import asyncio
import json

import msgspec
import polars as pl

from orchestrator.dataset import from_items
from orchestrator.records import Item, Message
from orchestrator.runner.results.frames import export_items, items_path
from orchestrator.runner.results.stored import keep_items

ITEMS = [
    Item(
        key="a",
        messages=(Message("user", "q"),),
        followups=("r",),
        reference="x",
        references=("x", None),
        category="c",
        fields={"score": 3, "note": "é"},
    ),
    Item(key="b", messages=(Message("user", "s"),)),
]


def exported(dataset, directory):
    """Write the frame of items; return its path."""
    for _ in export_items(dataset, directory):
        pass
    return items_path(directory)


def test_every_part_of_an_item_is_in_its_row(directory):
    frame = pl.read_parquet(exported(from_items("x", ITEMS), directory))
    first, second = frame.rows(named=True)
    assert (first["item"], first["category"], first["prompt"]) == ("a", "c", "q")
    assert json.loads(first["followups"]) == ["r"]
    assert json.loads(first["references"]) == ["x", None]
    assert json.loads(first["fields"]) == {"score": 3, "note": "é"}
    assert (second["reference"], second["followups"], second["fields"]) == (None, None, "{}")


def test_a_conversation_is_kept_where_it_is_more_than_one_question(directory):
    talk = (Message("system", "s"), Message("user", "q"))
    items = [Item(key="a", messages=talk), Item(key="b", messages=(Message("user", "q"),))]
    frame = pl.read_parquet(exported(from_items("x", items), directory))
    assert [json.loads(one) if one else None for one in frame["messages"]] == [
        [["system", "s"], ["user", "q"]],
        None,
    ]


def test_the_same_items_are_written_once(directory):
    dataset = from_items("x", ITEMS)
    path = exported(dataset, directory)
    before = path.stat().st_mtime_ns
    exported(from_items("x", ITEMS), directory)
    assert path.stat().st_mtime_ns == before


def test_other_items_replace_them(directory):
    exported(from_items("x", ITEMS), directory)
    path = exported(from_items("x", ITEMS).limit(1), directory)
    assert pl.read_parquet(path)["item"].to_list() == ["a"]


def test_clusters_are_beside_the_items_and_others_replace_them(directory):
    together = [msgspec.structs.replace(item, cluster="c") for item in ITEMS]
    path = exported(from_items("x", ITEMS), directory)
    assert pl.read_parquet(path)["cluster"].to_list() == [None, None]
    exported(from_items("x", together), directory)
    assert pl.read_parquet(path)["cluster"].to_list() == ["c", "c"]


def test_places_in_the_dataset_stay_with_shuffled_items_and_follow_the_source(directory):
    items = [Item(key=f"k{n}", messages=(Message("user", f"q{n}"),)) for n in range(9)]
    for given in (items, items[::-1]):
        dataset = from_items("x", given).limit(8).shuffled(1).limit(6)
        frame = pl.read_parquet(exported(dataset, directory))
        assert len(frame) == 6
        assert [given[int(place)].key for place in frame["place"]] == frame["item"].to_list()


async def test_the_frame_waits_for_the_first_request_only(directory):
    sent: list[str] = []
    path = directory.results / "items.parquet"
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_items(lambda: len(sent), from_items("x", ITEMS), directory))
        await asyncio.sleep(0.1)
        assert not path.exists()
        sent.append("a request")
    assert pl.read_parquet(path)["item"].to_list() == ["a", "b"]


async def test_what_sending_left_unwritten_is_written_afterwards(directory):
    dataset = from_items("x", ITEMS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keep_items(lambda: 1, dataset, directory))
        await asyncio.sleep(0)
        task.cancel()
    assert [file.suffix for file in directory.results.glob("*.parquet")] == []
    assert len(pl.read_parquet(exported(dataset, directory))) == len(ITEMS)
