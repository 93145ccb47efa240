"""Whatever a recipe file holds, it is loaded or refused with the file and line of every fault."""

import json
import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from orchestrator.errors import Fault, RecipeError
from orchestrator.plugins.base import Settings
from orchestrator.recipe import schema
from orchestrator.recipe.load import loads
from orchestrator.recipe.settings import Cluster
from orchestrator.recipe.source import MAX_CHARACTERS
from tests.conftest import ROOT
from tests.fuzz.fuzzing import HOSTILE, JUNK, change, cut_bytes, fuzz

GOOD = tuple(path.read_bytes() for path in sorted((ROOT / "recipes").glob("*.yaml")))
BAD = tuple(path.read_bytes() for path in sorted((ROOT / "tests/recipe/bad").glob("*.yaml")))
FILE = ROOT / "recipes" / "fuzzed.yaml"
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
MOST_CPU_S = 5.0
PATHS = (
    "~no-such-user/x",
    "a\0b",
    "x" * 5000,
    "/proc/self/mem",
    "/dev/zero",
    "..",
    "/",
    "~",
    ".j2",
)


SECTIONS: dict[tuple[str, ...], type[Settings]] = {
    (): schema.RecipeFile,
    ("limits",): schema.Limits,
    ("budget",): schema.Budget,
    ("window",): schema.Window,
    ("resources",): schema.Resources,
    ("statistics",): schema.StatisticsSettings,
    ("cluster",): Cluster,
    ("models", "one", "price"): schema.Price,
    ("models", "one", "thinking"): schema.Thinking,
    ("models", "one", "limits"): schema.Limits,
}
WRONG = (-1, 1.5, "", "0%", [1], {"a": 1}, 10**400, "n" * 300)
# How pydantic speaks.
FOREIGN = re.compile(r"Input|\b(String|List|Dictionary|Tuple|Value error)\b|should|instance of")


@pytest.mark.parametrize("section", SECTIONS, ids=".".join)
def test_a_wrong_value_is_one_fault_in_our_words(section):
    for name in SECTIONS[section].model_fields:
        for value in WRONG:
            address = {"base_url": "http://127.0.0.1:1"}
            data: dict[str, Any] = {
                "models": {"one": address, "two": address, "judge": address},
                "dataset": {"kind": "demo"},
                "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
            }
            part = data
            for key in section:
                part[key] = part = dict(part.get(key, {}))
            part[name] = value
            said = [fault.message for fault in faults_of(json.dumps(data).encode())]
            place = ".".join((*section, name))
            assert sum(one.startswith(f"{place}: must") for one in said) <= 1, said
            assert not [one for one in said if FOREIGN.search(one)]


def faults_of(content: bytes) -> list[Fault]:
    """Return the faults of a recipe; any other error passes through."""
    try:
        loads(content, FILE)
    except RecipeError as error:
        return error.faults
    return []


def read(content: bytes) -> bool:
    """Return True if it is loaded; if not, every fault names its place, and soon."""
    begun = time.process_time()
    faults = faults_of(content)
    assert time.process_time() - begun < MOST_CPU_S
    n_lines = 1 + len(LINE_BREAK.findall(content.decode("utf-8", "replace")))
    for fault in faults:
        assert fault.file == str(FILE)
        assert 1 <= fault.line <= n_lines
        str(fault).encode()
    return not faults


@st.composite
def changed_recipes(draw: st.DrawFn) -> bytes:
    """A recipe of ours with some settings changed to anything that YAML can write."""
    data = yaml.safe_load(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        data = change(draw, data, JUNK | st.sampled_from(PATHS))
    return yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass")


INDICATORS = st.lists(
    st.sampled_from([
        "a", ":", ": ", "- ", "\n", "\n  ", "\t", "[", "]", "{", "}", ",", "&a ", "*a", "<<: ",
        "!!binary ", "!!python/object:os.system ", "| ", "> ", "'", '"', "\\x", '"\\ud800"', "#",
        "---\n", "...\n", "%YAML 9.9999999999999999999999\n", "? ", "0x", "1e999", "0o8", "\u2028",
        "\x85", "\ufeff", "\r", "models", "dataset", "methods", "kind", "9" * 30, "@", "`", "\x1b",
    ]),
    max_size=30,
).map(lambda parts: "".join(parts).encode())  # fmt: skip


@fuzz(60, content=changed_recipes())
def test_changed_settings_are_loaded_or_refused(content):
    read(content)


@fuzz(60, content=cut_bytes(GOOD + BAD))
def test_recipes_cut_or_garbled_are_loaded_or_refused(content):
    read(content)


@fuzz(60, content=INDICATORS)
def test_the_marks_of_yaml_in_any_order_are_loaded_or_refused(content):
    read(content)


@fuzz(40, content=st.binary(max_size=80))
def test_bytes_are_loaded_or_refused(content):
    read(content)


@pytest.mark.parametrize("place", ["dataset", "weights", "answers", "template", "file"])
@pytest.mark.parametrize("path", PATHS)
def test_odd_paths_are_refused(place, path):
    data = yaml.safe_load((ROOT / "recipes/pairwise_ranking.yaml").read_bytes())
    first = next(iter(data["models"]))
    match place:
        case "dataset":
            data["dataset"] = {"path": path, "kind": "jsonl"}
        case "weights":
            data["models"][first]["weights"] = path
        case "answers":
            data["models"][first] = {"answers": {"path": path}}
        case "template":
            data["methods"][0]["prompt"] = f"{path}.j2"
        case _:
            data["methods"][0]["prompt"] = {"file": path}
    read(yaml.safe_dump(data).encode())


@pytest.mark.parametrize("text", HOSTILE)
def test_odd_names_and_settings_are_refused_in_words_that_can_be_written(text):
    data = yaml.safe_load((ROOT / "recipes/pairwise_ranking.yaml").read_bytes())
    data["models"][text] = {text: text}
    data["dataset"][text] = text
    data[text] = {text: [text]}
    read(yaml.safe_dump(data, allow_unicode=False).encode("utf-8", "surrogatepass"))


N = MAX_CHARACTERS
BOMBS = {
    "deep_flow": b"[" * (N - 1),
    "deep_map": b"{a: " * (N // 4 - 1),
    "deep_block": b"".join(b" " * n + b"a:\n" for n in range(1400)),
    "dashes": b"- " * (N // 2 - 1),
    "question_marks": b"? " * (N // 2 - 1),
    "one_long_word": b"a" * (N - 1),
    "one_long_key": b"a" * (N - 9) + b": 1",
    "one_long_string": b'"' + b"\\u0041" * (N // 6 - 2) + b'"',
    "many_keys": b"".join(b"k%d: 1\n" % n for n in range(N // 10)),
    "many_items": b"- 1\n" * (N // 4 - 1),
    "many_twice": b"a: 1\n" * (N // 5 - 1),
    "many_anchors": b"".join(b"- &a%d 1\n" % n for n in range(N // 14)),
    "aliases": b"a: &a [1]\nb: [" + b"*a, " * (N // 5) + b"]",
    "doubling": b"a0: &a0 [x, x]\n" + b"".join(
        b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 400)
    ),
    "merging": b"a0: &a0 {x: 1}\n" + b"".join(
        b"a%d: &a%d {<<: [*a%d, *a%d], k%d: 1}\n" % (n, n, n - 1, n - 1, n) for n in range(1, 40)
    ),
    "merging_wide": b"a: &a {" + b", ".join(b"k%d: 1" % n for n in range(5000)) + b"}\nb:\n"
    + b"  - {<<: *a}\n" * 3,
    "merging_often": b"a: &a {k: 1}\nb: {" + b", ".join([b"<<: *a"] * 6000) + b"}",
    "of_itself": b"a: &a {<<: *a}\n",
    "in_itself": b"a: &a [*a]\n",
    "whole_number": b"seed: " + b"9" * (N - 10),
    "hexadecimal": b"seed: 0x" + b"f" * (N - 10),
    "fraction": b"budget: {money: 1" + b"0" * (N - 30) + b".5}",
    "sixties": b"seed: 1" + b":59" * (N // 4),
    "comment": b"#" * (N - 1),
    "spaces": b" " * (N - 1),
    "blank_lines": b"\n" * (N - 1),
    "too_long": b"a" * (N + 1),
    "directive": b"%YAML " + b"9" * (N - 20) + b".1\n---\na: 1",
    "surrogate": b'name: "\\ud800"',
    "nul": b"name: a\0b",
    "utf_16": "name: a".encode("utf-16"),
    "not_utf_8": b"name: \xff\xfe",
}  # fmt: skip


QUICK = {
    "deep_map", "one_long_word", "many_twice", "doubling", "merging", "merging_wide", "sixties",
    "of_itself", "in_itself", "whole_number", "too_long", "surrogate", "nul", "utf_16", "not_utf_8",
}  # fmt: skip


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(bomb, marks=() if bomb in QUICK else (pytest.mark.slow, pytest.mark.long))
        for bomb in BOMBS
    ],
)
def test_bombs_are_refused_in_time(bomb):
    assert not read(BOMBS[bomb])
