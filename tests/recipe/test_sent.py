"""What requests of a model are given besides: how a recipe says it, what is refused, identity."""

import json
import subprocess

import pytest

from orchestrator.errors import RecipeError
from orchestrator.recipe.load import load
from orchestrator.runner.models.identity import model_identity
from orchestrator.runner.servers.connections import endpoint_of, warn_of_missing_keys

URL = "https://models.example/v1"
TOKEN = {"env": "A_TOKEN"}


def loaded(tmp_path, *, overrides=(), top=None, **entry):
    path = tmp_path / "r.json"
    recipe = {
        "name": "r",
        "models": {"a": {"base_url": URL, **entry}, "b": {"base_url": URL}},
        "dataset": {"kind": "demo"},
        "methods": [{"kind": "answers"}],
        **(top or {}),
    }
    path.write_text(json.dumps(recipe, indent=1))
    return load(path, overrides=overrides).models["a"]


def refused(tmp_path, **entry):
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, **entry)
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["Authorization", "x-api-key", "api-key", "Cookie", "X-Auth-Token", "Ocp-Apim-Subscription-Key",
     "X-Token", "Client-Secret", "Proxy-Password", "X-Amz-Security-Token", "X-Auth", "auth",
     "X-Auth-User", "X-JWT", "pwd"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["headers", "query"])
def test_a_literal_of_a_sensitive_name_is_refused_with_the_right_form(tmp_path, place, name):
    if place == "query" and name in {"Authorization", "Cookie"}:
        name = "api_key"
    said = refused(tmp_path, **{place: {name: "short-one"}})
    assert f"models.a.{place}.{name} looks like a secret" in said
    assert f"'{name}: {{env: NAME}}'" in said
    assert "r.json:" in said
    assert "short-one" not in said


@pytest.mark.parametrize("place", ["headers", "query"])
@pytest.mark.parametrize(
    "value", ["hf_" + "abcd" * 8, "value-of-this-machine", "Bearer abc1", "basic dXNlcjpwdw=="]
)
def test_a_literal_that_is_known_for_a_secret_is_refused(tmp_path, monkeypatch, place, value):
    monkeypatch.setenv("OTHER_TOKEN", "value-of-this-machine")
    said = refused(tmp_path, **{place: {"X-Team": value}})
    assert "looks like a secret" in said
    assert value not in said


@pytest.mark.parametrize("name", ["X-Author", "anthropic-version", "HTTP-Referer", "X-Team"])
def test_a_header_that_names_no_secret_is_taken(tmp_path, name):
    assert loaded(tmp_path, headers={name: "Bearers of the torch"}).entry.headers


@pytest.mark.parametrize("name", ["api-key", "x-api-key", "password"])
@pytest.mark.parametrize("place", ["headers", "query"])
def test_a_sensitive_name_is_taken_from_the_environment_and_not_in_a_backend(tmp_path, place, name):
    sent = {place: {name: {"env": "A_VALUE"}}}
    assert loaded(tmp_path, **sent).resolved()[place] == sent[place]
    said = refused(tmp_path, backend={"kind": "openai", **sent})
    assert "do not write an API key in a recipe" in said


def test_a_secret_in_defaults_or_an_override_is_refused_and_not_shown(tmp_path):
    top = {"defaults": {"models": {"headers": {"Authorization": "short-one"}}}}
    assert "short-one" not in refused(tmp_path, top=top)
    for text in ("models.a.headers.Cookie=short-one", "models.a.headers={X-Token: short-one}",
                 "models.a.query={sig: short-one}"):  # fmt: skip
        said = refused(tmp_path, overrides=[text])
        assert "looks like a secret" in said
        assert "short-one" not in said


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"headers": {"X-A": 5}}, "models.a.headers.X-A: must be text in quotes, or {env: NAME}"),
        ({"headers": {"X-A": {"evn": "A"}}}, "models.a.headers.X-A: must be text in quotes, or"),
        ({"headers": {"X-A": {"env": "a-b"}}}, "must be the name of an environment variable"),
        ({"headers": {"Host": "x"}}, "models.a.headers.Host: this header is decided by"),
        ({"headers": {"X-A": "a\nb"}}, "models.a.headers.X-A: must be printable ASCII on one line"),
        ({"headers": {"X A": "a"}}, "models.a.headers.X A: the name of a header has letters"),
        ({"headers": "x"}, "models.a.headers: must be a mapping of names to values"),
        ({"headers": {"X-A": "a", "x-a": TOKEN}}, "models.a.headers: names a header twice"),
        ({"base_url": f"{URL}?v=1", "query": {"v": "2"}}, "models.a.query: 'v' is in base_url"),
        ({"base_url": [URL, f"{URL}?v="], "query": {"v": TOKEN}}, "'v' is in base_url already"),
        ({"base_url": f"{URL}/chat/completions"}, "must end before '/chat/completions'"),
        ({"base_url": f"{URL}/v1/responses"}, "must end before '/responses'"),
        ({"base_url": f"{URL}/completions/?v=1"}, "must end before '/completions/'"),
        ({"base_url": f"{URL} "}, "models.a.base_url: must be a URL such as"),
        ({"base_url": [URL, "https://models.example/"]}, "a list of different addresses"),
        ({"extra_body": {"temperature": 1}}, "models.a.extra_body: already set by the recipe"),
        ({"extra_body": {"hf_token": "x"}}, "models.a.extra_body.hf_token looks like a secret"),
        ({"ca_file": "no.pem"}, "models.a.ca_file: 'no.pem' can't be read: No such file"),
        ({"ca_file": "r.json"}, "r.json' holds no certificate in PEM"),
        ({"ca_file": "."}, "can't be read: Is a directory"),
    ],
)
def test_what_can_not_be_sent_is_refused_at_its_line(tmp_path, entry, said):
    assert said in refused(tmp_path, **entry)


@pytest.mark.parametrize("field", ["headers", "query"])
def test_a_value_in_place_of_a_variable_is_one_fault_that_does_not_show_it(tmp_path, field):
    said = refused(tmp_path, **{field: {"X-A": {"env": "sk-oops-1"}}})
    assert len(said.splitlines()) == 1
    assert said.endswith("must be the name of an environment variable, not the key itself")


@pytest.mark.parametrize("field", ["headers", "query", "ca_file"])
def test_what_goes_with_an_address_needs_one(tmp_path, field):
    value = "ca.pem" if field == "ca_file" else {"X-A": "b"}
    entry = {"base_url": None, "server": "embedded", "weights": "bundled:judge", field: value}
    assert f"models.a.{field}: can be used only with 'base_url', not with 'server'" in refused(
        tmp_path, **entry
    )


@pytest.mark.parametrize(
    "text", ["${NAME}", "$NAME", "http://${NAME}/v1", "{{ NAME }}", "{{ env.NAME }}", "%NAME%"]
)
@pytest.mark.parametrize("field", ["base_url", "model", "headers", "query", "ca_file"])
def test_a_variable_is_refused_with_what_to_write(tmp_path, text, field):
    value = {"X-Team": text} if field in {"headers", "query"} else text
    said = refused(tmp_path, **{field: value})
    assert f"models.a.{field}" in said
    assert "reads no variables" in said
    assert ("'X-Team: {env: NAME}'" if field in {"headers", "query"} else "--set models.a") in said


def test_a_variable_is_refused_in_a_path_and_taken_in_a_text(tmp_path):
    assert "--set dataset.path" in refused(tmp_path, top={"dataset": {"path": "$HOME/q.jsonl"}})
    assert loaded(tmp_path, system="Say ${x} and {{ y }}.")
    assert loaded(tmp_path, base_url="https://h/a$b/50%25/%C3%A9%C3/v1")


def test_no_setting_leaves_no_trace(tmp_path):
    spec = loaded(tmp_path)
    assert spec.resolved().keys() == {"base_url", "model", "limits"}
    assert model_identity(spec).keys() == {"base_url", "model", "backend"}


def test_fields_of_bodies_are_a_part_of_the_identity_and_how_they_travel_is_not(tmp_path):
    plain = model_identity(loaded(tmp_path))
    sent = {"headers": {"X-Team": "evals", "X-Token": TOKEN}, "query": {"sig": TOKEN}}
    assert model_identity(loaded(tmp_path, **sent)) == plain
    added = model_identity(loaded(tmp_path, extra_body={"b": 1, "a": {"d": 1, "c": 2}}))
    assert added == plain | {"extra_body": '{"a": {"c": 2, "d": 1}, "b": 1}'}


def test_a_query_is_as_if_it_were_written_in_the_address(tmp_path):
    split = loaded(tmp_path, query={"api-version": "2024-10-21", "x": "a b&c"})
    whole = loaded(tmp_path, base_url=f"{URL}?api-version=2024-10-21&x=a%20b%26c")
    assert split.base_url == whole.base_url
    assert model_identity(split) == model_identity(whole)
    assert split.resolved() == whole.resolved()


def test_what_is_resolved_loads_to_the_same_and_names_variables_only(tmp_path, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "Bearer 0123456789abcdef")
    entry = {
        "headers": {"X-Team": "evals", "X-Token": TOKEN},
        "query": {"v": "1", "sig": TOKEN},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
    }
    spec = loaded(tmp_path, **entry)
    resolved = spec.resolved()
    assert resolved["query"] == {"sig": TOKEN}
    assert resolved["base_url"] == "https://models.example?v=1"
    assert loaded(tmp_path, **resolved).resolved() == resolved
    endpoint = endpoint_of(spec, resolved["base_url"])
    assert endpoint.headers == {"X-Team": "evals", "X-Token": "Bearer 0123456789abcdef"}
    assert "0123456789abcdef" in endpoint.secret.split("\n")
    assert "evals" not in endpoint.secret


def test_a_variable_that_is_not_set_is_named_before_and_when_it_is_needed(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.delenv("A_TOKEN", raising=False)
    spec = loaded(tmp_path, headers={"X-Token": TOKEN})
    warn_of_missing_keys([spec])
    assert "a: the environment variable A_TOKEN is not set" in caplog.text
    with pytest.raises(Exception, match="model 'a': the environment variable A_TOKEN is not set"):
        endpoint_of(spec, URL)


def test_certificates_are_relative_to_the_recipe(tmp_path):
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    subprocess.run(
        ["openssl", *made, "-subj", "/CN=x", "-keyout", "key.pem", "-out", "ca.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    spec = loaded(tmp_path, ca_file="ca.pem")
    assert spec.entry.ca_file == str(tmp_path / "ca.pem")
    assert endpoint_of(spec, URL).ca_file == str(tmp_path / "ca.pem")
    assert model_identity(spec) == model_identity(loaded(tmp_path))
    assert "key.pem' holds no certificate in PEM" in refused(tmp_path, ca_file="key.pem")
