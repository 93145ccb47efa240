"""Settings of the back-end that speaks to a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import embedded as embedded_backend
from backends import sglang as sglang_backend
from backends import vllm as vllm_backend
from launch import embedded, sglang, vllm
from orchestrator.backend import PLAIN, Provenance
from orchestrator.placement import Share
from orchestrator.recipe.schema import Limits, ModelEntry, ModelSpec, PluginRef, Price
from orchestrator.records import Failure
from orchestrator.runner.models.records import Probes
from orchestrator.runner.servers.connections import backend_config
from orchestrator.runner.servers.fleet import Fleet
from orchestrator.runner.servers.launched import PlacedServer
from orchestrator.store import Store
from tests.backends.kinds import kind_in
from tests.fake.main import serving
from tests.launch import kinds


def model(**given: Any) -> ModelSpec:
    names = ("server", "weights", "base_url", "backend_config")
    left: dict[str, Any] = dict.fromkeys(names)
    return ModelSpec(
        name="m", model="m", entry=ModelEntry(), limits=Limits(), price=Price(), **(left | given)
    )


def spec(launch, backend, settings=None, **own) -> ModelSpec:
    """A model that is launched with `settings`; `own` is what a recipe says of its back-end."""
    name = kinds.kind_in(launch).backend
    server = PluginRef(name, launch.Config(**(settings or {})))
    config = kind_in(backend).Config(**own) if own else None
    return model(server=server, weights="w", backend=name, backend_config=config)


@pytest.mark.parametrize(
    ("launch", "backend", "settings", "expected"),
    [
        (sglang, sglang_backend, {}, {"original_logprobs": True}),
        (
            sglang,
            sglang_backend,
            {"lora_paths": {"m": "/l", "other": "/o"}},
            {"original_logprobs": True, "lora_path": "m"},
        ),
        (sglang, sglang_backend, {"lora_paths": {"other": "/o"}}, {"original_logprobs": True}),
        (vllm, vllm_backend, {}, {}),
        (embedded, embedded_backend, {}, {}),
    ],
)
def test_the_backend_of_a_launched_server_knows_how_it_was_started(
    launch, backend, settings, expected
):
    found = backend_config(spec(launch, backend, settings), kind_in(backend).Config)
    assert found == kind_in(backend).Config(**expected)


def test_what_the_recipe_says_of_the_backend_is_kept_and_the_rest_is_filled_in():
    own = spec(sglang, sglang_backend, choose_negligible=1e-6)
    found = backend_config(own, sglang_backend.Config)
    assert found == sglang_backend.Config(choose_negligible=1e-6, original_logprobs=True)
    other = spec(sglang, sglang_backend, original_logprobs=False)
    assert backend_config(other, sglang_backend.Config) == sglang_backend.Config()


def test_a_server_that_runs_elsewhere_has_the_settings_of_the_recipe_only():
    reached = model(base_url="http://127.0.0.1:1", backend="sglang")
    assert backend_config(reached, sglang_backend.Config) == sglang_backend.Config()


@contextmanager
def fleet_of(folder: Path, one: ModelSpec, replicas: int = 0) -> Iterator[Fleet]:
    """The servers of the model `m`: `replicas` that are launched, or the one that is there."""
    placed = [PlacedServer("m", ("m",), (Share(),) * replicas)] if replicas else ()
    with Store.open(folder / "store.sqlite") as store:
        probes = None if replicas else Probes(store, {})
        yield Fleet([one], {"m": b"m"}, folder.joinpath, store, placed=placed, probes=probes)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("can", [True, False])
async def test_a_server_that_lacks_what_its_kind_needs_is_a_plain_one_unless_the_kind_is_named(
    tmp_path, is_named, can
):
    rules = {"dialect": "vllm_v2", "quirks": [] if can else ["ignored_fields"]}
    async with serving(rules, models=["m"]) as (url, _):
        backend = "vllm" if is_named else PLAIN
        reached = replace(model(base_url=url, backend=backend), finds_backend=not is_named)
        with fleet_of(tmp_path, reached) as fleet:
            fleet._to_look.clear()  # it is met when it is asked for
            found = await fleet.connect("m")
            if is_named and not can:
                assert isinstance(found, Failure)
                assert "no token ids and log-probabilities" in found.message
                return
            assert not isinstance(found, Failure)
            told = await found.provenance()
            await found.close()
    assert isinstance(told, Provenance)
    assert told.backend == ("vllm" if can else PLAIN)


async def test_a_server_that_was_given_up_says_why_to_who_asks_for_it(tmp_path):
    with fleet_of(tmp_path, spec(embedded, embedded_backend), 1) as fleet:
        (server,) = fleet.launched
        server.move(Share(), "n3")
        found = await fleet.connect("m")
    assert isinstance(found, Failure)
    assert found.permanent
    assert "node n3 is out of reach" in found.message


@pytest.mark.parametrize("quiet_s", [[0.0], [29.0], [31.0], [29.0, 31.0], [900.0, 0.0, 31.0]])
def test_those_servers_are_quiet_that_have_ended_nothing_for_long(tmp_path, quiet_s):
    launched = spec(embedded, embedded_backend)
    with fleet_of(tmp_path, launched, len(quiet_s)) as fleet:
        if len(quiet_s) > 1:
            fleet._replicas["m"] = SimpleNamespace(quiet_s=quiet_s.__getitem__)  # type: ignore[assignment]
        else:
            fleet.listener.quiet_s = lambda model: quiet_s[0]  # type: ignore[method-assign]
        found = [fleet._is_quiet(server) for server in fleet.launched]
    assert found == [one > launched.limits.silent_after_s for one in quiet_s]
