import dataclasses
from pathlib import Path

import pytest

from orchestrator import plugins
from orchestrator.errors import RecipeError, UsageError
from orchestrator.recipe.load import available, find, load, loads
from orchestrator.recipe.schema import StatisticsSettings
from orchestrator.recipe.source import dump_yaml
from tests.recipe import plugin_backend, plugin_method

RECIPE = """
name: good
seed: 7
models:
  small: {server: tests.recipe.plugin_server, weights: "bundled:novice"}
  big:
    server: {kind: tests.recipe.plugin_server, threads: 2}
    weights: org/model
    limits: {max_in_flight: 3}
  gpt-4.1:
    base_url: https://host.example/v1/
    backend: {kind: tests.recipe.plugin_backend, top_logprobs: 5}
    api_key_env: A_KEY_THAT_IS_NOT_SET
    system: Be brief.
    price: {input: 1.5}
dataset: {kind: demo, n: 10}
methods:
  - kind: tests.recipe.plugin_method
    judges: [gpt-4.1]
  - kind: tests.recipe.plugin_method
    name: second
    candidates: [big, gpt-4.1]
limits: {max_attempts: 2}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def loaded(file, *overrides, **settings):
    return load(file, overrides=overrides, allow_code=True, **settings)


def faults_of(file, *overrides, **settings):
    with pytest.raises(RecipeError) as caught:
        loaded(file, *overrides, **settings)
    return [str(fault).replace(f"{file}", "good.yaml") for fault in caught.value.faults]


def test_methods_come_with_their_own_validated_settings(file):
    method = loaded(file).methods[0]
    assert method.kind == "tests.recipe.plugin_method"
    assert method.method.config == plugin_method.Config(judges=("gpt-4.1",))


def test_models_keep_their_order_and_have_everything_filled_in(file):
    models = loaded(file).models
    assert list(models) == ["small", "big", "gpt-4.1"]
    gpt = models["gpt-4.1"]
    assert (gpt.server, gpt.weights, gpt.base_url) == (None, None, "https://host.example")
    assert (gpt.backend, gpt.model) == ("tests.recipe.plugin_backend", "gpt-4.1")
    assert gpt.backend_config == plugin_backend.Config(top_logprobs=5)


def test_a_launched_model_speaks_the_backend_of_its_server(file):
    small = loaded(file).models["small"]
    assert small.server is not None
    assert small.server.kind == "tests.recipe.plugin_server"
    assert (small.backend, small.backend_config) == ("tests.recipe.plugin_backend", None)


def test_limits_of_a_model_stand_over_those_of_the_recipe(file):
    models = loaded(file).models
    assert (models["big"].limits.max_in_flight, models["big"].limits.max_attempts) == (3, 2)
    assert (models["small"].limits.max_in_flight, models["small"].limits.max_attempts) == (None, 2)


def test_the_limit_is_found_where_the_server_is_near_and_nobody_says_how_many(file):
    near, far = "base_url: 'http://127.0.0.1:8000'", "base_url: 'https://api.example.com'"
    more = f"""
  near: {{{near}, backend: tests.recipe.plugin_backend}}
  asked: {{{far}, backend: tests.recipe.plugin_backend, limits: {{max_in_flight: auto}}}}
  fixed: {{{near}, backend: tests.recipe.plugin_backend, limits: {{max_in_flight: 5}}}}
dataset:"""
    file.write_text(RECIPE.replace("\ndataset:", more), encoding="utf-8")
    models = loaded(file).models
    assert [name for name, spec in models.items() if spec.is_adaptive] == ["small", "near", "asked"]
    assert {name: spec.max_in_flight for name, spec in models.items()} == {
        "small": 64, "big": 3, "gpt-4.1": 64, "near": 64, "asked": 64, "fixed": 5,
    }  # fmt: skip


def test_the_name_is_the_file_s_where_none_is_given(tmp_path):
    file = tmp_path / "by_file.yaml"
    file.write_text(RECIPE.replace("name: good\n", ""), encoding="utf-8")
    assert loaded(file).name == "by_file"


def test_a_file_name_that_can_t_be_a_name_is_a_fault(tmp_path):
    file = tmp_path / "by file.yaml"
    file.write_text(RECIPE.replace("name: good\n", ""), encoding="utf-8")
    assert "is not a valid name" in faults_of(file)[0]


def test_an_environment_variable_need_not_be_set_when_a_recipe_is_loaded(file, monkeypatch):
    monkeypatch.delenv("A_KEY_THAT_IS_NOT_SET", raising=False)
    assert loaded(file).models["gpt-4.1"].entry.api_key_env == "A_KEY_THAT_IS_NOT_SET"


def test_the_value_of_an_environment_variable_is_nowhere_in_a_recipe(file, monkeypatch):
    monkeypatch.setenv("A_KEY_THAT_IS_NOT_SET", "sk-very-secret")
    recipe = loaded(file)
    assert "very-secret" not in repr(recipe) + dump_yaml(recipe.resolved())


def test_a_secret_of_a_backend_s_own_is_masked(file):
    recipe = loaded(file, "models.gpt-4.1.backend.pin=wxyz")
    assert "wxyz" not in repr(recipe) + dump_yaml(recipe.resolved())


def test_candidates_that_are_left_out_are_all_that_judge_nowhere(file):
    recipe = loaded(file)
    assert recipe.candidates(recipe.methods[0].method) == ("small", "big")
    assert recipe.candidates(recipe.methods[1].method) == ("big", "gpt-4.1")


def test_code_from_outside_is_not_imported_unless_allowed(file):
    with pytest.raises(RecipeError) as caught:
        load(file)
    messages = [fault.message for fault in caught.value.faults]
    assert len(messages) == 5
    assert all("--allow-code" in message for message in messages)


def test_what_is_resolved_loads_to_the_same_recipe(file):
    recipe = loaded(file, limit=3)
    again = loads(dump_yaml(recipe.resolved()).encode(), file, allow_code=True)
    assert again == recipe


def test_a_file_that_is_not_there_is_a_recipe_error(tmp_path):
    with pytest.raises(RecipeError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")


# -- paths -------------------------------------------------------------------------------------


def test_weights_are_looked_for_in_the_recipe_s_folder_then_in_the_working_folder(
    file, tmp_path, monkeypatch
):
    beside, here = tmp_path / "beside", tmp_path / "cwd" / "here"
    beside.mkdir()
    here.mkdir(parents=True)
    monkeypatch.chdir(here.parent)
    models = loaded(file, "models.small.weights=beside", "models.big.weights=here").models
    assert (models["small"].weights, models["big"].weights) == (str(beside), str(here))


@pytest.mark.parametrize("weights", ["bundled:novice", "org/model", "org/model@main"])
def test_weights_that_are_no_path_are_kept(file, weights):
    assert loaded(file, f"models.small.weights={weights}").models["small"].weights == weights


def test_the_path_of_a_dataset_is_made_whole_and_its_suffix_tells_the_kind(file, tmp_path):
    (tmp_path / "items.JSONL").write_text("{}\n", encoding="utf-8")
    recipe = loaded(file, "dataset={path: items.JSONL}")
    assert recipe.dataset.kind == "jsonl"
    assert getattr(recipe.dataset.config, "path", "") == str(tmp_path / "items.JSONL")


def test_columns_left_out_and_columns_that_are_null_stay_apart_when_resolved(file, tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n", encoding="utf-8")
    recipe = loaded(file, "dataset={path: x.csv, fields: {prompt: a, key: null}}")
    again = loads(dump_yaml(recipe.resolved()).encode(), file, allow_code=True)
    assert again.dataset == recipe.dataset
    assert recipe.resolved()["dataset"]["fields"] == {"key": None, "prompt": "a"}


# -- overrides ---------------------------------------------------------------------------------


def test_an_override_is_read_as_yaml(file):
    recipe = loaded(file, "seed=8", "description=no", "budget.requests=100", "limit=null")
    assert (recipe.settings.seed, recipe.settings.description, recipe.settings.budget.requests) == (
        8,
        "no",
        100,
    )


def test_an_override_reaches_into_names_with_dots_and_into_lists(file):
    recipe = loaded(file, "models.gpt-4.1.model=x", "methods.1.candidates.0=small")
    assert recipe.models["gpt-4.1"].model == "x"
    assert recipe.methods[1].method.candidates == ("small", "gpt-4.1")


def test_an_override_may_add_an_entry_to_a_list(file):
    entry = "{kind: tests.recipe.plugin_method, name: third, candidates: [small, big]}"
    recipe = loaded(file, f"methods.2={entry}")
    assert len(recipe.methods) == 3


def test_later_overrides_win(file):
    assert loaded(file, "seed=8", "seed=9").settings.seed == 9


def test_the_limit_of_the_command_stands_over_the_file_s(file):
    assert loaded(file, "limit=5").settings.limit == 5
    assert loaded(file, "limit=5", limit=2).settings.limit == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "expected name.of.setting=value"),
        ("=3", "expected name.of.setting=value"),
        ("seed=[", "that is not closed"),
        ("seed=x", "seed: must be a whole number, got 'x'"),
        ("sed=3", "unknown setting 'sed'; did you mean 'seed'?"),
        ("budget.request=3", "budget: unknown setting 'request'; did you mean 'requests'?"),
        ("budgets.requests=3", "unknown setting 'budgets'; did you mean 'budget'?"),
        (
            "methods.0.judges=[smal]",
            "methods.0.judges: unknown model 'smal'; did you mean 'small'?",
        ),
        (
            "methods.7.kind=x",
            "methods is a list of 2; give an index from 0 to 2 (2 appends), not '7'",
        ),
        ("methods.x=1", "methods is a list of 2; give an index from 0 to 2 (2 appends), not 'x'"),
        ("models.small.server.threads=2", "models.small.server is 'tests.recipe.plugin_server'"),
        ("a={b: 1, b: 2}", "duplicate key 'b', first given on line 1"),
    ],
)
def test_a_fault_of_an_override_names_the_override(file, override, message):
    faults = faults_of(file, override)
    assert faults[0].startswith(f"--set {override}: ")
    assert message in faults[0]


def test_a_key_in_an_override_is_refused_and_not_shown(file):
    faults = faults_of(file, "models.gpt-4.1.api_key=sk-very-secret")
    assert len(faults) == 1
    assert faults[0].startswith("--set models.gpt-4.1.api_key=…: ")


def test_faults_of_file_and_overrides_come_together(file):
    file.write_text(RECIPE.replace("seed: 7", "sed: 7"), encoding="utf-8")
    assert [fault.partition(": ")[0] for fault in faults_of(file, "limit=0")] == [
        "--set limit=0",
        "good.yaml:3",
    ]


# -- finding -----------------------------------------------------------------------------------


def test_a_recipe_is_found_by_path(file):
    assert find(file) == file


@pytest.mark.parametrize("name", ["no_such_recipe", "no_such_recipe.yaml", "no/such.yaml"])
def test_a_recipe_that_is_not_there_is_a_usage_error(name):
    with pytest.raises(UsageError, match="no such recipe"):
        find(name)


def test_a_folder_is_no_recipe(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        find(tmp_path)


def test_recipes_that_come_with_the_project_load_and_are_found_by_name():
    for file in available():
        assert find(file.stem) == file
        recipe = load(file)
        again = loads(dump_yaml(recipe.resolved()).encode(), file)
        assert dataclasses.replace(again, file=recipe.file) == recipe


def test_the_name_of_a_recipe_is_looked_up_with_a_suggestion():
    names = [file.stem for file in available()]
    for name in names[:1]:
        with pytest.raises(UsageError, match=f"did you mean '{name}'"):
            find(Path(name + "x"))


def test_two_methods_of_one_kind_need_names(file):
    (fault,) = faults_of(file, "methods.1.name=null")
    assert fault == (
        "good.yaml:20: methods.1: duplicate method name 'plugin_method'; give each method a 'name'"
    )


def test_runs_to_reuse_start_at_the_recipe_s_folder(file, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "store.sqlite").touch()
    found = loaded(file, "reuse=[b, ./a]").reuse
    assert [(run.path, run.said) for run in found] == [
        (str(tmp_path / "b"), "b"),
        (str(tmp_path / "a"), "./a"),
    ]


def test_runs_to_reuse_that_are_none_are_faults_with_their_line(file, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "store.sqlite").touch()
    file.write_text(RECIPE + "reuse:\n  - emty\n  - empty\n  - held\n  - held\n", encoding="utf-8")
    line = len(RECIPE.splitlines())
    assert faults_of(file) == [
        f"good.yaml:{line + 2}: reuse.0: no such folder: 'emty'; did you mean 'empty'?",
        f"good.yaml:{line + 3}: reuse.1: no run found at 'empty'",
        f"good.yaml:{line + 5}: reuse.3: duplicate run 'held'",
    ]


@pytest.mark.parametrize("name", plugins.REMOVED)
def test_a_name_that_is_gone_is_refused_with_what_is_used_instead(name, file):
    said = f"it was removed: {plugins.REMOVED[name]}"
    assert not [family for family in plugins.WORDS if name in plugins.known_kinds(family)]
    # What is a setting of the statistics too is one still.
    kept = "statistics=" if name in StatisticsSettings.model_fields else "none"
    for override in (
        f"statistics={{{name}: {{}}}}",
        f"analyses=[{{kind: {name}}}]",
        f"methods.0.kind={name}",
        f"methods.0.{name}=true",
    ):
        is_said = any(said in fault for fault in faults_of(file, override))
        assert is_said or override.startswith(kept), override
    with pytest.raises(UsageError, match="it was removed"):
        find(name)
