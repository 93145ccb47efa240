"""Rows of the glass-box recipe are those of direct float32 passes of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.judgment import glass_box
from tests.conftest import BUNDLED, ROOT
from tests.e2e.runs import frames, run
from tests.oracles.glass_box import aligned_features, attention_entropy, code_features

OF = {name: formula for name, (_, formula) in glass_box.FORMULAS.items()}
pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.timeout(600)]


class Direct:
    """A bundled model by itself: one plain pass a text."""

    def __init__(self, name: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

        folder = BUNDLED / name
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype="float32"
        ).eval()

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def read(self, ids: list[int]) -> tuple[Any, list[Any]]:
        import torch  # noqa: PLC0415

        with torch.inference_mode():
            out = self.model(input_ids=torch.tensor([ids]), output_attentions=True)
        return out.logits[0].double().numpy(), [layer[0].numpy() for layer in out.attentions]


def expected(model: Direct, row: dict[str, Any], item: dict[str, Any]) -> dict[str, float]:
    prompt = model.prompt([{"role": "user", "content": item["prompt"]}])
    n, answer = len(prompt), model.ids(row["answer"])
    logits, attentions = model.read([*prompt, *answer])
    seen = aligned_features(logits, [*prompt, *answer], n)
    whole = [*prompt, *answer, model.tokenizer.eos_token_id]
    code = code_features(model.read(whole)[0], whole, n)
    heads = np.array([attention_entropy(one[:, n:, :n]) for one in attentions])
    reference = [*prompt, *model.ids(item["reference"])]
    right = aligned_features(model.read(reference)[0], reference, n)
    return {
        "mean_logprob": OF["mean_logprob"](seen.logprob),
        "token_logprob_var": OF["token_logprob_var"](seen.logprob),
        "token_prob_var": OF["token_prob_var"](seen.logprob),
        "softmax_entropy": glass_box.mean_over_tokens(seen.entropy),
        "vocab_logprob_var": glass_box.mean_over_tokens(seen.vocab_logprob_var),
        "attention_entropy_min": OF["attention_entropy_min"](heads),
        "attention_entropy_avg": OF["attention_entropy_avg"](heads),
        "code_logprobs": glass_box.mean_over_tokens(code.logprob),
        "code_logprobs_variance": glass_box.mean_over_tokens(code.vocab_logprob_var),
        "reference_sent_prob": glass_box.sent_prob_ref(right.logprob),
        "mean_logprob_calibrated": OF["mean_logprob"](seen.logprob)
        - OF["mean_logprob"](right.logprob),
        "softmax_entropy_calibrated": glass_box.mean_over_tokens(seen.entropy)
        - glass_box.mean_over_tokens(right.entropy),
    }


def test_rows_of_the_recipe_equal_direct_passes(tmp_path: Path) -> None:
    done = run(ROOT / "recipes" / "glass_box.yaml", tmp_path / "run", "--limit", "3")
    assert done.returncode == 0, done.stderr
    found = frames(tmp_path / "run")
    items = {row["item"]: row for row in found["answers"].iter_rows(named=True)}
    models: dict[str, Direct] = {}
    rows = found["glass_box"].to_dicts()
    assert len(rows) == 9
    for row in rows:
        model = models.setdefault(row["model"], Direct(row["model"]))
        for name, value in expected(model, row, items[row["item"]]).items():
            # Variances over the vocabulary are around 10, so float32 leaves a little more.
            assert row[name] == pytest.approx(value, abs=1e-4, rel=1e-5), (name, row["item"])
