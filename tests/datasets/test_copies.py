"""Items that ask the same are one prompt, in a dataset and in the frames of its run."""

import itertools
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.clusters import CLUSTER, PROMPT, Clusters
from orchestrator.dataset import from_items
from orchestrator.frames import make_frame
from orchestrator.recipe.load import load
from orchestrator.records import Item, Message
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.results.frames import ITEM_COLUMNS, _items
from orchestrator.statistics.multiple import connected
from tests.datasets.test_open import opened
from tests.e2e.runs import write_recipe

NOWHERE = "http://127.0.0.1:9"
_DRAWN = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("xyz") | st.none()), min_size=1)


def made(drawn):
    return [
        Item(key=f"k{n}", cluster=cluster, messages=(Message("user", f"question {text}"),))
        for n, (text, cluster) in enumerate(drawn)
    ]


def partition(codes):
    """Groups of places with the same code, whatever the codes are."""
    groups: dict[object, list[int]] = {}
    for place, code in enumerate(codes):
        groups.setdefault(code, []).append(place)
    return sorted(groups.values())


def components(items):
    """The same of items that are joined by their text or their cluster: the slow way."""
    groups = [{n} for n in range(len(items))]
    for one, two in itertools.combinations(range(len(items)), 2):
        a, b = items[one], items[two]
        if a.messages == b.messages or (a.cluster is not None and a.cluster == b.cluster):
            first, second = (next(g for g in groups if n in g) for n in (one, two))
            if first is not second:
                first |= second
                groups.remove(second)
    return sorted(sorted(group) for group in groups)


@given(_DRAWN.filter(lambda drawn: len(drawn) > 1), st.integers(0, 3))
def test_frames_and_dataset_know_the_same_clusters_and_copies(drawn, seed):
    dataset = from_items("d", made(drawn)).limit(len(drawn) - seed // 2)
    dataset = dataset.with_copies(lambda _: None).shuffled(seed, by_cluster=bool(seed % 2))
    items = [dataset.item(n) for n in range(len(dataset))]
    alone = np.arange(len(items))
    codes = alone if dataset.clusters is None else dataset.clusters.codes
    copies = alone if dataset.copies is None else dataset.copies.codes
    assert partition(codes) == components(items)
    assert partition(copies) == partition(item.messages for item in items)
    clusters = Clusters(make_frame(ITEM_COLUMNS, list(_items(dataset))))
    rows = clusters.of(pl.DataFrame({"item": [item.key for item in items]}))
    assert partition(clusters.of(rows.select("item"))[CLUSTER]) == partition(codes)
    assert partition(rows[PROMPT]) == partition(copies)
    assert (clusters.n, clusters.n_prompts) == (len({*codes}), len({*copies}))
    assert (clusters.n < clusters.n_prompts) == (len({*codes}) < len({*copies}))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1), st.randoms())
def test_items_without_keys_are_numbered_among_those_that_ask_the_same(
    tmp_path_factory, drawn, order
):
    """By what else they hold, so that the order of the rows decides no key."""

    def keys_of(rows):
        path = tmp_path_factory.mktemp("rows") / "items.jsonl"
        path.write_text("".join(json.dumps({"prompt": p, "note": n}) + "\n" for p, n in rows))
        dataset = opened(path)
        found: dict[str, list[tuple[str, str]]] = {}
        for index, (prompt, note) in enumerate(rows):
            found.setdefault(prompt, []).append((dataset.item(index).key, note))
        assert dataset.keys() == {key for group in found.values() for key, _ in group}
        return found

    found = keys_of(drawn)
    for group in found.values():
        first = min(key for key, _ in group)
        keys = [first, *(f"{first}-{n}" for n in range(2, len(group) + 1))]
        assert sorted(key for key, _ in group) == sorted(keys)
        for note in "xyz":
            alike = [keys.index(key) for key, one in group if one == note]
            assert alike == [*range(alike[0], alike[0] + len(alike))] if alike else True
    moved = keys_of(order.sample(drawn, len(drawn)))
    assert {one: sorted(group) for one, group in moved.items()} == {
        one: sorted(group) for one, group in found.items()
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_components_are_named_by_their_first_member(pairs):
    found = connected(*np.array(pairs, np.int64).T)
    groups = partition(found)
    assert [int(found[group[0]]) for group in groups] == [group[0] for group in groups]
    for codes in zip(*pairs, strict=True):
        for group in partition(codes):
            assert len({int(found[place]) for place in group}) == 1


def copies_of(folder, rows, **changes):
    lines = [json.dumps({"reference": "x", **row}) + "\n" for row in rows]
    (folder / "items.jsonl").write_text("".join(lines))
    dataset = {"path": "items.jsonl"}
    recipe = write_recipe(folder / "r.json", NOWHERE, dataset=dataset, **changes)
    copies = prepare(load(recipe)).dataset.copies
    return None if copies is None else copies.codes.tolist()


def test_columns_that_no_request_shows_tell_no_items_apart(tmp_path):
    rows = [{"id": n, "prompt": f"say {n % 2}", "author": str(n)} for n in range(4)]
    assert copies_of(tmp_path, rows) == [0, 1, 0, 1]
    assert copies_of(tmp_path, [{**row, "reference": str(row["id"])} for row in rows]) is None


def test_a_column_that_a_setting_names_tells_items_apart(tmp_path):
    rows = [{"id": n, "prompt": f"say {n % 2}", "kind": "ab"[n // 2]} for n in range(4)]
    judged = {
        "kind": "critique_llm",
        "prompts": "compact",
        "judges": ["judge"],
        "candidates": ["weak"],
    }
    assert copies_of(tmp_path, rows, methods=[judged]) == [0, 1, 0, 1]
    named = {**judged, "type_field": "kind"}
    assert copies_of(tmp_path, rows, methods=[named]) is None


@pytest.mark.parametrize("answers", ["field", "file"])
def test_items_with_other_given_answers_are_no_copies(tmp_path, answers):
    rows = [{"id": n, "prompt": "say", "said": ["x", "y", "x"][n]} for n in range(3)]
    (tmp_path / "a.json").write_text(
        json.dumps([{"id": r["id"], "output": r["said"]} for r in rows])
    )
    given_answers = {"field": "said"} if answers == "field" else {"path": str(tmp_path / "a.json")}
    models = {
        "one": {"answers": given_answers},
        "two": {"base_url": NOWHERE, "backend": "fake", "model": "fake:0.3"},
        "judge": {"base_url": NOWHERE, "backend": "fake", "model": "fake:1.0"},
    }
    assert copies_of(tmp_path, rows, models=models) == [0, 1, 0]
