"""The real command with several clients: the same frames, and nothing recorded is asked again."""

import json
import signal
import subprocess
import time

import psutil
import pytest

import orchestrator
from orchestrator.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, EXIT_USAGE, RunDirectoryError
from tests.e2e.runs import ROOT, command, fake_server, frames, run, stats, write_recipe
from tests.launched import recipe_data

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SLOW = {"rules": [{"latency_s": 0.03}]}


def files(run_dir):
    return {path.name: path.read_bytes() for path in (run_dir / "results").glob("*.parquet")}


def begun(recipe, folder, *more):
    """A run of clients that has begun to record."""
    process = subprocess.Popen(
        command(recipe, folder, "--clients", "2", *more), cwd=ROOT, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 120
    while n_done(folder) < 20:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


def n_done(folder):
    try:
        return json.loads((folder / "status.json").read_bytes())["values"]["units_done"]
    except (OSError, ValueError):
        return 0


def clients_of(process):
    """The processes of its clients."""
    found = psutil.Process(process.pid).children(recursive=True)
    return [one for one in found if "orchestrator.runner.interface.client" in one.cmdline()]


def test_clients_give_the_frames_of_one_and_ask_nothing_twice(tmp_path):
    with fake_server() as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=30)
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
        total = stats(url)["total"]
        shared = run(recipe, tmp_path / "run", "--clients", "3")
        assert shared.returncode == EXIT_COMPLETE, shared.stderr
        assert stats(url)["total"] == 2 * total
        assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
        assert stats(url)["total"] == 2 * total
    assert files(tmp_path / "run") == files(tmp_path / "alone")
    assert not (tmp_path / "run" / "clients").exists()
    status = json.loads((tmp_path / "run" / "status.json").read_bytes())["values"]
    assert status["units_total"] == status["units_stored"] + status["units_done"] == 180


def test_the_items_of_a_killed_client_go_to_others(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=60, limits={"max_in_flight": 4})
        process = begun(recipe, tmp_path / "run", "--display", "plain")
        clients_of(process)[0].kill()
        said = process.communicate(timeout=200)[1]
        assert process.returncode == EXIT_COMPLETE, said
        assert "was ended by signal 9: its items go to others" in " ".join(said.split())
        served = stats(url)
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
        total = stats(url)["total"] - served["total"]
    # What was in flight is sent again, at most.
    assert served["total"] - total <= 4 * 4
    assert files(tmp_path / "run") == files(tmp_path / "alone")


def test_a_run_of_clients_that_is_killed_goes_on(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=60, limits={"max_in_flight": 4})
        process = begun(recipe, tmp_path / "run")
        started = clients_of(process)
        process.kill()
        process.communicate(timeout=30)
        # They end without their parent, and then nobody holds the run.
        _, alive = psutil.wait_procs(started, 60)
        assert alive == []
        assert (tmp_path / "run" / "clients").exists()
        notes = " ".join(orchestrator.load(tmp_path / "run").notes)
        assert "what they recorded is not shown yet" in notes
        with pytest.raises(RunDirectoryError, match="was cut off while clients shared it"):
            orchestrator.merge(tmp_path / "run", into=tmp_path / "other")
        # One client takes over what they recorded.
        result = run(recipe, tmp_path / "run")
        assert result.returncode == EXIT_COMPLETE, result.stderr
        served = stats(url)
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
        total = stats(url)["total"] - served["total"]
    assert served["total"] - total <= 2 * 4 * 4
    assert files(tmp_path / "run") == files(tmp_path / "alone")


def test_an_interrupt_is_soft_and_the_same_command_goes_on(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=60, limits={"max_in_flight": 4})
        process = begun(recipe, tmp_path / "run")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=100)[1]
        assert process.returncode == EXIT_INTERRUPTED, said
        again = run(recipe, tmp_path / "run", "--clients", "2")
        assert again.returncode == EXIT_COMPLETE, again.stderr
        assert stats(url)["asked_again"] == 0
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
    assert files(tmp_path / "run") == files(tmp_path / "alone")


def test_servers_are_launched_once_for_all_clients(tmp_path):
    recipe = tmp_path / "r.json"
    recipe.write_text(json.dumps(recipe_data(n=20)), encoding="utf-8")
    result = run(recipe, tmp_path / "run", "--clients", "2")
    assert result.returncode == EXIT_COMPLETE, result.stderr
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")
    assert log.count("starting server") == 1
    assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
    alone, shared = frames(tmp_path / "alone"), frames(tmp_path / "run")
    assert all(shared[name].equals(frame) for name, frame in alone.items())


def test_a_client_that_was_suspended_loses_its_items(tmp_path):
    with fake_server(SLOW) as url:
        recipe = write_recipe(tmp_path / "r.json", url, n=120, limits={"max_in_flight": 2})
        process = begun(recipe, tmp_path / "run", "--display", "plain")
        clients_of(process)[0].suspend()
        said = process.communicate(timeout=250)[1]
        assert process.returncode == EXIT_COMPLETE, said
        assert "was silent for too long: its items go to others" in " ".join(said.split())
        assert run(recipe, tmp_path / "alone").returncode == EXIT_COMPLETE
    assert files(tmp_path / "run") == files(tmp_path / "alone")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"statistics": {"stop_when": {"block": 10}}}, "stop_when"),
        ({"budget": {"requests": 100}}, "`budget` bounds all clients together"),
    ],
)
def test_what_clients_cannot_do_is_refused_with_a_word(tmp_path, changes, why):
    recipe = write_recipe(tmp_path / "r.json", "http://127.0.0.1:1", **changes)
    result = run(recipe, tmp_path / "run", "--clients", "2")
    assert result.returncode == EXIT_USAGE
    said = " ".join(result.stderr.split())
    assert why in said
    assert "--clients 2" in said
