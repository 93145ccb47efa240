"""Columns that a method derives of all rows are there also where only some columns are read."""

import polars as pl

from orchestrator.contracts.context import Context, Source
from orchestrator.frames import FrameFiles
from orchestrator.methods import glass_box
from orchestrator.methods.glass_box import Config
from orchestrator.methods.glass_box import Kind as GlassBox
from tests.summaries.test_glass_box import ROWS


def context(frames, config):
    source = Source("glass_box", "glass_box", GlassBox(config), "glass_box")
    return Context("glass_box", frames, pl.DataFrame(), [source], 0.95, 200, 0), source


def test_only_what_is_combined_is_read_beside_what_is_asked_for(tmp_path):
    ROWS.write_parquet(tmp_path / "glass_box.parquet")
    of_files, source = context(FrameFiles(tmp_path), Config())
    rows = of_files.rows_of(source, ("item", "combo"))
    needed = {"method", "item", "cluster", "prompt_key", "model", "scorer", *Config().combo}
    assert set(rows.columns) == needed | {"combo", "combo_of_model"}
    whole, _ = context({"glass_box": ROWS}, Config())
    assert rows["combo"].to_list() == whole.rows_of(source)["combo"].to_list()
    assert rows["combo"].null_count() < len(rows)


def test_rows_of_another_method_are_left_out(tmp_path):
    other = ROWS.with_columns(method=pl.lit("another"))
    pl.concat([other, ROWS]).write_parquet(tmp_path / "glass_box.parquet")
    of_files, source = context(FrameFiles(tmp_path), Config())
    assert len(of_files.rows_of(source, ("item",))) == len(ROWS)
    assert glass_box.Kind(Config(features=("vocabulary",), combo=())).derives_from == ()
