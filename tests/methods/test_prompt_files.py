"""Prompts of the user's from files beside the recipe, read when it is loaded."""

import json
import os
from contextlib import suppress
from threading import Event, Thread

import pytest

from orchestrator.errors import RecipeError
from orchestrator.methods.pairwise_ranking import Kind as PairwiseRanking
from orchestrator.prompts import PromptError, render
from orchestrator.recipe.load import load
from orchestrator.units import make_part

TEMPLATE = "{{ prompt }}\nA: {{ answer_a }}\nB: {{ answer_b }}\n[[>]] or [[<]]?\n"


@pytest.fixture
def load_with(tmp_path):
    def make(prompt, *, kind="pairwise_ranking", setting="prompt"):
        recipe = {
            "name": "made",
            "models": {name: {"base_url": "http://127.0.0.1:1"} for name in "abj"},
            "dataset": {"kind": "demo", "n": 2},
            "methods": [{"kind": kind, "judges": ["j"], setting: prompt}],
        }
        path = tmp_path / "made.yaml"
        path.write_text(json.dumps(recipe), encoding="utf-8")
        return load(path).methods[0].method.config

    return make


@pytest.fixture
def file(tmp_path):
    def write(content, name="mine.j2"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("given", ["mine.j2", {"file": "mine.j2"}])
def test_a_file_beside_the_recipe_is_the_prompt(load_with, file, given):
    file(TEMPLATE)
    assert load_with(given).prompt == TEMPLATE


def test_a_file_of_any_name_is_read_where_it_is_said_to_be_one(load_with, file):
    file(TEMPLATE, "prompts/mine.txt")
    assert load_with({"file": "prompts/mine.txt"}).prompt == TEMPLATE


def test_names_and_templates_are_no_files(load_with):
    assert load_with("compact").prompt == "compact"
    assert load_with(TEMPLATE).prompt == TEMPLATE
    assert load_with("see x.j2\n" + TEMPLATE + "x.j2").prompt.endswith("x.j2")


def test_what_is_in_the_file_decides_the_fingerprint(load_with, file):
    prints = set()
    for words in ("", "Be fair."):
        file(TEMPLATE + words)
        prints.add(
            make_part("pairwise_ranking", PairwiseRanking(load_with("mine.j2")), "ab").fingerprint
        )
    assert len(prints) == 2


def test_the_resolved_settings_need_no_file(load_with, file):
    path = file(TEMPLATE)
    config = load_with("mine.j2")
    path.unlink()
    assert type(config).model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("kind", ["pairwise_ranking", "pairwise_scoring"])
def test_every_judging_method_reads_files(load_with, file, kind):
    template = f"{TEMPLATE} From 1 to 9?"
    file(template)
    assert load_with("mine.j2", kind=kind).prompt == template


def test_so_does_the_judge_of_rewritings(load_with, file):
    file(TEMPLATE)
    config = load_with("mine.j2", kind="judged_rewrites", setting="judge_prompt")
    assert config.judge_prompt == TEMPLATE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{{ prompt }} {{ answer_a }}", "does not show answer_b"),
        (TEMPLATE + "{{ secret }}", "the template uses unknown fields secret"),
        (TEMPLATE + "{% if %}", "prompt template"),
        ("no field at all", "shows nothing of the item"),
        (b"\xff{{", "not UTF-8"),
        (TEMPLATE + "x" * (1 << 20), "larger than"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_the_recipes_line(load_with, file, content, said):
    file(content)
    with pytest.raises(RecipeError, match=rf"made.yaml:1: .*{said}"):
        load_with("mine.j2")


@pytest.mark.parametrize("given", ["none.j2", {"file": "."}, {"file": "a\x00b"}])
def test_a_file_that_cannot_be_read_is_a_fault(load_with, given):
    with pytest.raises(RecipeError, match="cannot be read"):
        load_with(given)


def test_what_never_ends_is_refused_unread(load_with, tmp_path):
    for endless in ("/dev/zero", "/dev/null"):
        with pytest.raises(RecipeError, match="cannot be read: it is no file"):
            load_with({"file": endless})
    pipe = tmp_path / "pipe.j2"
    os.mkfifo(pipe)
    is_over = Event()

    def write():
        """Whoever reads the pipe gets a template, each time."""
        while not is_over.is_set():
            with suppress(BrokenPipeError):
                pipe.write_text(TEMPLATE)

    writer = Thread(target=write)
    writer.start()
    try:
        with pytest.raises(RecipeError, match="cannot be read: it is no file"):
            load_with("pipe.j2")
    finally:
        is_over.set()
        read_end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(read_end)


@pytest.mark.parametrize("given", [{"file": 7}, {"path": "mine.j2"}, 7])
def test_anything_else_is_a_fault(load_with, given):
    with pytest.raises(RecipeError, match="prompt"):
        load_with(given)


@pytest.mark.parametrize("clause", ["include 'other.txt'", "extends prompt", "import 'x' as y"])
def test_a_template_that_includes_another_file_is_refused(load_with, file, clause):
    file("secret", "other.txt")
    file(f"{{% {clause} %}}" + TEMPLATE)
    with pytest.raises(RecipeError, match="includes another file"):
        load_with("mine.j2")


@pytest.mark.parametrize(
    "wrong", ["{{ prompt + 1 }}", "{{ 1 // 0 }}", "{% for x in 3 %}{% endfor %}"]
)
def test_what_goes_wrong_while_a_template_is_filled_in_is_said(wrong):
    with pytest.raises(PromptError, match="prompt template"):
        render(wrong, {"prompt": "p"})
