"""Every plug-in keeps the contract of its family; a new file is tested by existing."""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError, create_model

from orchestrator import contracts, plugins
from orchestrator.backend import BackendKind, Capabilities
from orchestrator.columns import COLUMN_TYPES
from orchestrator.contracts.method import (
    STATUS_COLUMNS,
    Method,
    Summary,
    frame_of,
    schema_of,
)
from orchestrator.dataset import DatasetKind
from orchestrator.errors import PluginError
from orchestrator.plugins.base import Settings, descriptions
from orchestrator.recipe.schema import RecipeFile
from orchestrator.serving import LaunchKind

FAMILIES = (plugins.BACKENDS, plugins.LAUNCH, plugins.METHODS, plugins.DATASETS)
ALL = [(family, kind) for family in FAMILIES for kind in plugins.kinds(family)]
ANALYSES = [(plugins.ANALYSES, kind) for kind in plugins.kinds(plugins.ANALYSES)]


NAMES = [f"{family}.{kind}" for family, kind in ALL]


def config_of(pair: tuple[str, str]) -> type[BaseModel]:
    family, kind = pair
    return contracts.load(contracts.BASES[family], kind).Config


@pytest.fixture(params=ALL, ids=NAMES)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(params=ALL + ANALYSES, ids=lambda pair: f"{pair[0]}.{pair[1]}")
def config(request: pytest.FixtureRequest) -> type[BaseModel]:
    return config_of(request.param)


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


def test_a_plugin_says_what_it_is_in_one_line(pair):
    assert 0 < len(plugins.about(*pair)) <= 100


@pytest.mark.parametrize("family", plugins.WORDS)
def test_a_kind_is_a_file_of_its_own_or_a_class_in_a_shared_one(family):
    package = importlib.import_module(family)
    shared = vars(package).get("KINDS", {})
    files = {one.name for one in pkgutil.iter_modules(package.__path__)}
    assert not files & shared.keys()
    assert len(set(shared.values())) == len(shared)
    for kind, place in shared.items():
        file, _, name = place.partition(":")
        assert file in files
        assert plugins.load(family, kind).__name__ == f"{family}.{file}"
        assert contracts.load(contracts.BASES[family], kind).__name__ == name


def test_its_settings_describe_their_fields(config):
    assert list(descriptions(config)) == list(config.model_fields)


def test_its_settings_are_frozen_finite_and_refuse_what_they_do_not_know(config):
    assert issubclass(config, Settings)
    for setting, value in Settings.model_config.items():
        assert config.model_config.get(setting) == value
    with pytest.raises(ValidationError):
        config.model_validate({"no_such_setting": 1})


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The settings models that an annotation is made of, nested ones too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for part in get_args(annotation):
        yield from models_in(part)


def numbers_in(annotation: object) -> bool:
    return annotation is float or any(map(numbers_in, get_args(annotation)))


NUMBERS = sorted(
    {
        (model, name)
        for config in (RecipeFile, *map(config_of, ALL + ANALYSES))
        for model in models_in(config)
        for name, field in model.model_fields.items()
        if numbers_in(field.annotation)
    },
    key=lambda pair: (pair[0].__module__, pair[0].__name__, pair[1]),
)


@pytest.mark.parametrize(
    ("model", "name"),
    NUMBERS,
    ids=lambda of: of if isinstance(of, str) else f"{of.__module__}.{of.__name__}",
)
def test_a_number_among_the_settings_is_finite(model, name):
    field = model.model_fields[name]
    fields: dict[str, Any] = {name: (field.annotation, field)}
    alone = create_model("Alone", __config__=model.model_config, **fields)
    for number in (math.inf, -math.inf, math.nan, "inf", "nan"):
        for value in (number, [number], {"key": number}):
            with pytest.raises(ValidationError):
                alone.model_validate({name: value})


@pytest.mark.parametrize("kind", plugins.kinds(plugins.BACKENDS))
def test_a_backend_states_what_it_can_do(kind):
    backend = contracts.load(BackendKind, kind)
    assert isinstance(backend(backend.Config()).capabilities, Capabilities)


LAUNCH_KINDS = [
    pytest.param(contracts.load(LaunchKind, kind), id=kind)
    for kind in plugins.kinds(plugins.LAUNCH)
]


@pytest.mark.parametrize("launch", LAUNCH_KINDS)
def test_a_launch_kind_names_its_backend(launch):
    assert launch.backend in plugins.kinds(plugins.BACKENDS)


@pytest.mark.parametrize("launch", LAUNCH_KINDS)
def test_what_a_launch_kind_says_of_its_servers_is_a_setting_of_their_backend(launch):
    settings = launch(launch.Config()).backend_settings("m")
    backend = contracts.load(BackendKind, launch.backend)
    assert isinstance(backend.Config.model_validate(settings), backend.Config)


@pytest.mark.parametrize("launch", LAUNCH_KINDS)
def test_a_launch_kind_runs_no_code_of_a_recipe_by_its_defaults(launch):
    assert not launch(launch.Config()).programs()


@pytest.mark.parametrize("kind", plugins.kinds(plugins.METHODS))
def test_a_method_keeps_its_contract_and_declares_each_column_once(kind):
    method = contracts.load(Method, kind)
    assert frame_of(method, kind).isidentifier()
    assert len(schema_of(method)) == sum(
        map(len, (method.unit_columns, method.columns, STATUS_COLUMNS))
    )
    assert set(schema_of(method).values()) <= set(COLUMN_TYPES)


@pytest.mark.parametrize("kind", plugins.kinds(plugins.METHODS))
def test_what_a_method_says_is_good_is_one_of_its_columns(kind):
    method = contracts.load(Method, kind)
    if isinstance(method.scores, dict):
        assert method.scores.keys() <= method.columns.keys()


@pytest.mark.parametrize("kind", plugins.kinds(plugins.METHODS))
def test_a_summary_has_the_settings_of_its_method_or_of_every_method(kind):
    summary = contracts.summary(kind, contracts.load(Method, kind))
    assert summary is None or issubclass(contracts.load(Method, kind).Config, summary.Config)


def test_every_summary_is_of_a_method():
    methods = [contracts.load(Method, kind) for kind in plugins.kinds(plugins.METHODS)]
    found = map(contracts.summary, plugins.kinds(plugins.METHODS), methods)
    own = {contracts.load(Summary, kind) for kind in plugins.kinds(plugins.SUMMARIES)}
    assert own <= {*found}


@pytest.mark.parametrize("kind", plugins.kinds(plugins.DATASETS))
def test_a_dataset_kind_opens_relative_to_the_recipe(kind):
    dataset = contracts.load(DatasetKind, kind)
    assert parameters(dataset.open) == ["self", "base"]
    assert all(suffix.startswith(".") for suffix in dataset.suffixes)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kind_that_is_nearly_right_gets_a_suggestion(family):
    kind = plugins.kinds(family)[0]
    with pytest.raises(PluginError, match=f"did you mean '{kind}'"):
        plugins.load(family, kind + "x")


def test_code_from_outside_is_not_imported_unless_allowed():
    with pytest.raises(PluginError, match="needs permission"):
        plugins.load(plugins.METHODS, "json.tool")
