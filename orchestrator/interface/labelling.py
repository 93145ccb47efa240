"""Sheets for people: to label a random choice with hidden names, or to read all that was judged."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from orchestrator.ask import GenerateAsk
from orchestrator.columns import PairColumns
from orchestrator.contracts.context import Context, Source, answers_behind, answers_of
from orchestrator.contracts.method import is_judging
from orchestrator.disk.files import write_text
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.frames import columns_of
from orchestrator.interface.result import Result
from orchestrator.ranking.human_labels import CODE, LABEL, PROBABILITY, SHOWN, fingerprint, key_path
from orchestrator.ranking.labelled import judged_pairs, margins
from orchestrator.ranking.scores import score, source_of
from orchestrator.records import Generation, Ints
from orchestrator.report.export import frame_text, harmless
from orchestrator.runner.results.requests import Replay
from orchestrator.statistics.judgments import decided

READ: Final = {
    "method": pl.String(), "judge": pl.String(), "item": pl.String(), "turn": pl.Int64(),
    "prompt": pl.String(), "model_a": pl.String(), "answer_a": pl.String(),
    "model_b": pl.String(), "answer_b": pl.String(), "verdict": pl.String(), "p_a": pl.Float64(),
    "reason": pl.String(), "status": pl.String(), "message": pl.String(),
}  # fmt: skip

_ANSWER: Final = ("item", "turn", "model")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet to fill in, and what its codes stand for.

    Attributes:
        rows: Columns code, prompt, answer (or answer_1 and answer_2), label; in random order, and
            safe for spreadsheets.
        key: A mapping for each row: code, item, turn, model (or model_a and model_b, in the order
            shown), probability where all below a margin were taken, and fingerprints of the texts.
        method: Whose judgments are to be corrected.
        n_judged: Rows that the choice was made from.
    """

    rows: pl.DataFrame
    key: Sequence[dict[str, Any]]
    method: str
    n_judged: int

    @property
    def is_pairs(self) -> bool:
        """True if two answers are compared."""
        return "answer_1" in self.rows.columns

    def write(self, path: Path, *, force: bool = False) -> Path:
        """Write it as CSV, safe for spreadsheets, and its key file beside it; return the latter.

        Raises:
            UsageError: If the name does not end in .csv, a file exists, or one can't be written.
        """
        if path.suffix.lower() != ".csv":
            raise UsageError(f"{path}: the name of the file must end in .csv")
        key = key_path(path)
        for one in (path, key):
            if one.exists() and not force:
                raise UsageError(
                    f"{one} exists, and may hold labels; choose another name, or overwrite it with "
                    "--force"
                )
        write_text(key, "".join(json.dumps(line) + "\n" for line in self.key))
        # Without the mark spreadsheets take UTF-8 for the encoding of the country.
        write_text(path, "\ufeff" + frame_text([self.rows], "csv"))
        return key


def sheet_of(
    context: Context,
    *,
    method: str | None = None,
    n_labels: int | None = 100,
    seed: int = 0,
    below: float | None = None,
) -> Sheet:
    """Choose what people label from a run's frames, and show it without names of models.

    Args:
        context: With all methods of the run.
        method: Whose scores are to be corrected; the first that judges where None.
        n_labels: Rows of the sheet, at most all; None for all.
        seed: Of the choice, of the order, and of the side on which an answer stands.
        below: Only pairs whose margin |2 P(better) - 1| is below; None for all. What people decide
            in the judge's place is no random choice: their key has the probability 1.

    Raises:
        UsageError: If nothing was judged, or no pair is below a margin.
    """
    source = _source(context, method)
    pairs = source.method.pairs is not None
    judged = judged_pairs(context, source) if pairs else _answers(context, source)
    if below is not None:
        if "score" not in judged.columns:
            raise UsageError("labels: a margin is of pairs; this method scores single answers")
        judged = judged.filter(pl.Series(margins(judged["score"].to_numpy())) < below)
        if judged.is_empty():
            raise UsageError(f"labels: no pair of {source.name!r} has a margin below {below:g}")
    if judged.is_empty():
        raise UsageError(f"labels: {source.name!r} has judged nothing")
    rng = np.random.default_rng(seed)
    places = _drawn(len(judged), min(n_labels or len(judged), len(judged)), rng)
    answers = answers_of(context.frames, ("method", *_ANSWER, "prompt", "text"))
    if answers.is_empty():
        raise UsageError("labels: this run holds no answers to show")
    texts = Texts(context, source, answers)
    # The side on which an answer stands is random too, so that habits of the eye favour no model.
    swapped = rng.random(len(places)) < 0.5
    width = len(str(len(places)))
    lines: list[dict[str, str]] = []
    key: list[dict[str, Any]] = []
    for number, (place, swap) in enumerate(zip(places, swapped, strict=True), start=1):
        row = judged.row(int(place), named=True)
        models = [row["first"], row["second"]] if pairs else [row["model"]]
        models = models[::-1] if swap else models
        about = {CODE: f"r{number:0{width}d}", "item": row["item"], "turn": row["turn"]}
        line = texts.line(about["item"], about["turn"], models)
        # Equal answers too are labelled by hand: a sheet that is filled in to some row would hold
        # too many of them if those below stood there already.
        lines.append({CODE: about[CODE], **line, LABEL: ""})
        named = zip(("model_a", "model_b") if pairs else ("model",), models, strict=True)
        key.append(about | dict(named) | ({} if below is None else {PROBABILITY: 1.0}))
    rows = harmless(pl.DataFrame(lines))
    for one, shown in zip(key, rows.iter_rows(named=True), strict=True):
        digests = {name: fingerprint(str(value)) for name, value in shown.items()}
        one[SHOWN] = {k: v for k, v in digests.items() if v and k not in (CODE, LABEL)}
    return Sheet(rows, key, source.name, len(judged))


def side_by_side(result: Result) -> pl.DataFrame:
    """All that judges compared or rated, a line each, with its texts.

    Columns `READ`: of a rated answer those of B are null; `verdict` is the better model, "tie" or
    the score, `p_a` is P(A is better) + P(tie) / 2 over both orders, and `reason` what the judge
    wrote about these models and all turns, as far as it wrote any.
    """
    context = result.context
    sources = [one for one in context.sources if one.method.pairs or one.scores]
    answers = answers_of(context.frames, ("method", *_ANSWER, "prompt", "text"))
    written = _written(result) if sources else {}
    found = []
    for source in sources:
        texts, names = Texts(context, source, answers), source.method.pairs or PairColumns()
        for row in context.rows_of(source).iter_rows(named=True):
            models = [one for one in map(row.get, (names.model_a, names.model_b)) if one]
            p_a, winner = (row.get(names.preference), row.get("winner")) if models else (None, None)
            score = None if models else row.get(next(iter(source.scores), ""))
            # Methods of others may be about no model, and about no item.
            models, item = models or [row.get("model") or ""], row.get("item") or ""
            if winner is None and p_a is not None:
                sign = decided(np.array(2.0 * p_a - 1.0)).item()
                winner = {1.0: "A", -1.0: "B"}.get(sign, "tie")
            elif score is not None:
                winner = f"{score:g}"
            named = dict(zip("AB", models, strict=False))
            judge, turn = row.get(names.judge or "judge") or "", row.get("turn") or 1
            line = texts.line(item, turn, models)
            reason = list(filter(None, [row.get("text"), row.get("text_ba")]))
            # Of all models that were judged together.
            units = () if reason else written.get((source.name, item, judge), {}).items()
            reason = reason or next((said for who, said in units if who.issuperset(models)), [])
            found.append(
                {
                    "method": source.name, "judge": judge, "item": item, "turn": turn,
                    "prompt": line["prompt"], "model_a": models[0], "model_b": named.get("B"),
                    "answer_a": line.get("answer_1", line.get("answer")),
                    "answer_b": line.get("answer_2"),
                    "verdict": named.get(str(winner), winner), "p_a": p_a,
                    "reason": _numbered(reason),
                    "status": row["status"], "message": row.get("message"),
                }
            )  # fmt: skip
    return pl.DataFrame(found, schema=READ)


def _written(result: Result) -> dict[tuple[str, str, str], dict[frozenset[str], list[str]]]:
    """Return the texts of judges before their verdicts: by method, item and judge, by models."""
    found: dict[tuple[str, str, str], dict[frozenset[str], list[str]]] = defaultdict(dict)
    try:
        replay = Replay(result.path, result.frames, allow_code=result.allow_code)
        for at, key in enumerate(columns_of(result.frames, "items", ("item",))["item"]):
            for work, asked in replay.units(at):
                judge, models = work.unit.judge, frozenset(work.unit.models)
                about = work.part.name, key, judge
                for ask, made in asked:
                    # A judge that is a candidate answers too; its answers have a turn.
                    is_answer = not isinstance(ask, GenerateAsk) or ask.turn > 0
                    if is_answer or ask.model != judge:
                        continue
                    if isinstance(made, Generation) and made.text.strip():
                        found[about].setdefault(models, []).append(made.text)
    except OrchestratorError:
        # Of another user's run, or without its plug-in, the numbers are read all the same.
        return {}
    return dict(found)


class Texts:
    """Prompts and answers of a run."""

    def __init__(self, context: Context, source: Source, answers: pl.DataFrame) -> None:
        # A run without answers has no column of them.
        answers = answers_behind(answers, source.name) if answers.width else answers
        self._answers: dict[tuple[str, str], dict[int, str]] = {}
        first: dict[str, str] = {}
        for row in answers.iter_rows(named=True):
            item, turn = row["item"], row.get("turn") or 1
            self._answers.setdefault((item, row["model"]), {})[turn] = row["text"] or ""
            if turn == 1:
                first.setdefault(item, row.get("prompt") or "")
        items = columns_of(context.frames, "items", ("item", "prompt", "followups"))
        self._prompts = {
            item: [prompt or first.get(item, ""), *(json.loads(more) if more else [])]
            for item, prompt, more in items.iter_rows()
        }

    def line(self, item: str, turn: int, models: Sequence[str]) -> dict[str, str]:
        """Return the questions up to a turn, and the answers of each model to them."""
        titles = ("answer",) if len(models) == 1 else ("answer_1", "answer_2")
        found = {"prompt": _numbered(self._prompts.get(item, [""])[:turn])}
        for title, model in zip(titles, models, strict=True):
            told = self._answers.get((item, model), {})
            found[title] = _numbered([told.get(number, "") for number in range(1, turn + 1)])
        return found


def _numbered(texts: Sequence[str]) -> str:
    """Texts of several turns as one, each with its number; line ends are those of CSV cells."""
    lines = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    if len(lines) < 2:
        return "".join(lines)
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(lines, start=1))


def _source(context: Context, name: str | None) -> Source:
    judging = [one for one in context.sources if is_judging(one.method)]
    scoring = [one for one in context.sources if one.scores and one.method.pairs is None]
    found = (judging or scoring)[:1] if name is None else [source_of(context, name)]
    if not found:
        raise UsageError("labels: no method of this run judges answers")
    if found[0] not in (*judging, *scoring):
        raise UsageError(f"labels: {name!r} neither scores answers nor compares them")
    return found[0]


def _answers(context: Context, source: Source) -> pl.DataFrame:
    if not source.scores:
        raise UsageError(f"labels: {source.name!r} has no score of single answers")
    return score(context, source, next(iter(source.scores))).means().select(*_ANSWER)


def _drawn(n: int, n_labels: int, rng: np.random.Generator) -> Ints:
    """Choose `n_labels` of n rows, in random order: shape (n_labels,).

    By systematic sampling of the rows in random order (Madow 1949). A seed draws the same rows in
    every version, so that a sheet can be written again.
    """
    order, ends = rng.permutation(n), np.cumsum(np.full(n, n_labels / n))
    places = np.searchsorted(ends, rng.random() + np.arange(n_labels), side="right")
    return rng.permutation(order[np.minimum(places, n - 1)])
