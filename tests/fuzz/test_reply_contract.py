"""Replies without an answer through a whole run: their units fail with a cause, others stay.

`tests/wire/test_reply_contract.py` has every field, finish reason and dialect; here a few of each
outcome hit one, many or all items of one model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from orchestrator.interface import api
from orchestrator.interface.result import Result
from tests.fake.http import HttpRequest
from tests.fuzz.mangled import Mangler, mangling

N_ITEMS = 8
HIT = {"none": (), "one": (3,), "many": (0, 2, 3, 7), "all": tuple(range(N_ITEMS))}
ITEM = re.compile(rb"Zanzibar (\d)")
Change = Callable[[dict[str, Any]], None]


def reasoned(choice: dict[str, Any]) -> None:
    choice["message"] = {"role": "assistant", "content": None, "reasoning_content": "Let me think"}
    choice["finish_reason"] = "length"


def withheld(choice: dict[str, Any]) -> None:
    choice["message"]["content"] = choice["message"]["content"][:3]
    choice["finish_reason"] = "content_filter"


def refused(choice: dict[str, Any]) -> None:
    choice["message"] = {"role": "assistant", "content": None, "refusal": "I can't."}


def called(choice: dict[str, Any]) -> None:
    choice["message"] |= {"content": "", "tool_calls": [{"function": {"name": "look_up"}}]}
    choice["finish_reason"] = "tool_calls"


def unsaid(choice: dict[str, Any]) -> None:
    choice["finish_reason"] = None


def misspelled(choice: dict[str, Any]) -> None:
    choice["message"]["content"] = "another text"


def cut(choice: dict[str, Any]) -> None:
    choice["finish_reason"] = "max_tokens"


def renamed(choice: dict[str, Any]) -> None:
    choice["finish_reason"] = "end_turn"


FAILING: dict[Change, str] = {
    reasoned: "no_answer", withheld: "no_answer", refused: "no_answer", called: "no_answer",
    unsaid: "unparseable", misspelled: "unparseable",
}  # fmt: skip
FINE: tuple[Change, ...] = (cut, renamed)


@contextmanager
def changing(change: Change, hit: tuple[int, ...]) -> Iterator[tuple[str, Counter[str]]]:
    """A server whose replies to one model about some items are changed; and what was asked."""
    asked: Counter[str] = Counter()

    def changed(request: HttpRequest, body: bytes) -> bytes:
        found, sent = ITEM.search(request.body), json.loads(request.body or b"{}")
        if found is None:
            return body
        asked[f"{sent['model']} {found[1].decode()}"] += 1
        if sent["model"] != "fake:0.3" or int(found[1]) not in hit:
            return body
        reply = json.loads(body)
        change(reply["choices"][0])
        return json.dumps(reply).encode()

    with mangling("openai", ["fake:0.3", "fake:0.9", "fake:1.0"]) as (url, server):
        assert isinstance(server, Mangler)
        server.change = changed
        yield url, asked


def ran(folder: Path, url: str) -> Result:
    models = {
        name: {"base_url": url, "backend": "openai", "model": model}
        for name, model in (("a", "fake:0.3"), ("b", "fake:0.9"), ("judge", "fake:1.0"))
    }
    items = [{"id": str(n), "prompt": f"Zanzibar {n}?"} for n in range(N_ITEMS)]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    recipe = {
        "models": models,
        "dataset": {"path": str(folder / "items.jsonl"), "fields": {"key": "id"}},
        "methods": [{
            "kind": "pairwise_ranking", "judges": ["judge"], "labels": "two",
            "answer": {"max_tokens": 12},
        }],
        "limits": {"max_attempts": 3},
        "statistics": {"n_resamples": 50},
        "probe": False,
    }  # fmt: skip
    (folder / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
    return api.run(folder / "r.json", run_dir=folder / "run", display="none")


def rows(result: Result, frame: str) -> pl.DataFrame:
    found: pl.DataFrame = result.frames[frame].sort("item")
    return found


@pytest.mark.parametrize("scope", ["one", "many", "all"])
@pytest.mark.parametrize("change", FAILING, ids=lambda change: change.__name__)
def test_what_is_no_answer_is_judged_by_nobody_and_costs_no_other_unit(change, scope, tmp_path):
    hit = HIT[scope]
    with changing(change, hit) as (url, asked):
        result = ran(tmp_path, url)
    answers, judgments = rows(result, "answers"), rows(result, "judgments")
    failed = [str(n) for n in hit]
    own = answers.filter(pl.col("model") == "a")
    assert own.filter(pl.col("status") != "ok")["item"].to_list() == failed
    assert set(own.filter(pl.col("status") != "ok")["cause"]) == {FAILING[change]}
    assert all(own.filter(pl.col("status") != "ok")["message"].to_list())
    assert (answers.filter(pl.col("model") == "b")["status"] == "ok").all()
    assert sorted(set(judgments.filter(pl.col("status") != "ok")["item"])) == failed
    # Asked once each: what the same request would meet again is not sent again.
    assert {n for key, n in asked.items() if not key.startswith("fake:1.0")} == {1}
    judged = {key.split()[1] for key in asked if key.startswith("fake:1.0")}
    assert judged == {str(n) for n in range(N_ITEMS) if n not in hit}


@pytest.mark.parametrize("change", FINE, ids=lambda change: change.__name__)
def test_an_end_by_another_name_is_the_same_end(change, tmp_path):
    with changing(change, HIT["all"]) as (url, asked):
        result = ran(tmp_path, url)
    own = rows(result, "answers").filter(pl.col("model") == "a")
    assert result.ok
    assert set(own["finish_reason"]) == {"length" if change is cut else "stop"}
    assert {n for key, n in asked.items() if not key.startswith("fake:1.0")} == {1}
    said = [note for note in result.notes if "cut by max_tokens" in note]
    assert bool(said) == (change is cut or any("b " in note for note in said))
