"""Probing real processes: the fake server by its own back-end, and as one of unknown kind."""

import contextlib
import json
import sqlite3
from typing import Any

import msgspec
import pytest

from orchestrator.commands import servers
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE, UsageError
from orchestrator.interface import api
from orchestrator.interface.checking import prepared_from
from orchestrator.probing.abilities import EXACT, IMPOSSIBLE
from orchestrator.runner.event_loop import event_loop
from orchestrator.store import values
from tests.e2e.runs import MODELS, stats, write_recipe
from tests.inside import fake_server, run


def probe_url(url, *models, **options):
    with event_loop() as (to_end, _):
        return to_end(servers.probe_url(url, *models, **options))


def probe_recipe(recipe):
    with event_loop() as (to_end, _):
        return to_end(servers.probe_recipe(prepared_from(recipe, allow_code=False)))


def words(found):
    return {finding.name: finding.value for finding in found.record.findings}


def verdicts(found):
    return {one.method: one.verdict for one in found.verdicts}


def test_a_server_is_recognised_and_all_its_models_are_probed():
    with fake_server() as url:
        found = probe_url(f"{url}/v1/")
    assert [one.name for one in found] == list(MODELS)
    assert {one.kind for one in found} == {"fake"}
    assert words(found[0])["score"] == "consistent"
    assert words(found[0])["seed"] == "honoured"
    assert verdicts(found[0])["probdiff"] == EXACT


def test_a_compatible_endpoint_has_what_it_can_not_do_named_with_a_remedy():
    with fake_server() as url:
        (found,) = probe_url(url, [MODELS[0]], backend="openai")
    judged = {one.method: one for one in found.verdicts}
    assert judged["probdiff"].verdict == IMPOSSIBLE
    assert "vLLM" in judged["probdiff"].remedy
    assert judged["answers"].verdict == EXACT
    assert words(found)["cap"] == "20"


def test_an_address_where_nobody_answers_and_a_missing_key_are_errors_of_the_command():
    with pytest.raises(UsageError, match="does not answer"):
        probe_url("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="NO_SUCH_KEY is not set"):
        probe_url("http://127.0.0.1:9", api_key_env="NO_SUCH_KEY")


def test_the_servers_of_a_recipe_are_launched_probed_and_ended(tmp_path):
    models = {"a": {"server": "fake", "weights": "x:0.5"}}
    recipe = write_recipe(
        tmp_path / "r.json", "", models=models, methods=[{"kind": "probdiff"}], n=2
    )
    (found,) = probe_recipe(str(recipe))
    assert found.base_url == "launched"
    assert set(verdicts(found).values()) == {EXACT}
    assert json.loads(msgspec.json.encode([found]))[0]["name"] == "a"


def test_servers_without_room_for_all_are_probed_in_waves_and_one_replica_of_each(tmp_path, caplog):
    models: dict[str, dict[str, Any]] = {
        name: {"server": {"kind": "fake", "start_timeout_s": 30 + n}, "weights": f"{name}:0.5"}
        for n, name in enumerate("abc")
    }
    models["c"]["replicas"] = 2
    recipe = write_recipe(
        tmp_path / "r.json", "", models=models, methods=[{"kind": "probdiff"}], n=2,
        resources={"max_servers": 2},
    )  # fmt: skip
    with caplog.at_level("INFO", "orchestrator.runner.servers.launched"):
        found = probe_recipe(str(recipe))
    assert [one.name for one in found] == ["a", "b", "c"]
    said = [line.split() for line in caplog.messages if "ing server" in line]
    assert [(what, name) for what, _, name in [*said[:2], *sorted(said[2:4]), *said[4:]]] == [
        ("starting", "a"), ("starting", "b"), ("stopping", "a"), ("stopping", "b"),
        ("starting", "c"), ("stopping", "c"),
    ]  # fmt: skip


@pytest.fixture
def compatible(tmp_path):
    """A recipe whose models are reached as of an endpoint of unknown kind, so they are probed."""

    def make(url, **changes):
        models = {
            name: {"base_url": url, "model": model, "backend": "openai"}
            for name, model in zip(("a", "b"), MODELS, strict=False)
        }
        answers = {"kind": "answers", "answer": {"max_tokens": 4}}
        return write_recipe(
            tmp_path / "r.json", url, n=4, **{"models": models, "methods": [answers], **changes}
        )

    return make


def test_a_run_probes_each_server_once_and_asks_little_when_it_goes_on(compatible, tmp_path):
    with fake_server() as url:
        recipe = compatible(url)
        api.run(recipe, run_dir=tmp_path / "run", limit=2)
        first = stats(url)["total"]
        api.run(recipe, run_dir=tmp_path / "run")
        second = stats(url)["total"] - first
        api.run(recipe, run_dir=tmp_path / "run")
        assert stats(url)["total"] == first + second
    assert first > 2 * 10
    assert second < 2 * 18


def test_a_run_that_is_told_not_to_probe_sends_only_what_is_asked(compatible, tmp_path):
    with fake_server() as url:
        api.run(compatible(url, probe=False), run_dir=tmp_path / "run")
        assert stats(url)["total"] == 8


def test_a_failure_of_the_moment_does_not_stop_a_run(compatible, tmp_path):
    with fake_server([{"fault": "500", "first": 1, "route": "chat"}]) as url:
        result = run(compatible(url), tmp_path / "run")
    assert result.returncode == EXIT_COMPLETE, result.stderr


def test_a_method_that_a_server_can_not_run_is_refused_before_it_asks(compatible, tmp_path):
    broken = [{"fault": "status", "status": 400, "message": "no chats here", "route": "chat"}]
    with fake_server(broken) as url:
        result = run(compatible(url, limits={"max_attempts": 1}), tmp_path / "run")
        n_sent = stats(url)["total"]
    assert result.returncode == EXIT_USAGE, result.stderr
    # Both are asked at the same time; who is met first is told.
    assert "answers: generate by '" in " ".join(result.stderr.split())
    assert n_sent <= 10


def test_one_server_that_can_not_be_used_keeps_all_from_being_asked_more(compatible, tmp_path):
    with fake_server(
        [{"fault": "status", "status": 422, "message": "no", "model": MODELS[1]}]
    ) as url:
        result = run(compatible(url), tmp_path / "run")
        n_sent = stats(url)["total"]
    assert result.returncode == EXIT_USAGE, result.stderr
    assert n_sent <= 10


def test_servers_are_looked_at_online_before_a_run(compatible, tmp_path):
    with fake_server() as url:
        assert api.check(compatible(url), online=True) == ()
        assert stats(url)["total"] <= 10
        models = {
            name: {"base_url": url, "model": "fake:O.6", "backend": kind}
            for name, kind in (("a", "openai"), ("b", "vllm"))
        }
        with pytest.raises(UsageError) as refused:
            api.check(compatible(url, models=models), online=True)
    assert str(refused.value).count("did you mean 'fake:0.6'") == 2
    with pytest.raises(UsageError, match=r"'a' at http.*refused|'a' at http.*failed"):
        api.check(compatible(url), online=True)


def claim_another_behaviour(run_dir):
    """Let the store believe that no texts came before."""
    with contextlib.closing(sqlite3.connect(run_dir / "store.sqlite")) as connection, connection:
        old, new = (f'"generate","value":"{word}"' for word in ("yes", "no"))
        found = connection.execute("SELECT key, value FROM meta WHERE key<>?", (values.CHECKSUMS,))
        values.put(connection, {key: text.replace(old, new) for key, text in found.fetchall()})


def test_a_server_that_does_otherwise_than_before_stops_the_run(compatible, tmp_path):
    with fake_server() as url:
        recipe = compatible(url)
        api.run(recipe, run_dir=tmp_path / "run", limit=2)
        claim_another_behaviour(tmp_path / "run")
        refused = run(recipe, tmp_path / "run")
        assert refused.returncode == EXIT_USAGE
        assert "generate was no, is yes" in " ".join(refused.stderr.split())
        assert run(recipe, tmp_path / "run", "--accept-server-change").returncode == EXIT_COMPLETE
