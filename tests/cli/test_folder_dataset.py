"""A folder as the dataset of a recipe, by its path."""

import json

import pytest


@pytest.fixture
def questions(here):
    (here / "gsm8k" / "data").mkdir(parents=True)
    rows = "".join(json.dumps({"question": f"q{n}", "answer": str(n)}) + "\n" for n in range(3))
    (here / "gsm8k" / "data" / "test.jsonl").write_text(rows, encoding="utf-8")


@pytest.mark.parametrize("kind", [{}, {"kind": "folder"}])
def test_it_is_found_with_and_without_its_kind(command, recipe, questions, kind):
    path = recipe(dataset={"path": "gsm8k", **kind})
    assert command("check", path)[0] == 0
    assert json.loads(command("plan", path, "--json")[1])["n_items"] == 3


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ({"path": "gsm8k", "split": "train"}, "no split 'train'; available: test"),
        ({"kind": "folder", "path": "gsm8"}, "no such folder: 'gsm8'; did you mean 'gsm8k'?"),
        ({"kind": "folder", "path": "gsm8k/data/test.jsonl"}, "is a file"),
        ({"kind": "jsonl", "path": "gsm8k"}, "is a folder"),
        ({"path": "gsm8k", "splitt": "test"}, "did you mean 'split'?"),
        ({"path": "nowhere"}, "cannot detect the kind of 'nowhere'"),
        ({"path": "log.eval"}, "suffix; `inspect log dump` writes it as JSON"),
    ],
)
def test_what_is_wrong_is_named(command, recipe, questions, dataset, said):
    code, _, err = command("check", recipe(dataset=dataset))
    assert code == 2
    assert said in err
