"""Recipes and plug-ins to start from: `orchestrator list recipes`, `init` and `new`."""

import argparse
import json
import keyword
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlsplit

import yaml

from orchestrator import plugins
from orchestrator.backend import base_url_fault
from orchestrator.disk.paths import expanded
from orchestrator.errors import EXIT_COMPLETE, LaunchError, UsageError, nearest, on_disk_error
from orchestrator.recipe.load import RECIPE_SUFFIXES, available, loads
from orchestrator.recipe.schema import NAME_PATTERN, VARIABLE_PATTERN
from orchestrator.report import calls
from orchestrator.report.page import print_to
from orchestrator.report.text import confirm, say, write_to
from orchestrator.runner.event_loop import event_loop
from orchestrator.runner.models.asking import USUAL, Found, scan
from orchestrator.runner.planning.prepare import prepare
from orchestrator.runner.servers.connections import key_in


def recipes(options: argparse.Namespace) -> int:
    """List the recipes that come with the project."""
    rows = []
    for path in available():
        lines = path.read_text(encoding="utf-8").splitlines()
        said = (line.partition(":")[2].strip() for line in lines if line.startswith("description:"))
        rows.append((path, next(said, "")))
    if options.json:
        found = [
            {"name": path.stem, "description": about, "file": str(path)} for path, about in rows
        ]
        write_to(sys.stdout, json.dumps(found) + "\n")
    else:
        print_to(sys.stdout, calls.listing([(path.stem, about) for path, about in rows]))
    return EXIT_COMPLETE


def copy(options: argparse.Namespace) -> int:
    """Copy a recipe to a file of the user's, under the name of that file, with its questions."""
    known = {path.stem: path for path in available()}
    name = options.name
    if name not in known and Path(name).suffix in RECIPE_SUFFIXES:
        name = Path(name).stem
    if name not in known:
        raise UsageError(f"unknown recipe {options.name!r}{nearest(name, known)}")
    to = _path(options.to, name)
    text = known[name].read_text(encoding="utf-8")
    # The run of a copy is not the run of the original, and editors look for the schema beside it.
    text = text.replace(f"\nname: {name}\n", f"\nname: {to.stem}\n", 1)
    text = text.removeprefix("# yaml-language-server: $schema=schema.json\n")
    check_free(to, force=options.force)
    if (questions := _questions(known[name])) is not None:
        beside, asked = to.parent / questions.name, questions.read_text(encoding="utf-8")
        if not (beside.is_file() and beside.read_text(encoding="utf-8") == asked):
            write_new(beside, asked, force=options.force)
        confirm(f"wrote {beside}")
    write_new(to, text, force=options.force)
    confirm(f"wrote {to}; run it with: orchestrator run {to}")
    return EXIT_COMPLETE


def _questions(recipe: Path) -> Path | None:
    """The file of questions that comes with a recipe; None where it has none."""
    dataset = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("dataset", {})
    named = dataset.get("path") if isinstance(dataset, dict) else None
    file = recipe.parent / str(named)
    return file if named is not None and file.is_file() else None


def _path(given: str | None, name: str) -> Path:
    to = expanded(f"{name}.yaml" if given is None else given)
    if given is not None and (to.is_dir() or given.endswith("/")):
        to /= f"{name}.yaml"
    if to.suffix not in RECIPE_SUFFIXES:
        raise UsageError(f"{to}: the name of a recipe ends in {' or '.join(RECIPE_SUFFIXES)}")
    if not re.match(NAME_PATTERN, to.stem):
        raise UsageError(f"{to}: {to.stem!r} is not a valid name of a recipe")
    return to


def check_free(file: Path, *, force: bool) -> None:
    """Refuse a file without a folder, and one that exists, unless with `force`."""
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent}: there is no such folder")
    if (file.exists() or file.is_symlink()) and not force:
        raise UsageError(f"{file} already exists; overwrite it with --force")


def write_new(file: Path, text: str, *, force: bool) -> None:
    """Write a file that does not exist; with `force` also one that does."""
    check_free(file, force=force)
    with on_disk_error(f"{file} cannot be written"):
        if force and (file.is_file() or file.is_symlink()):
            file.unlink()
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)


_DEFAULT_NAME: Final = "evaluation"
_DEFAULT_DATASET: Final = "everyday"
_BUNDLED_DATASET: Final = "demo"
_MOST_MODELS: Final = 12
_HOST: Final = "http://127.0.0.1"


def init(options: argparse.Namespace) -> int:
    """Search for servers, and write a recipe for their models that has no faults."""
    to = _path(options.to, _DEFAULT_NAME)
    check_free(to, force=options.force)
    models = _models(_search(options), options)
    judge = _judge(models, options.judge)
    default = _BUNDLED_DATASET if models == BUNDLED else _DEFAULT_DATASET
    name, is_path = _dataset(options.dataset or default, to)
    text = text_of(to.stem, models, judge, name, is_path=is_path)
    recipe = loads(text.encode(), to)
    try:
        prepare(recipe)
    except LaunchError as error:
        # As for `check`: what this machine lacks is no fault of the recipe.
        confirm(f"not on this machine: {error}")
    write_new(to, text, force=options.force)
    confirm(f"wrote {to}; count its requests with: orchestrator plan {to}")
    confirm(f"run it with: orchestrator run {to}")
    return EXIT_COMPLETE


# -- servers ---------------------------------------------------------------------------------------


def _search(options: argparse.Namespace) -> list[Found]:
    """Look for servers and print what was found, and what was not.

    A key goes only to the addresses that the user gave.
    """
    variable = options.api_key_env or ""
    if variable and not re.match(VARIABLE_PATTERN, variable):
        raise UsageError("--api-key-env takes the name of a variable, not the key itself")
    if variable and not options.url:
        raise UsageError("--api-key-env goes with --url: a key is sent only to a given address")
    key = key_in(variable) if variable else ""
    for url in options.url:
        if fault := base_url_fault(url):
            raise UsageError(f"--url {fault}")
    urls = options.url or [f"{_HOST}:{port}" for port in USUAL]
    with event_loop() as (to_end, _):
        found = to_end(scan(urls, key))
    for one in found:
        if one.models:
            confirm(f"found {one.base_url}: {one.kind}, {', '.join(one.models)}")
        elif not one.is_free or options.url:
            say(f"cannot use {one.base_url}: {one.fault}")
    if options.url:
        if not any(one.models for one in found):
            raise UsageError("none of these addresses has a model; nothing was written")
        return found
    free = [urlsplit(one.base_url).port for one in found if one.is_free]
    if free:
        ports = ", ".join(f"{port} ({USUAL[port]})" for port in free if port is not None)
        confirm(f"no server on ports {ports} of 127.0.0.1; give other addresses with --url")
    return found


def _models(found: Sequence[Found], options: argparse.Namespace) -> "Started":
    """The models of the servers that were found; the bundled ones if there are none."""
    pairs = [(one, model) for one in found for model in one.models]
    if options.model:
        known = [model for _, model in pairs]
        for name in options.model:
            if name not in known:
                raise UsageError(f"no server has the model {name!r}{nearest(name, known)}")
        pairs = [pair for pair in pairs if pair[1] in options.model]
    elif len(pairs) > _MOST_MODELS:
        say(f"{len(pairs)} models; using the first {_MOST_MODELS}, choose with --model")
        pairs = pairs[:_MOST_MODELS]
    if not pairs:
        return BUNDLED
    kinds = plugins.kinds(plugins.BACKENDS)
    names = names_of(model for _, model in pairs)
    models = {}
    for name, (one, model) in zip(names, pairs, strict=True):
        models[name] = {"base_url": one.base_url, "model": model}
        # "openai" is what a server is called that does not say more; a run asks again.
        if one.kind in kinds and one.kind != "openai":
            models[name]["backend"] = one.kind
        if options.api_key_env:
            models[name]["api_key_env"] = options.api_key_env
    return models


def _judge(models: "Started", given: str | None) -> str:
    """The name of the judge in the recipe: that of the option, or the last."""
    listed = list(models)
    of_servers = {one["model"]: name for name, one in models.items() if "model" in one}
    names = dict(zip(listed, listed, strict=True)) | of_servers
    if given is None:
        return listed[-1]
    if given not in names:
        raise UsageError(f"no server has the judge {given!r}{nearest(given, names)}")
    return names[given]


def _dataset(given: str, to: Path) -> tuple[str, bool]:
    """A dataset as the recipe names it, and whether that is a path."""
    path = expanded(given)
    if path.exists():
        return os.path.relpath(path, to.parent), True
    kinds = plugins.kinds(plugins.DATASETS)
    if given in kinds:
        return given, False
    raise UsageError(f"{given!r} is no file and no kind of dataset{nearest(given, kinds)}")


# -- the text of a first recipe, with comments -----------------------------------------------------

_TEMPLATES: Final = Path(__file__).parents[1] / "templates"
# Longest name of a model in such a recipe; `model` keeps the server's name whole.
_MOST_NAME: Final = 40
# Models beside the judge that are too few to be compared without it.
_MOST_ALONE: Final = 2
_WORDS: Final = frozenset({"true", "false", "null"})


Started = Mapping[str, Mapping[str, str]]
"""Settings of each model of a first recipe by its name in the recipe; none for a bundled one."""
BUNDLED: Final[Started] = {name: {} for name in ("novice", "apprentice", "expert", "judge")}
"""Models of a recipe for which no server was found."""


def names_of(models: Iterable[str]) -> list[str]:
    """Return names that a recipe may use, one for each name on a server, all different.

    `Qwen/Qwen3-8B` becomes `Qwen3-8B`; a second one `Qwen3-8B-2`. A file loses `.gguf`.
    """
    found: list[str] = []
    for model in models:
        short = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rstrip("/").rpartition("/")[2])
        short = short.removesuffix(".gguf")
        short = short.strip("-.")[:_MOST_NAME] or "model"
        name, number = short, 1
        while name in found:
            number += 1
            name = f"{short}-{number}"
        found.append(name)
    return found


def text_of(name: str, models: Started, judge: str, dataset: str, *, is_path: bool) -> str:
    """Return the recipe as YAML with comments.

    Args:
        name: Of the recipe and its run.
        models: At least one.
        judge: Name of one of them.
        dataset: A path relative to the recipe, or a kind of dataset.
        is_path: Whether `dataset` is a path.
    """
    is_bundled = models == BUNDLED
    entries = {}
    for one, settings in models.items():
        said = {key: _quoted(settings[key]) for key in ("base_url", "model") if key in settings}
        said = {**settings, **said}
        if is_bundled:
            said = {"server": "embedded", "weights": _quoted(f"bundled:{one}")}
        entries[one] = f"{{{', '.join(f'{key}: {value}' for key, value in said.items())}}}"
    # No other command needs it.
    import jinja2  # noqa: PLC0415

    templates = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 (YAML)
    templates.filters.update(key=_key, quoted=_quoted)
    text = (_TEMPLATES / "init.yaml.txt").read_text(encoding="utf-8")
    return templates.from_string(text).render(
        name=name,
        models=entries,
        is_bundled=is_bundled,
        dataset=dataset,
        is_path=is_path,
        judge=judge,
        is_alone=len(models) - 1 < _MOST_ALONE,
        compares=len(models) > 1,
        # Whose labels are read from the alternatives of one token.
        is_plain=not is_bundled and "backend" not in models[judge],
    )


def _key(name: str) -> str:
    """A name as a key; in quotes if YAML could take it for a number or a truth value."""
    is_plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{3,}", name) and name.lower() not in _WORDS
    return name if is_plain else _quoted(name)


def _quoted(text: str) -> str:
    """A text in double quotes; YAML, unlike JSON, joins no surrogates to a character."""
    written = json.dumps(text, ensure_ascii=False)
    return "".join(
        one if one.isprintable() and one <= "\uffff" else f"\\U{ord(one):08x}" for one in written
    )


# -- plug-ins --------------------------------------------------------------------------------------


def new(options: argparse.Namespace) -> int:
    """Write a plug-in, its test and a recipe into the working directory."""
    name = options.name
    if not (name.isascii() and name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise UsageError(
            f"invalid module name {name!r}; use lower-case letters, digits and underscores, "
            "such as my_method"
        )
    if name in sys.stdlib_module_names or name.startswith(("test_", "_")):
        raise UsageError(f"{name!r} names another module or a test; choose another name")
    files = {
        Path(f"{name}.py"): f"{options.family}.py.txt",
        Path(f"test_{name}.py"): f"test_{options.family}.py.txt",
        Path(f"{name}.yaml"): f"{options.family}.yaml.txt",
    }
    taken = [str(file) for file in files if file.exists() or file.is_symlink()]
    if taken:
        raise UsageError(f"{' and '.join(taken)} already exists; nothing was written")
    parts = {"name": name, "title": name.replace("_", " ").capitalize()}
    for file, template in files.items():
        text = Template((_TEMPLATES / template).read_text(encoding="utf-8"))
        write_new(file, text.substitute(parts), force=False)
        confirm(f"wrote {file}")
    confirm(
        f"test it with `pytest test_{name}.py` and run it with "
        f"`orchestrator run {name}.yaml --allow-code`, both here"
    )
    return EXIT_COMPLETE
