"""Train the bundled models; see the README beside this file.

`python -m training.train answerer` trains the model that answers and rewrites
and keeps snapshots on the way; `... train judge` goes on from its last snapshot to judging.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from orchestrator.datasets.demo import DemoItem
from training.batches import Batch, Encoder, batches
from training.checks import seeded
from training.corpus import NO_MARK, Corpus, Sample
from training.model import Shape, TinyLlama, load_snapshot, save_snapshot
from training.progress import answering, judging
from training.tokenizer import build

LOG = logging.getLogger("train")
AUX_WEIGHT = 0.3
MARKED_LAYERS = (2, 3)
WARMUP_STEPS = 100
DECAY_FROM = 0.6
EVAL_SECONDS = 150.0
EVAL_ITEMS = 70
OUTPUTS_EVERY = 200


class Trainee(nn.Module):
    """A model with the heads that learn the marks; the heads are not exported."""

    def __init__(self, model: TinyLlama) -> None:
        super().__init__()
        self.model = model
        width = model.shape.width
        self.text_loss = text_loss
        self.heads = nn.ModuleList(nn.Linear(width, 5) for _ in MARKED_LAYERS)

    def speed_up(self) -> None:
        """Compile the layers and the loss, once for each shape of batch."""
        for block in self.model.blocks:
            block.compile(dynamic=False)
        self.text_loss = torch.compile(text_loss, dynamic=False)

    def forward(self, ids: Tensor, weights: Tensor, marks: Tensor) -> Tensor:
        """Return the loss of a batch."""
        with torch.autocast("cpu", torch.bfloat16):
            states = self.model.states(ids[:, :-1])
            total = self.text_loss(states[-1], self.model.embed, ids[:, 1:], weights[:, 1:])
        wanted = marks[:, :-1].flatten()
        known = (wanted != NO_MARK).nonzero().flatten()
        if not len(known):
            return total
        for layer, head in zip(MARKED_LAYERS, self.heads, strict=True):
            state = states[layer].flatten(0, 1)[known].float()
            guess = head(functional.rms_norm(state, state.shape[-1:]))
            total = total + AUX_WEIGHT * functional.cross_entropy(guess, wanted[known])
        return total


def text_loss(states: Tensor, embed: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean loss of the next tokens."""
    logits = functional.linear(states, embed).float()
    gap = logits.logsumexp(-1) - logits.gather(-1, wanted[..., None]).squeeze(-1)
    return (gap * weights).sum() / weights.sum()


class Clock:
    """Measures the share of the time budget that is used up."""

    def __init__(self, minutes: float, used: float = 0.0) -> None:
        self.budget = minutes * 60
        self.used = used
        self._last = time.monotonic()

    def tick(self) -> float:
        """Count the time since the last tick and return the share used."""
        now = time.monotonic()
        self.used += min(now - self._last, 60.0)
        self._last = now
        return self.used / self.budget


def answerer_samples(corpus: Corpus) -> Iterator[Sample]:
    """Yield what the answerers learn from."""
    while True:
        rewrite = corpus.rng.random() < 0.25
        yield corpus.with_system(corpus.rewriting() if rewrite else corpus.answering())


def kept_share(rng: random.Random, progress: float) -> float:
    """Draw the share of the check that a direct sample keeps at a point of the training."""
    if rng.random() < 0.12:
        return 0.0
    done = (progress - 0.30) / (0.70 - 0.30)
    return 1.0 - done + (rng.uniform(-0.15, 0.15) if 0.0 < done < 1.0 else 0.0)


def judge_samples(corpus: Corpus, clock: Clock) -> Iterator[Sample]:
    """Yield what the judge learns from, the checks shrinking as time goes on."""
    rng = corpus.rng
    while True:
        kept = kept_share(rng, clock.used / clock.budget)
        draw = rng.random()
        if draw < 0.54:
            sample = corpus.judging(cot=False, kept=kept)
        elif draw < 0.66:
            sample = corpus.judging(cot=True)
        elif draw < 0.84:
            sample = corpus.rating(cot=False, kept=kept)
        elif draw < 0.89:
            sample = corpus.rating(cot=True)
        elif draw < 0.94:
            sample = corpus.answering()
        else:
            sample = corpus.rewriting()
        yield corpus.with_system(sample)


def read_outputs(path: Path) -> list[tuple[DemoItem, list[str]]]:
    """Read what `training.outputs` wrote; nothing if there is no such file."""
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [(DemoItem(**row["item"]), row["answers"]) for row in rows]


def learning_rate(peak: float, step: int, progress: float) -> float:
    """Return the rate: a short warm-up, a plateau, then a straight line to almost nothing."""
    if progress > DECAY_FROM:
        peak *= max(1.0 - (progress - DECAY_FROM) / (1.0 - DECAY_FROM), 0.02)
    return peak * min(1.0, (step + 1) / WARMUP_STEPS)


class Run:
    """One training run with its checkpoint."""

    def __init__(self, args: argparse.Namespace, model: TinyLlama) -> None:
        self.args = args
        self.folder: Path = args.out / args.phase
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trainee = Trainee(model)
        matrices = [p for p in self.trainee.parameters() if p.dim() > 1]
        others = [p for p in self.trainee.parameters() if p.dim() == 1]
        groups = [
            {"params": matrices, "weight_decay": 0.05},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
        self.clock = Clock(args.minutes)
        self.step = 0
        self.corpus: Corpus | None = None
        self.leads = not distributed.is_initialized() or distributed.get_rank() == 0
        self.path = self.folder / "checkpoint.pt"
        if self.path.exists():
            state = torch.load(self.path)
            self.trainee.load_state_dict(state["trainee"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.clock = Clock(args.minutes, state["used"])
            self.step = state["step"]

    def save(self) -> None:
        """Write the checkpoint, replacing the last one only when complete."""
        state = {
            "trainee": self.trainee.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "used": self.clock.used,
            "step": self.step,
        }
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self.path)

    def train(self, source: Iterator[Batch], encoder: Encoder) -> None:
        """Train until the time is used up."""
        if self.args.compile:
            self.trainee.speed_up()
        due, tokens, losses = 0.0, 0, []
        started = time.monotonic()
        progress = self.clock.tick()
        while progress < 1.0:
            if self.corpus is not None and self.step % OUTPUTS_EVERY == 0:
                self.corpus.outputs = read_outputs(self.args.out / "outputs.json")
            batch = next(source)
            rate = learning_rate(self.args.rate, self.step, progress)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            loss = self.trainee(batch.ids, batch.weights, batch.marks)
            loss.backward()
            self.clock.tick()
            progress = self.share() / self.clock.budget
            nn.utils.clip_grad_norm_(self.trainee.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            tokens += batch.ids.numel()
            losses.append(loss.detach())
            if len(losses) == 100:
                mean = float(torch.stack(losses).mean())
                speed = tokens / (time.monotonic() - started)
                LOG.info("step %d %.3f loss %.4f %.0f tok/s", self.step, progress, mean, speed)
                losses = []
            if self.leads and self.clock.used >= due:
                self.evaluate(encoder)
                self.clock.tick()
                due = self.clock.used + self.pause()
        if self.leads:
            self.evaluate(encoder)

    def share(self) -> float:
        """Average gradients and clocks over the processes; return the seconds used."""
        if not distributed.is_initialized():
            return self.clock.used
        parameters = list(self.trainee.parameters())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [p.grad for p in parameters if p.grad is not None]
        used = torch.tensor([self.clock.used])
        flat = torch.cat([*(grad.flatten() for grad in grads), used])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        parts = torch.split(flat[:-1], [grad.numel() for grad in grads])
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))
        self.clock.used = float(flat[-1])
        return self.clock.used

    def pause(self) -> float:
        """Return the seconds to the next evaluation; shorter in the answerer's run."""
        return 60.0 if self.args.phase == "answerer" else EVAL_SECONDS

    def evaluate(self, encoder: Encoder) -> None:
        """Measure, log and keep a snapshot."""
        model = self.trainee.model
        eager = torch.compiler.set_stance("force_eager")
        with eager, torch.autocast("cpu", torch.bfloat16):
            report = answering(model, encoder, EVAL_ITEMS)
            if self.args.phase == "judge":
                report |= judging(model, encoder, EVAL_ITEMS)
        row = {"step": self.step, "minutes": round(self.clock.used / 60, 2)}
        line = json.dumps(row | {name: round(value, 3) for name, value in report.items()})
        LOG.info("%s", line)
        with (self.folder / "progress.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        save_snapshot(model, self.folder / f"step{self.step:06d}.safetensors")
        self.save()


def main() -> None:
    """Run one phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=["answerer", "judge"])
    parser.add_argument("--out", type=Path, required=True, help="folder for snapshots")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--start", type=Path, help="snapshot for the judge to start from")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens in a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rank = 0
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        rank = distributed.get_rank()
    encoder = Encoder(build())
    corpus = Corpus(seeded(f"{args.phase}-{args.seed}"))
    if args.phase == "answerer":
        run = Run(args, TinyLlama(Shape(vocab=encoder.tokenizer.get_vocab_size())))
        samples = answerer_samples(corpus)
    else:
        start = args.start or max((args.out / "answerer").glob("step*.safetensors"))
        run = Run(args, load_snapshot(start))
        run.corpus = corpus
        samples = judge_samples(corpus, run.clock)
    corpus.rng.seed(f"{args.phase}-{args.seed}-{run.step}-{rank}")
    run.train(batches(samples, encoder, corpus.rng, args.tokens), encoder)


if __name__ == "__main__":
    main()
