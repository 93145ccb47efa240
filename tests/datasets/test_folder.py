"""Folders in the layout of a Hugging Face dataset repository."""

import gzip
import json

import polars as pl
import pytest

from orchestrator.datasets import folder as folder_kind
from orchestrator.errors import DatasetError


def opened(folder, **settings):
    config = folder_kind.Config(path=str(folder), **settings)
    return folder_kind.Kind(config).open(folder)


def prompts(folder, **settings):
    dataset = opened(folder, **settings)
    return [dataset.item(index).prompt for index in range(len(dataset))]


@pytest.fixture
def write(tmp_path):
    """Write a data file with these prompts; the suffix decides its format."""

    def made(path, *texts):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame({"prompt": list(texts)})
        match file.suffix:
            case ".parquet":
                frame.write_parquet(file)
            case ".csv":
                frame.write_csv(file)
            case _:
                file.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
        return tmp_path

    return made


def card(folder, text):
    (folder / "README.md").write_text(f"---\n{text}\n---\n# A dataset\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/test-00000-of-00001.parquet", "test"),
        ("data/test_sft-00000-of-00001.parquet", "test_sft"),
        ("data/train-00000-of-00001-abcdef0123.parquet", "train"),
        ("test.jsonl", "test"),
        ("gsm8k_Test.csv", "test"),
        ("my-eval.jsonl", "test"),
        ("dev.jsonl", "validation"),
        ("data/valid/part.jsonl", "validation"),
        ("TRAINING/0000.parquet", "train"),
        # No word of these names is a split: `latest` is none, `contest` neither.
        ("latest.jsonl", "train"),
        ("contest.csv", "train"),
    ],
)
def test_splits_are_told_by_names(write, path, split):
    folder = write(path, "x", "y")
    other = "validation" if split != "validation" else "train"
    assert prompts(folder) == prompts(folder, split=split) == ["x", "y"]
    with pytest.raises(DatasetError, match=f"no split '{other}'; available: {split}$"):
        opened(folder, split=other)


def test_shards_are_read_in_order(write):
    for number in (2, 0, 1):
        write(f"data/test-0000{number}-of-00003.parquet", f"p{number}")
    folder = write("data/train-00000-of-00001.parquet", "other")
    assert prompts(folder) == ["p0", "p1", "p2"]


def test_a_split_is_named_where_there_are_several_and_no_test(write):
    write("train.jsonl", "a")
    folder = write("dev.jsonl", "b")
    with pytest.raises(
        DatasetError, match=r"set dataset: {split: (train|validation)}; available: .*, "
    ):
        opened(folder)
    assert prompts(folder, split="validation") == ["b"]


def test_files_that_hold_no_rows_are_passed_over(write):
    for name in ("dataset_info.json", ".cache/x.jsonl", "__pycache__/y.jsonl"):
        write(name, "no row")
    folder = write("test.jsonl", "a")
    (folder / "LICENSE.txt").write_text("x")
    assert prompts(folder) == ["a"]


def test_of_several_kinds_of_files_the_most_common_counts(write):
    write("test-1.parquet", "a")
    write("test-2.parquet", "b")
    folder = write("test.csv", "a copy")
    assert prompts(folder) == ["a", "b"]


CONFIGS = """
configs:
- config_name: main
  data_files:
  - split: train
    path: main/tr*.jsonl
  - split: test
    path: [main/b.jsonl, main/a.jsonl]
- config_name: socratic
  default: true
  data_dir: soc
- config_name: plain
  data_files: main/a.jsonl
"""


def test_the_readme_names_configs_and_splits(write):
    write("main/train.jsonl", "t")
    write("main/a.jsonl", "a")
    write("main/b.jsonl", "b")
    write("soc/test.jsonl", "s")
    folder = write("soc/train.jsonl", "s2")
    card(folder, CONFIGS)
    assert prompts(folder) == ["s"]
    # In the order of the README.
    assert prompts(folder, config="main") == ["b", "a"]
    assert prompts(folder, config="main", split="train") == ["t"]
    assert prompts(folder, config="plain") == ["a"]
    with pytest.raises(DatasetError, match="no config 'x'; available: main, socratic, plain"):
        opened(folder, config="x")


def test_a_config_is_asked_for_where_none_is_marked(write):
    folder = write("a/test.jsonl", "a")
    card(folder, "configs: [{config_name: one, data_dir: a}, {config_name: two, data_dir: a}]")
    with pytest.raises(DatasetError, match=r"set dataset: {config: one}; available: one, two"):
        opened(folder)


def test_a_split_with_another_number_of_rows_than_the_readme_is_refused(write):
    folder = write("data/test-00000-of-00002.parquet", "a")
    info = "dataset_info: {splits: [{name: test, num_examples: 2}]}"
    card(folder, info)
    with pytest.raises(DatasetError, match=r"has 1 rows, but README\.md gives num_examples: 2"):
        opened(folder)
    write("data/test-00001-of-00002.parquet", "b")
    assert prompts(folder) == ["a", "b"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_split_without_one_of_its_shards_is_refused(write, tmp_path, n, suffix):
    for lost in range(n):
        for number in set(range(n)) - {lost}:
            write(f"{n}{lost}/data/test-0000{number}-of-0000{n}.{suffix}", f"p{number}")
        if n > 1:
            with pytest.raises(DatasetError, match=f"is there, but no shard 0000{lost}; complete"):
                opened(tmp_path / f"{n}{lost}")


def test_compressed_shards_are_read(tmp_path):
    for number in range(2):
        path = tmp_path / f"en/c4-train.0000{number}-of-00002.json.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b'[{"prompt": "p%d"}]' % number))
    assert prompts(tmp_path) == ["p0", "p1"]


def test_shards_need_not_have_the_same_columns(tmp_path):
    for number, row in enumerate([{"prompt": "a", "n": 1}, {"prompt": "b", "n": 1.5, "x": "y"}]):
        pl.DataFrame([row]).write_parquet(tmp_path / f"test-{number}.parquet")
    fields = [opened(tmp_path).item(place).fields for place in range(2)]
    assert fields == [{"n": 1.0, "x": None}, {"n": 1.5, "x": "y"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("configs: [{config_name: x, data_files: ../secret.jsonl}]", "outside of the folder"),
        ("configs: [{config_name: x, data_files: /etc/passwd}]", "outside of the folder"),
        ('configs: [{config_name: x, data_files: "https://x/y.jsonl"}]', "outside of the folder"),
        ("configs: [{config_name: x, data_dir: ../..}]", "outside of the folder"),
        ("configs: [{config_name: x, data_files: gone*.jsonl}]", "no file matches"),
        ("configs: [{data_files: test.jsonl}]", "config_name"),
        ("configs: [{config_name: x, data_files: [{split: test}]}]", "needs a split and a path"),
        ("configs: [{config_name: x, data_files: 7}]", "names no files"),
        ("configs: {", "not YAML"),
    ],
)
def test_a_malformed_readme_is_named(write, text, said):
    folder = write("test.jsonl", "x")
    card(folder, text)
    with pytest.raises(DatasetError, match=said):
        opened(folder)


def test_a_readme_without_front_matter_is_just_text(write):
    folder = write("test.jsonl", "x")
    (folder / "README.md").write_bytes(b"# Hello\n---\nconfigs: {\n\xff")
    assert prompts(folder) == ["x"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("n_right", [0, 1])
def test_a_pointer_of_git_lfs_is_no_data(write, tmp_path, suffix, n_right):
    for number in range(n_right):
        write(f"test-{number}.{suffix}", "x")
    pointer = tmp_path / f"test-9.{suffix}"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    said = rf"test-9\.{suffix}: only a pointer; fetch the file with: git lfs pull"
    with pytest.raises(DatasetError, match=said):
        opened(tmp_path)


def test_folders_without_data_say_what_is_expected(tmp_path):
    with pytest.raises(DatasetError, match=r"no data files in this folder \(\.parquet"):
        opened(tmp_path)
    (tmp_path / "data-00000-of-00001.arrow").touch()
    with pytest.raises(DatasetError, match="written by `save_to_disk`"):
        opened(tmp_path)


def test_links_of_the_hubs_cache_are_followed(write, tmp_path):
    write("blobs/abc", "x")
    snapshot = tmp_path / "snapshots" / "rev" / "data"
    snapshot.mkdir(parents=True)
    (snapshot / "test-00000-of-00001.jsonl").symlink_to(tmp_path / "blobs" / "abc")
    assert prompts(snapshot.parent) == ["x"]
