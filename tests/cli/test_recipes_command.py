"""`orchestrator list recipes` and `get recipe`, and the lists as JSON."""

import json

import pytest

from orchestrator.recipe.load import available, load


def test_recipes_are_listed_as_json(command):
    code, out, _ = command("list", "recipes", "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["name"] for one in found] == [path.stem for path in available()]
    assert all(one["description"] for one in found)


@pytest.mark.parametrize("name", [path.stem for path in available()])
def test_a_copy_has_no_faults_and_a_name_of_its_own(command, here, name):
    code, out, err = command("get", "recipe", name, "mine.yaml")
    assert (code, err) == (0, "")
    assert "orchestrator run mine.yaml" in out
    assert load(here / "mine.yaml").name == "mine"
    # Beside the copy there is no schema that this line could name.
    assert "$schema=schema.json" not in (here / "mine.yaml").read_text("utf-8")


def test_a_copy_goes_to_the_working_folder_or_into_a_folder(command, here):
    (here / "sub").mkdir()
    for to in ([], ["sub"], ["sub/other.yml"]):
        assert command("get", "recipe", "probdiff", *to)[0] == 0
    files = {str(path.relative_to(here)) for path in here.rglob("*.y*ml")}
    assert files == {"probdiff.yaml", "sub/probdiff.yaml", "sub/other.yml"}


def test_a_file_is_overwritten_only_when_asked(command, here):
    file = here / "probdiff.yaml"
    file.write_text("mine")
    code, _, err = command("get", "recipe", "probdiff")
    assert code == 2
    assert "already exists; overwrite it with --force" in err
    assert file.read_text() == "mine"
    assert command("get", "recipe", "probdiff", "--force")[0] == 0
    assert load(file).name == "probdiff"


def test_the_questions_of_a_recipe_go_with_it_and_overwrite_nothing(command, here):
    assert command("get", "recipe", "rubric_chat")[0] == 0
    assert command("get", "recipe", "rubric_chat", "again.yaml")[0] == 0
    questions = here / "checklists.jsonl"
    questions.write_text("mine")
    code, _, err = command("get", "recipe", "rubric_chat", "third.yaml")
    assert (code, questions.read_text()) == (2, "mine")
    assert "checklists.jsonl already exists; overwrite it with --force" in err
    assert not (here / "third.yaml").exists()
    assert command("get", "recipe", "rubric_chat", "third.yaml", "--force")[0] == 0
    assert load(here / "third.yaml").name == "third"


def test_a_link_is_replaced_and_not_followed(command, here):
    (here / "other").write_text("mine")
    (here / "probdiff.yaml").symlink_to("other")
    assert command("get", "recipe", "probdiff")[0] == 2
    assert command("get", "recipe", "probdiff", "--force")[0] == 0
    assert (here / "other").read_text() == "mine"
    assert not (here / "probdiff.yaml").is_symlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["probdif"], "unknown recipe 'probdif'; did you mean 'probdiff'?"),
        (["../../etc/passwd"], "unknown recipe '../../etc/passwd'"),
        (["probdiff", "x.txt"], "x.txt: the name of a recipe ends in .yaml or .yml"),
        (["probdiff", "a b.yaml"], "'a b' is not a valid name"),
        (["probdiff", "gone/"], "gone: there is no such folder"),
        (["probdiff", "gone/x.yaml"], "gone: there is no such folder"),
        (["probdiff", "\x1b[2J.yaml"], "not a valid name"),
    ],
)
def test_what_can_not_be_copied_is_refused_in_words(command, here, arguments, said):
    code, out, err = command("get", "recipe", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "\x1b" not in err
    assert list(here.iterdir()) == []


def test_other_lists_are_json_too(command, here, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
    assert json.loads(command("runs", "--json")[1]) == []
    (weights,) = json.loads(command("list", "weights", "--json")[1])["published"]
    assert weights["name"] == "smollm2"
    assert json.loads(command("allow", "--list", "--json")[1]) == []
    assert command("allow", "--json")[0] == 2
    assert json.loads(command("servers", "--json")[1]) == []
