"""Settings that several entries share: `defaults:`, and blocks for YAML anchors."""

import pytest

from orchestrator.errors import RecipeError
from orchestrator.recipe.load import load

HEAD = "name: r\ndataset: {kind: demo, n: 2}\n"
SERVER = "base_url: 'http://127.0.0.1:1', backend: fake"
METHODS = "methods:\n  - {kind: pairwise_ranking, judges: [j]}\n"
MODELS = "models:\n  a: {<<: *s, model: m1}\n  b: {<<: *s, model: m2}\n  j: {<<: *s, model: m3}\n"
PLAIN = (
    f"models:\n  a: {{model: m1, {SERVER}}}\n  b: {{model: m2, {SERVER}}}\n"
    f"  j: {{model: m3, {SERVER}}}\n{METHODS}"
)


@pytest.fixture
def resolved(tmp_path):
    def read(text, **options):
        path = tmp_path / "r.yaml"
        path.write_text(HEAD + text)
        return load(path, **options).resolved()

    return read


def faults(resolved, text, **options):
    with pytest.raises(RecipeError) as error:
        resolved(text, **options)
    return [(fault.line, fault.message) for fault in error.value.faults]


@pytest.mark.parametrize(
    "block",
    [
        f"defaults: &s {{{SERVER}}}\n",
        f"x-server: &s {{{SERVER}}}\n",
        f".server: &s {{{SERVER}}}\n",
        f"_shared:\n  servers:\n    - &s {{{SERVER}}}\n",
        f"x-unused: 1\nanchors: &s {{{SERVER}}}\n",
    ],
)
def test_a_block_of_anchors_is_no_setting(resolved, block):
    assert resolved(block + MODELS + METHODS) == resolved(PLAIN)


@pytest.mark.parametrize("value", ["3", "text", "[{a: 1}]", "null", "true"])
def test_a_block_may_be_anything(resolved, value):
    assert resolved(f"defaults: &d {value}\nx-other: *d\n" + PLAIN) == resolved(PLAIN)


def test_defaults_are_written_into_every_entry(resolved):
    models = "models: {a: {model: m1}, b: {model: m2}, j: {model: m3}}\n"
    methods = "methods: [{kind: pairwise_ranking}]\n"
    shared = f"defaults: {{models: {{{SERVER}}}, methods: {{judges: [j]}}}}\n"
    assert resolved(shared + models + methods) == resolved(PLAIN)
    # In any order, and over the command line too.
    assert resolved(methods + models + shared) == resolved(PLAIN)
    other = "defaults.models.base_url=http://127.0.0.1:2"
    found = resolved(shared + models + methods, overrides=[other])
    assert {one["base_url"] for one in found["models"].values()} == {"http://127.0.0.1:2"}


def test_an_entry_says_otherwise(resolved, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"key": "1", "text": "x"}\n')
    text = (
        f"defaults: {{models: {{{SERVER}, min_servers: 1}}, methods: {{judges: [j]}}}}\n"
        "models:\n  a: {answers: {path: a.jsonl}}\n  b: {server: fake, weights: 'b:0.5'}\n"
        "  c: {model: m, backend: openai}\n  j: {model: m3}\n"
        "methods: [{kind: pairwise_ranking}, {kind: pointwise, judges: [c]}]\n"
    )
    found = resolved(text)
    assert found["models"]["b"]["server"]["kind"] == "fake"
    assert "base_url" not in found["models"]["b"]
    assert found["models"]["c"]["backend"]["kind"] == "openai"
    assert [one["judges"] for one in found["methods"]] == [["j"], ["c"]]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("defaults: {backend: openai}\n", 3),
        ("defaults: [1]\n", 3),
        ("defaults: text\n", 3),
        ("defaults: {models: 3}\n", 3),
        ("defaults: {models: &x {}, methods: 1}\nx-other: *x\n", 3),
        ("defaults:\n  models: {}\n  limits: {}\n", 5),
    ],
)
def test_what_can_be_no_default_says_what_can(resolved, text, line):
    found = faults(resolved, text + PLAIN)
    assert [one for one in found if one[0] == line and "a block for anchors" in one[1]]


def test_a_setting_that_is_not_known_is_still_a_fault(resolved):
    assert any("modles" in said for _, said in faults(resolved, "modles: {}\n" + PLAIN))
    shared = f"defaults: {{models: {{{SERVER}, colour: red}}}}\n"
    models = "models: {a: {model: m1}, b: {model: m2}, j: {model: m3}}\n"
    assert any("colour" in said for _, said in faults(resolved, shared + models + METHODS))


def test_no_secret_hides_in_a_block(resolved):
    assert faults(resolved, "x-server: {api_key: sk-123456789}\n" + PLAIN)
    assert faults(resolved, "defaults: {models: {api_key: sk-123456789}}\n" + PLAIN)
