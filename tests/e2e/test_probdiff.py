"""ProbDiff and its studies by the real command: rows from recorded replies, nothing sent twice."""

import json
import urllib.request
from typing import Any

import numpy as np
import pytest

from orchestrator.errors import EXIT_COMPLETE
from tests.conftest import BUNDLED, ROOT
from tests.e2e.runs import MODELS, command, frames, run, stats, write_recipe
from tests.recipes.test_recipes import delete_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DRAWN = {
    "answer": {"max_tokens": 8, "temperature": 0.7},
    "revision": {"max_tokens": 8, "temperature": 0.1},
}
WARM = {**DRAWN, "revision": {"max_tokens": 8, "temperature": 0.7}}
METHODS = [
    {"kind": "probdiff", **DRAWN},
    {"kind": "probdiff", "name": "strict", "deltas": [-0.01], **DRAWN},
    {"kind": "probdiff", "name": "warm", **WARM},
    {"kind": "judged_rewrites", "judges": ["judge"], **DRAWN},
    {"kind": "consistency", "answer": DRAWN["answer"], "similarity": {"kind": "rouge_l"}},
    {"kind": "samples", "n": 4, "answer": DRAWN["answer"]},
]
N_MODELS = 3


@pytest.fixture
def conversations(tmp_path):
    """Items of one turn and of two."""
    rows = [{"key": f"k{i}", "turns": [f"first {i}", f"second {i}"][: 1 + i % 2]} for i in range(6)]
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return {"path": str(path), "fields": {"turns": "turns"}}


def post(url: str, route: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 (loopback)
        f"{url}{route}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return dict(json.load(reply))


def ell(url: str, model: str, messages: list[tuple[str, str]], text: str) -> float:
    body = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in messages],
        "text": text,
    }
    return float(np.mean(post(url, "/v1/score", body)["logprobs"]))


def test_rows_follow_from_what_the_server_says(server, conversations, tmp_path):
    recipe = write_recipe(
        tmp_path / "r.json",
        server,
        dataset=conversations,
        methods=[{"kind": "probdiff", "candidates": ["weak", "mid", "strong"], **DRAWN}],
    )
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    rows = frames(tmp_path / "run")["probdiff"].sort("item", "model", "turn").to_dicts()
    assert len(rows) == N_MODELS * 9
    names = dict(zip(("weak", "mid", "strong", "judge"), MODELS, strict=True))
    first = {(row["item"], row["model"]): row["answer"] for row in rows if row["turn"] == 1}
    for row in rows:
        number, model = row["item"][1:], row["model"]
        conversation = [("user", f"first {number}")]
        if row["turn"] == 2:
            answer = ("assistant", first[row["item"], model])
            conversation += [answer, ("user", f"second {number}")]
        ends = [
            ell(server, names[model], conversation, row[text]) for text in ("answer", "rewriting")
        ]
        assert row["ell_first"] == pytest.approx(ends[0], abs=1e-6)
        assert row["d"] == pytest.approx(ends[1] - ends[0], abs=1e-6)


def first_answers(rows, column):
    of_turn = rows.filter(rows["turn"] == 1)
    return set(of_turn.select("item", "model", column).iter_rows())


def test_methods_share_what_they_draw_and_send_nothing_when_their_rows_are_deleted(
    server, conversations, tmp_path
):
    recipe = write_recipe(tmp_path / "r.json", server, dataset=conversations, methods=METHODS)
    first = run(recipe, tmp_path / "run")
    assert first.returncode == EXIT_COMPLETE, first.stderr
    counted = stats(server)
    assert counted["asked_again"] == 0
    before = frames(tmp_path / "run")
    turns, items = 9 * N_MODELS, 6 * N_MODELS
    # Answers, two sets of rewritings, two further answers, three further samples.
    assert counted["by_route"]["chat"] == turns + 2 * turns + 2 * items + 3 * items
    texts = first_answers(before["answers"], "text")
    for name in ("probdiff", "judged_rewrites", "consistency"):
        assert first_answers(before[name], "answer") == texts, name
    drawn = before["samples"]
    assert first_answers(drawn.filter(drawn["sample"] == 0), "text") == texts
    delete_rows(tmp_path / "run")
    again = run(recipe, tmp_path / "run")
    assert again.returncode == EXIT_COMPLETE, again.stderr
    assert stats(server)["total"] == counted["total"]
    after = frames(tmp_path / "run")
    assert all(after[name].equals(frame) for name, frame in before.items())


def test_thresholds_cost_no_request(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=6, methods=METHODS[:1])
    run(recipe, tmp_path / "run")
    total = stats(server)["total"]
    done = run(recipe, tmp_path / "run", "--set", "methods.0.deltas=[-0.5,-1]", "--full")
    assert done.returncode == EXIT_COMPLETE
    assert stats(server)["total"] == total
    assert "share with d >= -0.5" in " ".join(done.stdout.split())


def test_ten_samples_under_one_seed_are_not_ten_equal_texts(server, tmp_path):
    method = {"kind": "samples", "n": 10, "answer": {"max_tokens": 8, "temperature": 1}}
    recipe = write_recipe(tmp_path / "r.json", server, n=2, methods=[method])
    assert run(recipe, tmp_path / "run").returncode == EXIT_COMPLETE
    rows = frames(tmp_path / "run")["samples"]
    assert rows.group_by("item", "model").n_unique()["text"].min() == 10


def test_a_server_that_can_not_score_is_refused_before_anything_is_sent(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=2, methods=METHODS[:1])
    refused = run(recipe, tmp_path / "run", "--set", "models.weak.backend=openai")
    assert refused.returncode != EXIT_COMPLETE
    assert "it cannot score" in " ".join(refused.stderr.split())
    assert stats(server)["total"] == 0


def test_the_plan_is_never_exceeded(server, tmp_path):
    recipe = write_recipe(tmp_path / "r.json", server, n=4, methods=METHODS[:3])
    plan = run_plan(recipe)
    run(recipe, tmp_path / "run")
    asked = stats(server)["by_route"]
    assert sum(s["left"] for s in plan if s["name"] in {"answers", "rewritings"}) == asked["chat"]
    assert sum(s["left"] for s in plan if s["name"] == "scores") >= asked["score"]


def run_plan(recipe):
    import subprocess  # noqa: PLC0415

    words = [*command(recipe, recipe.parent)[:3], "plan", str(recipe), "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["stages"]


class Direct:
    """A bundled model by itself: one plain float32 pass a text."""

    def __init__(self, name: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

        folder = BUNDLED / name
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def ell(self, messages: list[dict[str, str]], ids: list[int]) -> float:
        import torch  # noqa: PLC0415

        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        prompt = self.ids(text)
        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0]
        logs = logits.float().log_softmax(-1)[len(prompt) - 1 : -1]
        return float(logs.gather(1, torch.tensor(ids)[:, None]).mean())


@pytest.mark.models
def test_scores_equal_direct_passes_of_transformers(tmp_path):
    """Both texts, of first and second turns, to 1e-4."""
    items = {"d1": ["Reverse: k d a f", "Sort: d c a"], "d2": ["First: q x z", "Last: a f c"]}
    lines = [json.dumps({"key": key, "turns": turns}) for key, turns in items.items()]
    (tmp_path / "items.jsonl").write_text("\n".join(lines), encoding="utf-8")
    names = ("novice", "expert")
    recipe = {
        "name": "made",
        "models": {n: {"server": "embedded", "weights": f"bundled:{n}"} for n in names},
        "dataset": {"path": "items.jsonl", "fields": {"turns": "turns"}},
        "methods": [{"kind": "probdiff", "prompt": "compact", **DRAWN}],
    }
    (tmp_path / "r.json").write_text(json.dumps(recipe), encoding="utf-8")
    done = run(tmp_path / "r.json", tmp_path / "run")
    assert done.returncode == EXIT_COMPLETE, done.stderr
    rows = frames(tmp_path / "run")["probdiff"].to_dicts()
    answered = {(row["item"], row["model"]): row["answer"] for row in rows if row["turn"] == 1}
    models = {name: Direct(name) for name in names}
    checked = []
    for row in rows:
        first, second = items[row["item"]]
        messages = [{"role": "user", "content": first}]
        if row["turn"] == 2:
            said = answered[row["item"], row["model"]]
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": second},
            ]
        model = models[row["model"]]
        for end, text in (("first", row["answer"]), ("last", row["rewriting"])):
            ids = model.ids(text)
            # A warm text may be drawn by other tokens than its text is split into.
            if len(ids) == row[f"n_tokens_{end}"] > 0:
                assert row[f"ell_{end}"] == pytest.approx(model.ell(messages, ids), abs=1e-4)
                checked.append((row["model"], row["turn"], end))
    assert {turn for _, turn, _ in checked} == {1, 2}
    assert len(checked) >= len(rows)
