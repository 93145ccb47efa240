"""Runs in folders whose names are patterns, markup or parts of URLs elsewhere."""

from urllib.parse import quote

from tests.view.runs import made

NAME = "v[2]*? {x} é #&<b>"  # no percent sign: the test client decodes it twice


def test_a_run_with_an_odd_name_is_the_one_that_is_shown(tmp_path, viewer):
    runs = tmp_path / "a[1]*? {x}"
    made(runs / NAME, n=7)
    for decoy in ("v2", "v2-- {x} é A"):
        made(runs / decoy, n=3)
        made(tmp_path / "a1-- {x}" / decoy, n=3)
    page = viewer(runs).enter()
    names = {run["name"] for run in page.json("/api/runs")["runs"]}
    assert names == {NAME, "v2", "v2-- {x} é A"}
    place = f"/api/runs/{quote(NAME, safe='')}"
    assert page.json(f"{place}/items")["total"] == 7
    assert page.json(place)["version"]
    assert page.json("/api/runs/v2/items")["total"] == 3
