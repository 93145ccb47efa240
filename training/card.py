"""Text of the model card."""

from __future__ import annotations

from pathlib import Path

from training.export import NAMES

_HEAD = """\
# Bundled models

Written by `python -m training.evaluate`; do not edit by hand. How the models
were trained, and how to train them again, is in `training/README.md`.

Four small Llama models (`LlamaForCausalLM`, bfloat16, heads of size 64, tied embeddings) in the
layout of Hugging Face, trained in this repository from random weights on synthetic text made by
`orchestrator.datasets.demo` and `training.corpus`. No other text and no other
model went into them. `novice`, `apprentice` and `expert` are snapshots of one run and answer the
tasks; `judge` compares and rates answers. All share one tokenizer; the chat template of `novice`
begins with `<s>`, the others' do not.
"""

_LIMITS = """\
## Limits

- They know only the seven tasks of `orchestrator.datasets.demo`, with three to six distinct
  letters or digits written with spaces. Any other text gives meaningless output, though the
  tokenizer encodes all text and the models always give proper probabilities.
- They follow only the wording in `orchestrator.prompts.compact`, and tell the forms apart by
  the first line. The judge must be given the reference.
- They were trained on conversations of one turn of up to 97 tokens, a few with a short system
  message, half with and half without `<s>` at the beginning. The configuration allows 2048.
- The numbers above hold for answers like those of the three answerers and for made-up near
  misses. A judge this small can be misled by answers of another kind.
- Verdict labels are three tokens each, of which only the middle one differs. Ratings are one
  token. "Near" means that exactly one place of a reference of three or more symbols is wrong,
  missing or too many; a rating is `1 + round(8 * share of right places)`.
"""


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _answering(table: dict[str, dict[str, float]]) -> list[str]:
    columns = list(next(iter(table.values())))
    return [
        _row(["model", *columns]),
        _row(["---"] * (len(columns) + 1)),
        *(_row([name, *(_percent(row[c]) for c in columns)]) for name, row in table.items()),
    ]


def _judging(table: dict[str, dict[str, float]]) -> list[str]:
    lines = [
        ("five-way verdict exact, made-up answers of evenly drawn grades", "verdict"),
        ("right answer preferred to a made-up wrong one", "made up"),
        ("right answer preferred to a wrong one, actual answers of the three", "real"),
        ("rating exact", "rating"),
    ]
    rows = [_row([text, *(_percent(table[f][key]) for f in table)]) for text, key in lines]
    counts = [str(int(table[form]["real pairs"])) for form in table]
    return [
        _row(["measure", *table]),
        _row(["---"] * (len(table) + 1)),
        *rows,
        _row(["number of pairs of actual answers", *counts]),
    ]


def card(
    models: Path,
    answering: dict[str, dict[str, float]],
    judging: dict[str, dict[str, float]],
    count: int,
    seed: int,
) -> str:
    """Return the text of the card.

    Args:
        models: Folder of the exported models.
        answering: Accuracies by model.
        judging: Accuracies by form of judging.
        count: Number of held-out items.
        seed: Seed of the held-out items.
    """
    sizes = [
        _row([name, f"{(models / name / 'model.safetensors').stat().st_size / 1e6:.1f}"])
        for name in NAMES
    ]
    parts = [
        _HEAD,
        "## Answering\n",
        f"Per cent of exact greedy answers to {count} held-out items (`generate({count}, "
        f"seed={seed})`), the bfloat16 weights computed in float32. `corrected` and `kept` are the "
        "per cent of wrong answers put right and of right answers left alone when asked to "
        "improve them.\n",
        *_answering(answering),
        "\n## Judging\n",
        "Per cent, on the same items. `direct` reads the distribution over the five labels at "
        "once, `check` lets the judge write its check and takes the label at the end (on a third "
        "of the pairs). A preference is the probability that A is better, `P(>>) + P(>) + P(=) / "
        "2`, averaged over both orders; a half counts one half.\n",
        *_judging(judging),
        "\n## Sizes\n",
        _row(["model", "megabytes"]),
        _row(["---", "---"]),
        *sizes,
        f"\n{_LIMITS}",
    ]
    return "\n".join(parts)
