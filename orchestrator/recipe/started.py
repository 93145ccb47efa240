"""The text of a first recipe, with comments, for `orchestrator init`."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

MOST_NAME: Final = 40
"""Longest name of a model in such a recipe; `model` keeps the server's name whole."""

# Models beside the judge that are too few to be compared without it.
_MOST_ALONE: Final = 2
_WORDS: Final = frozenset({"true", "false", "null"})


class StartedModel(msgspec.Struct, frozen=True):
    """A model of the recipe.

    Attributes:
        name: In the recipe.
        base_url: Address of its server; "" for a bundled model.
        model: Name on the server.
        backend: Kind of back-end, if it is known.
        api_key_env: Environment variable of its key; "" for none.
    """

    name: str
    base_url: str = ""
    model: str = ""
    backend: str = ""
    api_key_env: str = ""


BUNDLED: Final = tuple(StartedModel(name) for name in ("novice", "apprentice", "expert", "judge"))
"""Models of a recipe for which no server was found."""


def names_for(models: Iterable[str]) -> list[str]:
    """Return names that a recipe may use, one for each name on a server, all different.

    `Qwen/Qwen3-8B` becomes `Qwen3-8B`; a second one `Qwen3-8B-2`. A file loses `.gguf`.
    """
    found: list[str] = []
    for model in models:
        short = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rstrip("/").rpartition("/")[2])
        short = short.removesuffix(".gguf")
        short = short.strip("-.")[:MOST_NAME] or "model"
        name, number = short, 1
        while name in found:
            number += 1
            name = f"{short}-{number}"
        found.append(name)
    return found


def text_of(
    name: str, models: Sequence[StartedModel], judge: str, dataset: str, *, is_path: bool
) -> str:
    """Return the recipe as YAML with comments.

    Args:
        name: Of the recipe and its run.
        models: At least one.
        judge: Name of one of them.
        dataset: A path relative to the recipe, or a kind of dataset.
        is_path: Whether `dataset` is a path.
    """
    parts = [
        f"name: {name}",
        "description: A first comparison of models, written by `orchestrator init`.",
        "seed: 0",
        "",
        *_models(models),
        "",
        *_dataset(dataset, is_path=is_path),
        "",
        *_methods(judge, models),
        "",
        "# Stop before more is spent; raise it and run the same command to continue.",
        "budget: {requests: 100000}",
    ]
    return "\n".join(parts) + "\n"


def _models(models: Sequence[StartedModel]) -> list[str]:
    if not models[0].base_url:
        return [
            "# No server was found, so these are small models that come with orchestrator and run",
            "# on this machine. To evaluate models on a server:",
            '#   mine: {base_url: "http://127.0.0.1:8000", model: my-org/my-model}',
            "models:",
            *(
                f'  {one.name}: {{server: embedded, weights: "bundled:{one.name}"}}'
                for one in models
            ),
        ]
    lines = [
        "# Names are free to choose; `model` is the name on the server. A hosted endpoint gets",
        "# `api_key_env: VARIABLE`, and `price: {input: 0.5, output: 1.5}` per million tokens.",
        "models:",
    ]
    for one in models:
        settings = [f"base_url: {_quoted(one.base_url)}", f"model: {_quoted(one.model)}"]
        settings += [f"backend: {one.backend}"] if one.backend else []
        settings += [f"api_key_env: {one.api_key_env}"] if one.api_key_env else []
        lines.append(f"  {_key(one.name)}: {{{', '.join(settings)}}}")
    return lines


def _dataset(dataset: str, *, is_path: bool) -> list[str]:
    if is_path:
        return [
            "# If columns have other names: fields: {prompt: COLUMN, reference: COLUMN}",
            f"dataset: {{path: {_quoted(dataset)}}}",
        ]
    return [
        "# A bundled dataset; `orchestrator list datasets` lists all. Your own, one a line",
        '# as {"question": "…", "answer": "…"}: dataset: {path: questions.jsonl}',
        f"dataset: {{kind: {dataset}}}",
    ]


def _methods(judge: str, served: Sequence[StartedModel]) -> list[str]:
    models = [one.name for one in served]
    others = [name for name in models if name != judge]
    is_bundled = not served[0].base_url
    # Whose labels are read from the alternatives of one token.
    plain = [one.name for one in served if one.base_url and not one.backend]
    kind = "pairwise_ranking" if len(models) > 1 else "pointwise"
    most = 24 if is_bundled else 512
    compares = "compares each two answers in both orders"
    lines = [
        f"# The judge {'grades each answer' if kind == 'pointwise' else compares}.",
        "# Its verdict is read from the probabilities of its labels; if the server gives them,",
        "# `orchestrator servers probe` says.",
    ]
    if len(others) < _MOST_ALONE:
        lines += [
            "# It judges its own answers too, which favours them: another model is a better judge."
        ]
    lines += ["methods:", f"  - kind: {kind}", f"    judges: [{_key(judge)}]"]
    if len(others) < _MOST_ALONE:
        lines += [f"    candidates: [{', '.join(map(_key, models))}]"]
    if judge in plain and kind == "pairwise_ranking":
        lines += ["    labels: two        # A and B; servers of a known kind read five labels too"]
    if is_bundled:
        lines += ["    prompt: compact    # the only prompt that the bundled judge knows"]
    return [*lines, f"    answer: {{max_tokens: {most}, temperature: 0}}"]


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
