"""Settings of the back-end that speaks to a model."""

from typing import Any

import pytest

from backends import embedded as embedded_backend
from backends import sglang as sglang_backend
from backends import vllm as vllm_backend
from launch import embedded, sglang, vllm
from orchestrator.recipe.schema import Limits, ModelEntry, ModelSpec, PluginRef, Price
from orchestrator.runner.servers.connections import backend_config
from tests.backends.kinds import kind_in


def model(**given: Any) -> ModelSpec:
    names = ("server", "weights", "base_url", "backend_config")
    left: dict[str, Any] = dict.fromkeys(names)
    return ModelSpec(
        name="m", model="m", entry=ModelEntry(), limits=Limits(), price=Price(), **(left | given)
    )


def spec(launch, backend, settings=None, **own) -> ModelSpec:
    """A model that is launched with `settings`; `own` is what a recipe says of its back-end."""
    server = PluginRef(launch.KIND, launch.Config(**(settings or {})))
    config = kind_in(backend).Config(**own) if own else None
    return model(server=server, weights="w", backend=launch.KIND, backend_config=config)


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
