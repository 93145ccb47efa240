"""A server whose numbers become those of another model is noticed, one that is noisy is not."""

import contextlib
import sqlite3

import msgspec
import pytest

from orchestrator.errors import ServerChangedError
from orchestrator.interface import api
from orchestrator.interface.merging import merge
from orchestrator.probing.record import ProbeRecord
from orchestrator.records import Failure
from orchestrator.runner.servers import connections as doubts
from orchestrator.runner.servers import fleet
from orchestrator.store import values
from tests.e2e.runs import MODELS, write_recipe
from tests.inside import fake_server
from tests.matrix.served import kept_server

QUIET = {"dialect": "openai"}


def noisy(sd, **more):
    return {"dialect": "openai", "rules": [{"noise": sd, **more}]}


@pytest.fixture
def recipe(tmp_path):
    def make(url, **changes):
        models = {"m": {"base_url": url, "model": MODELS[0], "backend": "openai"}}
        method = {"kind": "answers", "answer": {"max_tokens": 4}}
        return write_recipe(
            tmp_path / "r.json", url, n=40, **{"models": models, "methods": [method], **changes}
        )

    return make


@contextlib.contextmanager
def records(run_dir):
    """The probe records of a run, written back as they are left."""
    with contextlib.closing(sqlite3.connect(run_dir / "store.sqlite")) as connection, connection:
        asked = "SELECT key, value FROM meta WHERE key LIKE 'probe %'"
        found = {key: msgspec.json.decode(text) for key, text in connection.execute(asked)}
        yield found
        texts = {key: msgspec.json.encode(table).decode() for key, table in found.items()}
        values.put(connection, texts)


def read_record(run_dir):
    with records(run_dir) as found:
        (table,) = found.values()
    return msgspec.convert(table, ProbeRecord)


@pytest.mark.parametrize("sd", [0.0, 0.02, 0.2])
def test_a_server_that_is_noisy_is_still_the_same(sd, recipe, tmp_path):
    with fake_server(noisy(sd), models=MODELS[:1]) as url:
        for n in range(1, 6):
            result = api.run(recipe(url), run_dir=tmp_path / "run", limit=n)
            said = [note for note in result.notes if "were compared with their first" in note]
            assert len(said) == (n > 1), "a server that was not compared could change unnoticed"
    record = read_record(tmp_path / "run")
    assert record.n_compared == 4
    assert record.noise == pytest.approx(1.1 * sd, rel=0.4, abs=1e-6)
    assert (record.largest or 0.0) < record.limit


def as_if_before(run_dir, change):
    """Let the record say what an earlier answer was."""
    with records(run_dir) as found:
        for table in found.values():
            change(table)


def moved(by):
    """Each log-probability of the first answers moved to and fro by so much."""

    def change(table):
        for seen in table["seen"]:
            for row in seen["listed"]:
                for n, name in enumerate(row):
                    row[name] -= by if n % 2 else -by

    return change


def test_numbers_of_another_model_stop_a_run_that_goes_on(recipe, tmp_path):
    with fake_server(QUIET, models=MODELS[:1]) as url:
        made = recipe(url)
        api.run(made, run_dir=tmp_path / "run", limit=2)
        as_if_before(tmp_path / "run", moved(0.1))
        with pytest.raises(ServerChangedError, match=r"differ by 0\.1 nats on average"):
            api.run(made, run_dir=tmp_path / "run", limit=4)
        accepted = api.run(made, run_dir=tmp_path / "run", limit=4, accept_server_change=True)
        assert accepted.n_left == 0
        # What was accepted is what it is held to from now on.
        assert api.run(made, run_dir=tmp_path / "run", limit=6).n_left == 0


def test_a_change_below_the_limit_goes_on(recipe, tmp_path):
    with fake_server(QUIET, models=MODELS[:1]) as url:
        api.run(recipe(url), run_dir=tmp_path / "run", limit=2)
        as_if_before(tmp_path / "run", moved(0.01))
        api.run(recipe(url), run_dir=tmp_path / "run")


def test_a_record_of_an_earlier_version_is_accepted_and_completed(recipe, tmp_path):
    def forget(table):
        for name in ("seen", "noise", "n_compared", "largest"):
            table.pop(name, None)

    with fake_server(QUIET, models=MODELS[:1]) as url:
        api.run(recipe(url), run_dir=tmp_path / "run", limit=2)
        as_if_before(tmp_path / "run", forget)
        api.run(recipe(url), run_dir=tmp_path / "run", limit=4)
    record = read_record(tmp_path / "run")
    assert len(record.seen) > 1
    assert record.noise is not None


def test_without_probing_nothing_is_compared(recipe, tmp_path):
    with fake_server(QUIET, models=MODELS[:1]) as url:
        api.run(recipe(url), run_dir=tmp_path / "run", limit=2)
        as_if_before(tmp_path / "run", moved(0.5))
        api.run(recipe(url, probe=False), run_dir=tmp_path / "run")


def test_a_server_that_is_replaced_behind_a_proxy_is_noticed(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "COMPARED_EVERY_S", 0.2)
    monkeypatch.setattr(doubts, "_LOOKED_S", 0.1)
    slow = {"latency_s": 0.02}
    with kept_server({**QUIET, "rules": [slow]}, MODELS[:1]) as kept:
        kept.swap = (120, {**QUIET, "rules": [slow, {"noise": 0.1, "sticky": True}]})
        made = recipe(kept.url, limits={"max_in_flight": 2}, dataset={"kind": "demo", "n": 150})
        with pytest.raises(ServerChangedError, match="nats on average"):
            api.run(made, run_dir=tmp_path / "run")


def test_a_server_that_was_replaced_unnoticed_is_noticed_at_the_end(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "_AT_END_S", 0.0)
    with kept_server(QUIET, MODELS[:1]) as kept:
        kept.swap = (70, {**QUIET, "rules": [{"noise": 0.1, "sticky": True}]})
        made = recipe(kept.url)
        with pytest.raises(ServerChangedError, match="behaves differently"):
            api.run(made, run_dir=tmp_path / "run")
        # Nothing is left to be asked, but what is there is not taken for one server's.
        notes = api.run(made, run_dir=tmp_path / "run").notes
    assert any("m: its server was found to be another one at" in note for note in notes)
    with pytest.raises(ServerChangedError, match="m: its server was found to be another one at"):
        merge(tmp_path / "run", into=tmp_path / "all")
    accepted = merge(tmp_path / "run", into=tmp_path / "all", accept_server_change=True)
    assert accepted.n_units == accepted.n_total


def test_a_run_that_ends_soon_after_a_comparison_makes_no_other(recipe, tmp_path):
    with kept_server(QUIET, MODELS[:1]) as kept:
        api.run(recipe(kept.url), run_dir=tmp_path / "run")
    assert read_record(tmp_path / "run").n_compared == 0


def test_replies_that_name_another_fingerprint_have_the_server_compared(
    recipe, tmp_path, monkeypatch
):
    class Bodies(list[str]):
        def append(self, body):
            super().append(body)
            if len(self) == 60:
                monkeypatch.setattr("tests.fake.dialects.openai.FINGERPRINT", "fp_other")

    monkeypatch.setattr(doubts, "_LOOKED_S", 0.05)
    with kept_server({**QUIET, "rules": [{"latency_s": 0.02}]}, MODELS[:1]) as kept:
        kept.bodies = Bodies()
        result = api.run(recipe(kept.url, limits={"max_in_flight": 2}), run_dir=tmp_path / "run")
    assert result.n_left == 0
    # The same weights under another name go on.
    assert read_record(tmp_path / "run").n_compared >= 1


def test_a_server_that_answers_is_kept_where_a_comparison_gets_no_answer(
    recipe, tmp_path, monkeypatch
):
    connect, n_connected = fleet.Fleet._one, 0

    async def connect_twice(self, spec, number):
        nonlocal n_connected
        n_connected += 1
        if n_connected > 2:
            return Failure("timeout", "no complete reply within 5 s")
        return await connect(self, spec, number)

    monkeypatch.setattr(fleet.Fleet, "_one", connect_twice)
    monkeypatch.setattr(fleet, "COMPARED_EVERY_S", 0.05)
    monkeypatch.setattr(fleet, "_LOOKS_S", 0.0)
    monkeypatch.setattr(doubts, "_LOOKED_S", 0.02)
    slow = {**QUIET, "rules": [{"latency_s": 0.02}]}
    with fake_server(slow, models=MODELS[:1]) as one, fake_server(slow, models=MODELS[:1]) as other:
        model = {"base_url": [one, other], "model": MODELS[0], "backend": "openai"}
        made = recipe(one, models={"m": model}, limits={"max_in_flight": 1})
        api.run(made, run_dir=tmp_path / "run")
    assert n_connected > 2
    assert "is unreachable" not in (tmp_path / "run" / "log.jsonl").read_text()


def test_the_notes_say_which_change_would_have_been_noticed(recipe, tmp_path):
    with fake_server(noisy(0.01), models=MODELS[:1]) as url:
        api.run(recipe(url), run_dir=tmp_path / "run", limit=1)
        notes = api.run(recipe(url), run_dir=tmp_path / "run", limit=2).notes
    limit = read_record(tmp_path / "run").limit
    assert any(f"m {limit:.2g} nats (compared 1 times, 0.01" in note for note in notes)
