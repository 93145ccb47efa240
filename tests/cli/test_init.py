"""`orchestrator init`: what it finds, and that the recipe it writes has no faults."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.commands import recipes as init_command
from orchestrator.commands.recipes import names_of, text_of
from orchestrator.recipe.load import load, loads


@pytest.fixture
def server():
    """Start a server that lists models; call it with them, or with another status."""
    started = []

    def start(*models, status=200, body=None):
        seen = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append((self.path, self.headers.get("Authorization")))
                is_models = self.path == "/v1/models"
                entries = [{"id": name, "owned_by": "vllm"} for name in models]
                content = json.dumps({"data": entries}).encode() if body is None else body
                self.send_response(status if is_models else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        started.append((made, thread))
        return f"http://127.0.0.1:{made.server_port}", seen

    yield start
    for made, thread in started:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture
def unused():
    """A port where nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_servers_on_the_usual_ports_become_models(command, here, server, unused, monkeypatch):
    url, _ = server("org/large", "org/small", "judge")
    usual = {int(url.rpartition(":")[2]): "vLLM", unused: "SGLang"}
    monkeypatch.setattr(init_command, "USUAL", usual)
    code, out, err = command("init")
    assert (code, err) == (0, "")
    assert f"found {url}: vllm, org/large, org/small, judge" in out
    assert f"no server on ports {unused} (SGLang) of 127.0.0.1" in out
    recipe = load(here / "evaluation.yaml")
    assert {name: (one.base_url, one.model) for name, one in recipe.models.items()} == {
        "large": (url, "org/large"),
        "small": (url, "org/small"),
        "judge": (url, "judge"),
    }
    assert [one.kind for one in recipe.methods] == ["pairwise_ranking"]
    assert command("check", "evaluation.yaml")[:2] == (0, "evaluation.yaml: no faults\n")


def test_without_a_server_the_bundled_models_are_used(command, here, unused, monkeypatch):
    monkeypatch.setattr(init_command, "USUAL", {unused: "vLLM"})
    assert command("init", "first.yaml")[0] == 0
    recipe = load(here / "first.yaml")
    assert recipe.name == "first"
    assert list(recipe.models) == ["novice", "apprentice", "expert", "judge"]
    assert command("check", "first.yaml")[0] == 0


@pytest.mark.parametrize(("owner", "labels"), [("vllm", "five"), ("somebody", "two")])
def test_labels_are_two_where_a_judge_lists_the_alternatives_of_one_token(
    command, here, server, owner, labels
):
    entries = [{"id": name, "owned_by": owner} for name in ("one", "two", "judge")]
    url, _ = server("judge", body=json.dumps({"data": entries}).encode())
    assert command("init", "--url", url)[0] == 0
    [method] = load(here / "evaluation.yaml").methods
    assert method.method.config.model_dump()["labels"] == labels


def test_flags_choose_models_judge_and_questions(command, here, server, lines):
    url, _ = server("a/one", "b/one", "c", "no")
    (here / "sub").mkdir()
    path = lines("q.jsonl", {"question": "x"})["path"]
    wanted = ["--model", "a/one", "--model", "b/one", "--model", "no", "--judge", "no"]
    code, _, err = command("init", "sub/x.yaml", "--url", f"{url}/v1", *wanted, "--dataset", path)
    assert (code, err) == (0, "")
    recipe = load(here / "sub" / "x.yaml")
    assert list(recipe.models) == ["one", "one-2", "no"]
    assert recipe.methods[0].method.config.model_dump()["judges"] == ("no",)
    assert command("plan", "sub/x.yaml")[0] == 0


@pytest.mark.parametrize(
    ("models", "kind"), [(["alone"], "pointwise"), (["one", "two"], "pairwise_ranking")]
)
def test_of_one_or_two_models_the_judge_is_judged_too(command, here, server, models, kind):
    url, _ = server(*models)
    assert command("init", "--url", url)[0] == 0
    recipe = load(here / "evaluation.yaml")
    (method,) = recipe.methods
    assert method.kind == kind
    assert recipe.candidates(method.method) == tuple(models)
    assert command("check", "evaluation.yaml")[0] == 0
    assert "It judges its own answers too" in (here / "evaluation.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.txt"], "ends in .yaml or .yml"),
        (["a b.yaml"], "not a valid name"),
        (["gone/x.yaml"], "gone: there is no such folder"),
        (["--url", "localhost:8000"], "--url must be a URL such as http://127.0.0.1:8000"),
        (["--url", "http://[bad"], "--url must be a URL such as"),
        (["--url", "http://127.0.0.1:99999"], "--url must be a URL such as"),
        (["--url", "http://me:secret@127.0.0.1"], "--url must not contain a user name"),
        (["--api-key-env", "KEY"], "--api-key-env goes with --url"),
        (["--api-key-env", "sk-12345-secret", "--url", "http://x"], "the name of a variable"),
        (["--api-key-env", "NOT_SET_HERE", "--url", "http://x"], "NOT_SET_HERE is not set"),
    ],
)
def test_wrong_options_are_refused_before_any_request(command, here, arguments, said):
    code, _, err = command("init", *arguments)
    assert code == 2
    assert said in err
    assert "secret" not in err
    assert list(here.iterdir()) == []


def test_names_that_no_server_has_get_the_nearest(command, here, server):
    url, _ = server("large", "small")
    for option in ("--model", "--judge"):
        code, _, err = command("init", "--url", url, option, "larg")
        assert code == 2
        assert "did you mean 'large'?" in err
    code, _, err = command("init", "--url", url, "--dataset", "everday")
    assert code == 2
    assert "did you mean 'everyday'?" in err
    assert list(here.iterdir()) == []


def test_a_dataset_with_faults_is_refused_and_nothing_is_written(command, here, server, lines):
    url, _ = server("large", "small")
    path = lines("bad.jsonl", {"nothing": "x"})["path"]
    code, _, err = command("init", "--url", url, "--dataset", path)
    assert code == 2
    assert "bad.jsonl" in err
    assert not (here / "evaluation.yaml").exists()


def test_a_file_is_overwritten_only_when_asked(command, here, server):
    url, seen = server("a")
    (here / "evaluation.yaml").write_text("mine")
    code, _, err = command("init", "--url", url)
    assert code == 2
    assert "already exists; overwrite it with --force" in err
    assert seen == []
    assert command("init", "--url", url, "--force")[0] == 0
    assert load(here / "evaluation.yaml").name == "evaluation"


def test_servers_that_are_of_no_use_are_named_with_the_cause(command, here, server, unused):
    locked, _ = server(status=401)
    page, _ = server(body=b"<html>hello</html>")
    gone = f"http://127.0.0.1:{unused}"
    code, out, err = command("init", "--url", locked, "--url", page, "--url", gone)
    assert code == 2
    assert f"cannot use {locked}: needs an API key (status 401)" in out
    assert f"cannot use {page}: lists no models at /v1/models (status 200)" in out
    assert f"cannot use {gone}: " in out
    assert "none of these addresses has a model" in err


def test_a_key_goes_to_the_given_address_only_and_into_no_file(command, here, server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    url, seen = server("a", "b")
    code, out, _ = command("init", "--url", url, "--api-key-env", "MY_KEY")
    assert code == 0
    assert {key for _, key in seen} == {"Bearer sk-secret-1234"}
    text = (here / "evaluation.yaml").read_text("utf-8")
    assert "api_key_env: MY_KEY" in text
    assert "sk-secret" not in text + out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=5, unique=True))
def test_any_names_of_a_server_give_a_recipe_without_faults(tmp_path_factory, models):
    names = names_of(models)
    assert len(set(names)) == len(models)
    made = {
        name: {"base_url": "http://127.0.0.1:1", "model": model}
        for name, model in zip(names, models, strict=True)
    }
    text = text_of("x", made, names[-1], "everyday", is_path=False)
    recipe = loads(text.encode(), tmp_path_factory.getbasetemp() / "x.yaml")
    assert [one.model for one in recipe.models.values()] == models
    assert list(recipe.models) == names


def test_a_model_that_llama_server_names_by_its_file_gets_a_short_name():
    names = names_of(["/models/Qwen3-8B-Q4.gguf", "b.gguf/", ".gguf"])
    assert names == ["Qwen3-8B-Q4", "b", "model"]
