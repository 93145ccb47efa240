"""`log_to`: progress and results for trackers of experiments, which never break a run."""

import importlib.util
import json
import subprocess
import sys
import threading

import pytest

from orchestrator.cli import main
from orchestrator.errors import EXIT_USAGE
from orchestrator.interface import tracking
from orchestrator.trackers import TRACKERS, Tracker

METHODS = [{"kind": "pairwise_ranking", "judges": ["judge"]}]


class Kept(Tracker):
    """A tracker that keeps what it is told; its thread may fail or hang."""

    def __init__(self, fault="") -> None:
        self.fault = fault
        self.told: list[tuple[str, object]] = []
        self.release = threading.Event()
        self.ended = threading.Event()

    def begin(self, *told):
        self.told.append(("begin", told))
        if self.fault == "raises":
            raise ConnectionError("no route\nto host")
        if self.fault == "hangs":
            self.release.wait(60)

    def log(self, metrics, step):
        self.told.append(("log", metrics))

    def end(self, metrics, state):
        self.told.append(("end", (metrics, state)))
        self.ended.set()


@pytest.fixture
def kept(monkeypatch):
    """Put a tracker of our own in the place of mlflow."""

    def put(fault=""):
        tracker = Kept(fault)
        monkeypatch.setattr("orchestrator.interface.run.needed", lambda _: None)
        monkeypatch.setitem(TRACKERS, "mlflow", lambda: tracker)
        return tracker

    return put


def run(command, recipe, *more):
    path = recipe(methods=METHODS, log_to="mlflow", seed=77)
    return command("run", path, "--display", "json", *more)


def notes(said):
    events = [json.loads(line) for line in said.splitlines()]
    return [one["text"] for one in events if one["event"] == "note"]


def test_a_tracker_gets_settings_progress_and_results(command, recipe, kept, here):
    tracker = kept()
    code, _, said = run(command, recipe)
    assert (code, [note for note in notes(said) if "log_to" in note]) == (0, [])
    names = [name for name, _ in tracker.told]
    assert names[0] == "begin"
    assert "log" in names
    assert names[-1] == "end"
    _, name, folder, parameters = tracker.told[0][1]
    assert (name, parameters["seed"]) == ("made", 77)
    assert parameters["methods.0.kind"] == "pairwise_ranking"
    assert folder == here / "runs" / "made"
    metrics, state = tracker.told[-1][1]
    assert state == "complete"
    ratings = [name for name in metrics if name.startswith("rating/")]
    assert "rating/pairwise_ranking/judge/strong" in ratings
    low, high = (metrics[f"rating/pairwise_ranking/judge/strong.{end}"] for end in ("low", "high"))
    assert low < metrics["rating/pairwise_ranking/judge/strong"] < high
    assert metrics["units/failed"] == 0


def test_a_tracker_that_fails_is_said_once_and_the_run_goes_on(command, recipe, kept):
    tracker = kept("raises")
    code, _, said = run(command, recipe)
    assert code == 0
    assert [note for note in notes(said) if "log_to" in note] == [
        "log_to: mlflow: ConnectionError: no route; the run is not affected"
    ]
    assert [name for name, _ in tracker.told] == ["begin"]


def test_a_tracker_that_hangs_is_left_behind(command, recipe, kept, monkeypatch):
    monkeypatch.setattr(tracking, "_END_S", 0.2)
    monkeypatch.setattr(tracking, "_GAP_S", 0.0)
    monkeypatch.setattr(tracking, "_MOST_WAITING", 2)
    tracker = kept("hangs")
    code, _, said = run(command, recipe)
    tracker.release.set()
    assert code == 0
    assert tracker.ended.wait(60)
    assert [name for name, _ in tracker.told] == ["begin", "log", "log", "end"]
    assert "log_to: mlflow: no answer after 0.2 s; the run is not affected" in notes(said)


def test_a_missing_extra_is_named_before_anything_is_sent(command, recipe, here, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "mlflow" else real(name, *a)
    )
    path = recipe(methods=METHODS, log_to=["mlflow"])
    code, _, said = command("run", path)
    assert code == EXIT_USAGE
    assert "log_to: mlflow needs mlflow: pip install 'selfeval-orchestrator[mlflow]'" in said
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("log_to", "said"),
    [
        ("mlfow", "log_to"),
        ({"kind": "mlflow", "uri": "x"}, "unknown setting 'uri'"),
        ({"kind": "mlflow", "mode": "offline"}, "mode is a setting of wandb"),
    ],
)
def test_a_wrong_setting_is_a_fault(command, recipe, log_to, said):
    code, _, err = command("check", recipe(methods=METHODS, log_to=log_to))
    assert code == EXIT_USAGE
    assert said in err


@pytest.mark.slow
def test_mlflow_keeps_a_run_in_a_local_store(recipe, here, monkeypatch):
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is absent")
    uri = f"sqlite:///{here}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    path = recipe(methods=METHODS, log_to="mlflow")
    assert main(["run", path, "--display", "none"]) == 0
    code = (
        "import mlflow, sys, json; client = mlflow.MlflowClient(sys.argv[1]); "
        "place = client.get_experiment_by_name('made').experiment_id; "
        "(run,) = client.search_runs([place]); "
        "print(json.dumps([run.info.status, run.data.params, run.data.metrics]))"
    )
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", code, uri),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    status, params, metrics = json.loads(done.stdout.splitlines()[-1])
    assert status == "FINISHED"
    assert params["methods.0.kind"] == "pairwise_ranking"
    assert "rating/pairwise_ranking/judge/strong" in metrics


@pytest.mark.slow
def test_wandb_keeps_a_run_offline(recipe, here, capsys):
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is absent")
    path = recipe(methods=METHODS, log_to={"kind": "wandb", "mode": "offline"})
    assert main(["run", path, "--display", "json"]) == 0
    assert "log_to" not in capsys.readouterr().err
    (log,) = (here / "runs" / "made" / "wandb").glob("offline-run-*/run-*.wandb")
    content = log.read_bytes()
    assert b"rating/pairwise_ranking/judge/strong" in content
    assert b"methods.0.kind" in content


@pytest.mark.slow
def test_trackio_keeps_a_run_in_its_database(recipe, here, monkeypatch, capsys):
    if importlib.util.find_spec("trackio") is None:
        pytest.skip("trackio is absent")
    monkeypatch.setenv("TRACKIO_DIR", str(here / "trackio"))
    path = recipe(methods=METHODS, log_to="trackio")
    assert main(["run", path, "--display", "json", "--format", "json"]) == 0
    said = capsys.readouterr()
    json.loads(said.out)
    assert "log_to" not in said.err
    found = [one.read_bytes() for one in (here / "trackio").rglob("*") if one.is_file()]
    assert any(b"rating/pairwise_ranking/judge/strong" in content for content in found)
