"""The benchmarks of runs beyond one machine, in a small form, and the sections that they write."""

import re

import pytest

from benchmarks import _page, _runs
from benchmarks.scale import (
    _nodes,
    hand_over,
    large,
    model,
    node_death,
    remote,
    simulation,
    store_growth,
)
from benchmarks.scale.__main__ import TARGETS
from benchmarks.targets import rows
from tests.cluster.rig import Rig


@pytest.fixture
def reply(tmp_path):
    if not _runs.RECORDED.is_dir():
        pytest.skip("../shared is absent")
    return _runs.bodies(tmp_path)["judge"]


def test_a_cost_above_the_target_is_said_to_miss_it():
    assert "met" in remote.section([0.2, 0.3], [0.2, 0.3], "command", "machine")
    text = remote.section([0.2, 0.2], [0.2, 0.3], "command", "machine")
    assert "**1.25** times" in text
    assert "**missed**" in text


def test_an_answered_request_that_is_asked_again_is_counted(tmp_path):
    """Those under way when the node died are not: nobody has their answers."""
    log = tmp_path / "log"
    log.write_text("\n".join([
        "1.0 asked a", "1.5 answered a", "1.0 asked b", "9.99 answered b", "9.0 asked c",
        "20.0 asked a", "20.0 asked b", "20.0 asked c",
    ]))  # fmt: skip
    assert node_death.asked_again(log, died_at=10.0) == (3, 1)


def test_targets_of_zero_are_missed_without_a_share():
    lines = rows({"node_death_units": 2.0, "hand_over_again": 0.0}, TARGETS)
    assert any("| 2 | **missed** |" in line for line in lines)
    assert any("asked twice" in line and "| met |" in line for line in lines)


def test_the_filter_and_the_pages_follow_the_number_of_keys():
    assert store_growth.wrong(0) == 0.0
    assert store_growth.wrong(store_growth.FILTER_BITS) == pytest.approx(0.632, abs=0.001)
    assert store_growth.pages(0) < 0.001
    # A batch touches one page in a small index, and a bounded number of each key's in a large one.
    assert store_growth.pages(1e6) < store_growth.pages(1e8) < 0.3


CONSTANTS = model.Constants(
    start_s=2.0, request_s=2.5e-4, wrong_s=3e-5, page_s=1e-5, page_bytes=16_000,
    request_bytes=470, sending_mb=200, sending_bytes=10, results_mb=10, results_bytes=150,
    resume_s=0.7, resumed_s=1.5e-6,
)  # fmt: skip


def test_one_client_is_bounded_by_its_core():
    found = model.simulate(model.Setting(100_000), CONSTANTS)
    assert found.client_cpu_s == pytest.approx(2.0 + 25.0, rel=0.02)
    assert found.sending_s == pytest.approx(25.0, rel=0.02)
    assert found.n_again == 0.0


def test_what_is_in_flight_bounds_a_rate_by_littles_law():
    setting = model.Setting(100_000, n_servers=2, latency_s=0.5)
    found = model.simulate(setting, CONSTANTS)
    assert found.sending_s == pytest.approx(100_000 / (2 * 64 / 0.5))


def test_what_servers_answer_bounds_a_rate():
    setting = model.Setting(1_000_000, n_servers=10, server_rate=100.0)
    found = model.simulate(setting, CONSTANTS)
    assert found.sending_s == pytest.approx(1_000.0, rel=0.01)


def test_a_dead_server_is_missing_until_it_is_back():
    setting = model.Setting(100_000, n_servers=2, server_rate=100.0)
    deaths = (model.Death(100.0, 60.0),)
    other = model.Setting(100_000, n_servers=2, server_rate=100.0, deaths=deaths)
    plain, found = (model.simulate(one, CONSTANTS) for one in (setting, other))
    assert found.sending_s - plain.sending_s == pytest.approx(30.0, abs=0.1)
    assert 0 < found.n_again <= 64


def test_each_hand_over_stops_a_client_for_a_while():
    other = model.Setting(1_000_000, hand_over_every_s=100.0, hand_over_s=3.0)
    plain, found = (model.simulate(one, CONSTANTS) for one in (model.Setting(1_000_000), other))
    assert found.n_hand_overs == 2
    assert found.sending_s - plain.sending_s == pytest.approx(6.0, abs=0.1)


def test_what_breaks_first_stands_first():
    found = [n for n, _ in model.breaks(CONSTANTS)]
    assert found == sorted(found)
    assert found[0] < 1e8
    assert max(found) < float("inf")


def test_constants_come_from_the_small_runs_and_from_the_page():
    page = _page.PAGE.read_text(encoding="utf-8")
    small, greater = (
        large.Measured(n, 2.0 + 3e-4 * n, 1.0, 1.0, (0.0,), 0.0, 0, 500.0) for n in (1_000, 9_000)
    )
    found = simulation.constants_of(page, small, greater)
    assert found.start_s == pytest.approx(2.0)
    assert found.request_s == pytest.approx(3e-4)
    assert found.request_bytes == pytest.approx(500.0)
    text = simulation.text_of(page, found, model.Setting(1_000_000), "command", "machine")
    assert "What breaks first" in text
    with pytest.raises(SystemExit, match="make bench-cluster"):
        simulation.constants_of("", small, greater)


@pytest.mark.slow
@pytest.mark.long
def test_outcomes_are_stored_beside_many_keys(tmp_path):
    found = store_growth.measure(tmp_path, 50_000, 2_000)
    assert found.n == 50_000
    assert found.written_bytes > 100


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_the_client_is_measured_against_a_server_on_another_node(reply):
    here, there = remote.measure(reply, (20, 200), 1)
    assert (len(here), len(there)) == (1, 1)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("reply")
def test_no_judgment_is_lost_or_asked_again_when_a_node_is_killed():
    with _nodes.nodes(2) as network:
        found = node_death.measure(network, 400, 2, node_death.DEATHS[0])
    assert (found.n_again, found.n_lost) == (0, 0)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("reply")
def test_a_large_run_is_looked_at_along_the_way(tmp_path):
    found = large.measure(2_000, 4, 0.02, tmp_path)
    assert found.n_requests == 2_000
    assert len(found.rss_mb) == 4
    assert 4 <= found.most_open <= 256
    text = large.section([found], 4, 0.02, "command", "machine")
    assert re.search(r"\| 2,000 \| \d+ \| \d+\.\d{3} \|", text)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_hand_over_is_measured(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    place = tmp_path / "rig"
    place.mkdir()
    with Rig(place) as rig:
        found = hand_over.measure(rig, folder, 20)
    assert found.n_again == 0
    assert found.lost_s > found.gap_s
