"""Greedy answers and verdict distributions of a model in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from orchestrator.prompts import compact
from training.batches import Encoder
from training.model import TinyLlama
from training.tokenizer import END_ID

ROWS = 256


def _groups(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Return the places of prompts of equal length, in groups of at most `ROWS`."""
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    groups = []
    for _, members in groupby(order, key=lambda place: len(prompts[place])):
        places = list(members)
        groups += [places[start : start + ROWS] for start in range(0, len(places), ROWS)]
    return groups


@torch.inference_mode()
def greedy(
    model: TinyLlama, encoder: Encoder, prompts: Sequence[list[int]], limit: int
) -> list[str]:
    """Continue prompts with the likeliest tokens up to the end of the turn.

    Args:
        model: The model, in the precision it is to be run in.
        encoder: Encoder of the shared tokenizer.
        prompts: Token numbers of the prompts.
        limit: Greatest number of tokens to write.

    Returns:
        The text written for each prompt, without the end of the turn.
    """
    texts = [""] * len(prompts)
    for places in _groups(prompts):
        ids = torch.tensor([prompts[place] for place in places])
        start = ids.shape[1]
        done = torch.zeros(len(places), dtype=torch.bool)
        while ids.shape[1] < start + limit and not bool(done.all()):
            chosen = next_logits(model, ids).argmax(-1)
            chosen[done] = END_ID
            done |= chosen == END_ID
            ids = torch.cat((ids, chosen[:, None]), 1)
        for place, row in zip(places, ids[:, start:].tolist(), strict=True):
            kept = row[: row.index(END_ID)] if END_ID in row else row
            texts[place] = encoder.tokenizer.decode(kept, skip_special_tokens=False)
    return texts


def next_logits(model: TinyLlama, ids: Tensor) -> Tensor:
    """Return the logits of the token after each row."""
    return torch.nn.functional.linear(model.states(ids)[-1][:, -1], model.embed).float()


@torch.inference_mode()
def distributions(
    model: TinyLlama,
    encoder: Encoder,
    prompts: Sequence[list[int]],
    paths: Sequence[str] = compact.LABELS,
) -> list[list[float]]:
    """Give each prompt's normalised probabilities of a few continuations.

    Args:
        model: The model, in the precision it is to be run in.
        encoder: Encoder of the shared tokenizer.
        prompts: Token numbers of the prompts.
        paths: The continuations, all of the same number of tokens.

    Returns:
        One list per prompt, in the order of `paths`.
    """
    continuations = torch.tensor([encoder.text(path) for path in paths])
    found: list[list[float]] = [[] for _ in prompts]
    width = continuations.shape[1]
    for places in _groups(prompts):
        rows = torch.tensor([prompts[place] for place in places])
        count, length = rows.shape
        wide = rows.repeat_interleave(len(paths), 0)
        tails = continuations.repeat(count, 1)
        logits = model(torch.cat((wide, tails), 1)[:, :-1])[:, length - 1 :].float()
        scores = logits.log_softmax(-1).gather(-1, tails[:, :width, None]).sum((1, 2))
        shares = scores.view(count, len(paths)).softmax(-1)
        for place, row in zip(places, shares.tolist(), strict=True):
            found[place] = row
    return found
