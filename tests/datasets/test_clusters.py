"""Items that belong together, as files name them, and what becomes of it in a dataset."""

import numpy as np
import polars as pl
import pytest

from orchestrator import contracts
from orchestrator.ask import item_digest
from orchestrator.clusters import CLUSTER, Clusters
from orchestrator.dataset import DatasetKind, from_items
from orchestrator.recipe.schema import PluginRef
from orchestrator.records import Item, Message
from orchestrator.runner.planning.prepare import open_dataset

ROWS = [
    {"id": "a", "prompt": "p", "passage": "one"},
    {"id": "b", "prompt": "q", "passage": "two"},
    {"id": "c", "prompt": "r", "passage": None},
    {"id": "d", "prompt": "s", "passage": "one"},
]
FORMATS = ("jsonl", "json", "csv", "parquet")


def opened(folder, suffix="jsonl", rows=ROWS, **fields):
    path, frame = folder / f"items.{suffix}", pl.DataFrame(rows)
    write = {"jsonl": frame.write_ndjson, "json": frame.write_json, "csv": frame.write_csv}
    write.get(suffix, frame.write_parquet)(path)  # type: ignore[operator]
    settings = {"path": str(path), "fields": fields}
    config = contracts.load(DatasetKind, suffix).Config.model_validate(settings)
    return open_dataset(PluginRef(suffix, config))


def made(sizes):
    return [
        Item(key=f"{c}-{n}", cluster=f"c{c}", messages=(Message("user", f"{c} {n}"),))
        for c, size in enumerate(sizes)
        for n in range(size)
    ]


def codes_of(dataset):
    assert dataset.clusters is not None
    return dataset.clusters.codes


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_kind_of_file_names_clusters(tmp_path, suffix):
    dataset = opened(tmp_path, suffix, cluster="passage")
    assert codes_of(dataset).tolist() == [0, 1, 2, 0]
    assert [dataset.item(n).cluster for n in range(4)] == ["one", "two", None, "one"]


def test_without_a_name_every_item_stands_alone(tmp_path):
    dataset = opened(tmp_path)
    assert dataset.clusters is None


def test_a_column_called_cluster_is_found_unless_it_is_refused(tmp_path):
    rows = [{"prompt": str(n), "cluster": n // 2} for n in range(4)]
    assert codes_of(opened(tmp_path, rows=rows)).tolist() == [0, 0, 1, 1]
    assert opened(tmp_path, rows=rows, cluster=None).clusters is None


def test_naming_clusters_changes_no_item_and_so_asks_nothing_anew(tmp_path):
    plain, clustered = opened(tmp_path), opened(tmp_path, cluster="passage")
    assert [item_digest(plain.item(n)) for n in range(4)] == [
        item_digest(clustered.item(n)) for n in range(4)
    ]
    assert plain.fingerprint == clustered.fingerprint
    assert clustered.item(0).fields == {"passage": "one"}


def test_a_column_may_be_category_and_cluster(tmp_path):
    rows = [{"prompt": str(n), "category": "xy"[n % 2]} for n in range(4)]
    dataset = opened(tmp_path, rows=rows, cluster="category")
    assert (dataset.item(1).category, dataset.item(1).cluster) == ("y", "y")


def test_a_passage_is_named_by_its_beginning(tmp_path):
    rows = [{"prompt": str(n), "passage": "x" * 500 + str(n // 2)} for n in range(4)]
    dataset = opened(tmp_path, rows=rows, cluster="passage")
    assert codes_of(dataset).tolist() == [0, 0, 1, 1]
    assert len(dataset.item(0).cluster) < 120


def test_a_part_of_a_dataset_keeps_its_clusters(tmp_path):
    dataset = opened(tmp_path, cluster="passage")
    assert dataset.limit(2).clusters is None
    assert codes_of(dataset.limit(4)).tolist() == [0, 1, 2, 0]
    shuffled = dataset.shuffled(3)
    names = [shuffled.item(n).cluster or n for n in range(4)]
    codes = codes_of(shuffled)
    assert [names[a] == names[b] for a in range(4) for b in range(4)] == [
        codes[a] == codes[b] for a in range(4) for b in range(4)
    ]


def test_whole_clusters_are_shuffled_so_that_their_items_stand_together():
    dataset = from_items("d", made([3, 1, 5, 2, 4])).shuffled(7, by_cluster=True)
    assert np.all(np.diff(codes_of(dataset)) >= 0)
    again = from_items("d", made([3, 1, 5, 2, 4])[::-1]).shuffled(7, by_cluster=True)
    assert [again.item(n).key for n in range(15)] == [dataset.item(n).key for n in range(15)]


def test_large_clusters_come_no_earlier_than_small_ones():
    items = made([40, *[1] * 40])
    places = []
    for seed in range(200):
        codes = from_items("d", items).shuffled(seed, by_cluster=True)
        places.append(int(codes_of(codes)[[codes.item(n).cluster for n in range(80)].index("c0")]))
    # Uniform on 0 to 40: mean 20, standard error 0.84.
    assert 17.0 < np.mean(places) < 23.0


def test_rows_get_the_cluster_of_their_item():
    named = Clusters(pl.DataFrame({"item": ["a", "b", "c"], CLUSTER: ["x", "x", None]}))
    rows = pl.DataFrame({"item": ["c", "a", "b", "a", "d"]})
    codes = named.of(rows.select("item"))[CLUSTER].to_list()
    assert (codes[1] == codes[2] == codes[3], len(set(codes))) == (True, 3)
    assert named.of(rows)["item"].to_list() == ["c", "a", "b", "a", "d"]


def test_no_cluster_has_the_name_of_an_item_that_stands_alone():
    items = pl.DataFrame({"item": ["a", "b", "x"], CLUSTER: ["x", "x", None]})
    assert Clusters(items).of(items.select("item"))[CLUSTER].n_unique() == 2
    alone = Clusters(items.with_columns(cluster=pl.col("item")))
    assert alone.n == alone.n_prompts
