"""Training samples in all the forms the bundled models are to follow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.datasets.demo import CATEGORIES, DemoItem, draw_item
from orchestrator.prompts import compact
from training.checks import (
    answer_with_grade,
    check,
    grade,
    perturb,
    rating,
    verdict,
)

NO_MARK = -100
MARK_GRADE = 2
"""Marks 0 and 1: a symbol of an answer is wrong or right; 2 to 4: grade of an answer that ends."""
WEIGHTS: Mapping[str, float] = {
    "reverse": 1.4,
    "sort": 2.2,
    "repeat": 1.0,
    "swap": 1.2,
    "rotate": 1.2,
    "first": 0.4,
    "last": 0.5,
}
SYSTEM_SHARE = 0.04
SYSTEMS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "Please act as an impartial judge.",
    "You are a helpful assistant. Answer briefly.",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation of a single turn.

    Attributes:
        user: What the user says.
        reply: What the assistant is to say.
        marks: Auxiliary labels by character offset in `user`: of a symbol by the offset just
            after it, of a whole answer by minus one minus the offset just after the answer.
        system: System message, empty for none.
    """

    user: str
    reply: str
    marks: dict[int, int] = field(default_factory=dict)
    system: str = ""


@dataclass(slots=True)
class Corpus:
    """Endless source of samples from the training side of the task domain.

    Attributes:
        rng: Source of randomness.
        outputs: Answers which real models gave to training prompts, or nothing.
    """

    rng: random.Random
    outputs: Sequence[tuple[DemoItem, list[str]]] = ()

    def item(self) -> DemoItem:
        """Draw a task."""
        (category,) = self.rng.choices(CATEGORIES, [WEIGHTS[name] for name in CATEGORIES])
        return draw_item(self.rng, category, held_out=False)

    def answering(self) -> Sample:
        """Draw a task to be answered."""
        item = self.item()
        return Sample(item.prompt, item.reference)

    def rewriting(self) -> Sample:
        """Draw an answer to be improved; about a quarter are right already."""
        item, answers = self._item_with_outputs(0.3)
        if answers:
            answer = self.rng.choice(answers)
        else:
            right = self.rng.random() < 0.25
            answer = item.reference if right else perturb(self.rng, item)
        user = render(compact.REWRITE, prompt=item.prompt, answer=answer)
        return Sample(user, item.reference)

    def judging(self, *, cot: bool, kept: float = 1.0) -> Sample:
        """Draw a pair of answers to be compared.

        Args:
            cot: Whether the prompt asks for the check.
            kept: Share of the check to keep when the prompt does not ask for it; the rest is
                taken away from the left.
        """
        item, answers = self._item_with_outputs(0.3)
        if answers:
            pool = [*answers, item.reference, perturb(self.rng, item)]
            first, second = self.rng.choice(pool), self.rng.choice(pool)
        else:
            first, second = self._graded_pair(item)
        template = compact.PAIRWISE_COT if cot else compact.PAIRWISE
        fields = {
            "prompt": item.prompt,
            "reference": item.reference,
            "answer_a": first,
            "answer_b": second,
        }
        user, marks = render_marked(template, fields)
        steps = f"A {check(item.reference, first)} B {check(item.reference, second)}"
        reply = _reply(steps, verdict(item.reference, first, second), cot=cot, kept=kept)
        return Sample(user, reply, marks)

    def rating(self, *, cot: bool, kept: float = 1.0) -> Sample:
        """Draw an answer to be rated; arguments as for `judging`."""
        item, answers = self._item_with_outputs(0.3)
        answer = (
            self.rng.choice(answers)
            if answers
            else answer_with_grade(self.rng, item, self.rng.randint(0, 2))
        )
        template = compact.RATING_COT if cot else compact.RATING
        fields = {"prompt": item.prompt, "reference": item.reference, "answer": answer}
        user, marks = render_marked(template, fields)
        steps = check(item.reference, answer)
        reply = _reply(steps, rating(item.reference, answer), cot=cot, kept=kept)
        return Sample(user, reply, marks)

    def with_system(self, sample: Sample) -> Sample:
        """Give a few of the samples a system message."""
        if self.rng.random() >= SYSTEM_SHARE:
            return sample
        return Sample(sample.user, sample.reply, sample.marks, self.rng.choice(SYSTEMS))

    def _item_with_outputs(self, share: float) -> tuple[DemoItem, list[str]]:
        if self.outputs and self.rng.random() < share:
            return self.rng.choice(self.outputs)
        return self.item(), []

    def _graded_pair(self, item: DemoItem) -> tuple[str, str]:
        grades = (0, 2) if len(item.reference.split()) < 3 else (0, 1, 2)
        pairs: dict[int, list[tuple[int, int]]] = {}
        for a in grades:
            for b in grades:
                pairs.setdefault(a - b, []).append((a, b))
        a, b = self.rng.choice(pairs[self.rng.choice(list(pairs))])
        return answer_with_grade(self.rng, item, a), answer_with_grade(self.rng, item, b)


def render(template: str, **fields: str) -> str:
    """Fill the placeholders of a template."""
    for name, value in fields.items():
        template = template.replace(f"{{{{ {name} }}}}", value)
    return template


def render_marked(template: str, fields: Mapping[str, str]) -> tuple[str, dict[int, int]]:
    """Fill a template and mark the symbols of its answers; see `Sample.marks`."""
    marks: dict[int, int] = {}
    text = template
    reference = fields["reference"].split(" ")
    for name, value in fields.items():
        start = text.index(f"{{{{ {name} }}}}")
        text = render(text, **{name: value})
        if not name.startswith("answer"):
            continue
        end = start
        for index, symbol in enumerate(value.split(" ")):
            end += len(symbol) + (index > 0)
            right = index < len(reference) and symbol == reference[index]
            marks[end] = int(right)
        marks[-1 - end] = MARK_GRADE + grade(fields["reference"], value)
    return text, marks


def _reply(steps: str, conclusion: str, *, cot: bool, kept: float) -> str:
    if cot:
        return f"{steps} so {conclusion}"
    words = steps.split(" ")
    count = round(len(words) * min(max(kept, 0.0), 1.0))
    if count == 0:
        return conclusion
    return f"{' '.join(words[-count:])} so {conclusion}"
