"""Failed units are counted by the frames and by the store alike, whatever rows a unit has."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ask import digest
from orchestrator.frames import FrameFiles
from orchestrator.records import DONE, FAILED
from orchestrator.runner.results import frames, stored
from orchestrator.store import FRAMES, Store

SCHEMA = {"method": "str", "item": "str", "model": "str", "turn": "i64", "status": "str"}
# A unit has a row a turn, and any of them may have failed; a frame may have no status.
UNITS = st.lists(st.lists(st.sampled_from(("ok", "failed")), min_size=1, max_size=3), max_size=12)


@settings(max_examples=60, deadline=None)
@given(units=UNITS, n_models=st.integers(1, 3), has_status=st.booleans())
def test_both_count_the_same(tmp_path_factory, units, n_models, has_status):
    folder = tmp_path_factory.mktemp("run")
    schema = {name: kind for name, kind in SCHEMA.items() if has_status or name != "status"}
    values = {FRAMES: msgspec.json.encode({"scores": schema}).decode()}
    with Store.open(folder / "store.sqlite") as store:
        plan = store.open_plan(digest("plan"), len(units), values)
        store.adopt(plan, ())
        for position, turns in enumerate(units):
            item, model = (str(part) for part in divmod(position, n_models))
            rows = [("m", item, model, turn, status) for turn, status in enumerate(turns)]
            status = DONE if set(turns) == {"ok"} else FAILED
            short = [row[: len(schema)] for row in rows]
            store.put_unit(digest(position), plan, position, status, "scores", short)
        store.flush()
        frames.export(store, folder)
        expected = sum("failed" in turns for turns in units) if has_status else 0
        assert stored.failed_units(store) == expected
        assert frames.failed_units(FrameFiles(folder)) == expected
