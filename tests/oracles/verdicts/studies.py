"""Small studies: models, prompts, and what a judge says of each two answers; drawn by a seed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

import numpy as np

NAMES: Final = ("ash", "birch", "cedar", "doum", "elm", "fir", "gum", "hazel")
_WORDS: Final = re.findall(
    r"\w+",
    "amber basin cobalt desert engine feather garden harbour island jungle kettle lantern meadow "
    "needle orchard pepper quarry ribbon saddle timber umbrella valley walnut yellow zephyr anchor "
    "bridge candle donkey ember forest glacier hammer insect jacket kernel ladder magnet nectar "
    "oyster pillow quiver rocket silver tunnel urchin velvet window yonder zebra",
)
_SENTENCE: Final = 9
N_SCORES: Final = 9
_MOST_VERDICTS: Final = 260
"""Judgments of one study, which bounds its time."""


@dataclass(frozen=True)
class Prompt:
    """A prompt of a study.

    Attributes:
        key: Of the item.
        content: Number of its text; copies share it.
        category: Of the item; None without one.
        cluster: That the dataset declares; None where it stands alone.
    """

    key: str
    content: int
    category: str | None = None
    cluster: str | None = None

    @property
    def text(self) -> str:
        rng = np.random.default_rng(1000 + self.content)
        return " ".join(rng.choice(_WORDS, _SENTENCE, replace=False)) + f" {self.content}?"


@dataclass(frozen=True)
class Verdict:
    """What a judge says of two answers.

    Attributes:
        prefer: P(first model better), ties as half.
        tied: P(tie).
        bias: Added to the preference for the answer that is shown first.
    """

    prefer: float
    tied: float = 0.0
    bias: float = 0.0

    def shown(self, *, swapped: bool) -> list[float]:
        """Probabilities of the five labels, of the answer shown first."""
        mine = 1.0 - self.prefer if swapped else self.prefer
        wins = min(max(mine + self.bias, 0.0), 1.0)
        tied = min(self.tied, 2.0 * wins, 2.0 - 2.0 * wins)
        return [0.0, wins - tied / 2, tied, 1.0 - wins - tied / 2, 0.0]


Verdicts = Mapping[tuple[int, int, int], Verdict | None]
"""By content and the numbers of two models, the smaller first; None where the judge fails."""


@dataclass(frozen=True)
class Study:
    """A study with one judge.

    Attributes:
        says: Its kind in words, for messages.
        models: Names by number.
        prompts: In the order of the dataset.
        verdicts: Of the judge on two answers.
        scores: Of the judge on one answer: weights of the scores from 1 on, by content and number
            of a model; None where it fails.
    """

    says: str
    models: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    verdicts: Verdicts
    scores: Mapping[tuple[int, int], list[float] | None] = field(default_factory=dict)

    def rows(self) -> list[dict[str, object]]:
        """The items of the dataset, with the answers of all models."""
        found: list[dict[str, object]] = []
        for prompt in self.prompts:
            row: dict[str, object] = {
                "id": prompt.key,
                "prompt": prompt.text,
                "category": prompt.category,
            }
            row |= {"cluster": prompt.cluster} if self.has_clusters else {}
            row |= {
                name: f"Reply {prompt.content}.{number}" for number, name in enumerate(self.models)
            }
            found.append({name: value for name, value in row.items() if value is not None})
        return found

    @property
    def has_clusters(self) -> bool:
        """True if the dataset declares clusters."""
        return any(prompt.cluster is not None for prompt in self.prompts)

    def table(self) -> dict[str, list[float] | None]:
        """What the judge says, by the answers in the order in which they are shown."""
        found = {f"{content}.{model}": said for (content, model), said in self.scores.items()}
        for (content, a, b), verdict in self.verdicts.items():
            for swapped in (False, True):
                first, second = (b, a) if swapped else (a, b)
                said = None if verdict is None else verdict.shown(swapped=swapped)
                found[f"{content}.{first} {content}.{second}"] = said
        return found


Draw = Callable[[np.random.Generator, float], float]
"""A preference for the first of two models, given by how much it is better: -0.5 to 0.5."""


def _soft(rng: np.random.Generator, lead: float) -> float:
    return float(np.clip(0.5 + lead + 0.2 * rng.normal(), 0.0, 1.0))


def _hard(rng: np.random.Generator, lead: float) -> float:
    return float(rng.random() < 0.5 + lead)


def _mostly_tied(rng: np.random.Generator, lead: float) -> float:
    return _hard(rng, lead) if rng.random() < 0.2 else 0.5


def _constant(_: np.random.Generator, lead: float) -> float:
    return 0.5 + 0.3 * lead


def _rare(rng: np.random.Generator, lead: float) -> float:
    return 1.0 if rng.random() < 0.08 else 0.474 + 0.05 * lead


def _separated(_: np.random.Generator, lead: float) -> float:
    return 0.5 if lead == 0 else float(lead > 0)


def _stepped(rng: np.random.Generator, lead: float) -> float:
    return float(np.clip(np.round(4 * _soft(rng, lead)) / 4, 0.0, 1.0))


KINDS: Final[Mapping[str, Draw]] = {
    "soft": _soft,
    "hard": _hard,
    "mostly tied": _mostly_tied,
    "constant": _constant,
    "rare large wins": _rare,
    "separated": _separated,
    "stepped": _stepped,
}


def drawn(seed: int, kind: str | None = None) -> Study:
    """Draw a study.

    Args:
        seed: Of everything.
        kind: One of `KINDS`; drawn if omitted.
    """
    rng = np.random.default_rng(seed)
    kind = kind or str(rng.choice(list(KINDS)))
    n_models = int(rng.choice([2, 2, 2, 3, 3, 4, 5, 8]))
    n_pairs = n_models * (n_models - 1) // 2
    most = min(40, _MOST_VERDICTS // n_pairs)
    n = int(rng.integers(2, most + 1))
    spread = float(rng.choice([0.0, 0.1, 0.3, 0.5]))
    strengths = np.round(rng.uniform(-spread, spread, n_models) / 2, 2)
    bias = float(rng.choice([0.0, 0.0, 0.0, 0.15]))
    tied = float(rng.choice([0.0, 0.0, 0.3]))
    draw = KINDS[kind]
    verdicts: dict[tuple[int, int, int], Verdict | None] = {
        (content, a, b): Verdict(
            draw(rng, float(np.clip(strengths[a] - strengths[b], -0.5, 0.5))), tied, bias
        )
        for content in range(n)
        for a, b in combinations(range(n_models), 2)
    }
    study = Study(kind, NAMES[:n_models], tuple(_prompts(rng, n)), verdicts)
    return _thinned(_copied(study, rng), rng)


def scored(seed: int) -> Study:
    """Draw a study in which a judge rates each answer from 1 to 9."""
    rng = np.random.default_rng(seed)
    n_models, n = int(rng.choice([2, 2, 3, 4])), int(rng.integers(2, 31))
    kind = str(rng.choice(["sure", "unsure", "constant", "equal", "rare"]))
    means = rng.uniform(3.0, 7.0, n_models) if rng.random() < 0.6 else np.full(n_models, 5.0)
    drawn_of = {
        "sure": lambda mean: mean + 2.0 * rng.normal(),
        "unsure": lambda mean: mean + rng.normal(),
        "constant": lambda mean: mean,
        "equal": lambda _: 5.0,
        "rare": lambda mean: 9.0 if rng.random() < 0.08 else round(mean),
    }[kind]
    width = 1.5 if kind == "unsure" else 0.01
    places = np.arange(1, N_SCORES + 1)
    scores: dict[tuple[int, int], list[float] | None] = {}
    for content in range(n):
        for model in range(n_models):
            at = float(np.clip(drawn_of(means[model]), 1, N_SCORES))
            near = at if kind == "unsure" else round(at)
            scores[content, model] = np.exp(-(((places - near) / width) ** 2)).tolist()
    if rng.random() < 0.2:
        scores |= dict.fromkeys([(0, 0), (1, 1)])
    return Study(f"{kind} scores", NAMES[:n_models], tuple(_prompts(rng, n)), {}, scores)


def _prompts(rng: np.random.Generator, n: int) -> list[Prompt]:
    """Prompts of some categories, perhaps small ones, perhaps in clusters."""
    n_categories = int(rng.choice([1, 1, 2, 4]))
    shares = rng.dirichlet(np.ones(n_categories))
    categories = rng.choice(n_categories, n, p=shares)
    clustered = rng.random() < 0.3
    clusters = np.sort(rng.integers(0, max(2, n // 2), n))
    return [
        Prompt(
            f"i{content:03}",
            content,
            None if n_categories == 1 else f"kind{categories[content]}",
            f"set{clusters[content]}" if clustered else None,
        )
        for content in range(n)
    ]


def _copied(study: Study, rng: np.random.Generator) -> Study:
    """The study, perhaps with exact copies of some prompts."""
    if rng.random() < 0.8:
        return study
    chosen = rng.choice(len(study.prompts), max(1, len(study.prompts) // 4), replace=False)
    copies = [replace(study.prompts[at], key=f"copy{at}") for at in chosen]
    says = f"{study.says}, {len(copies)} copies"
    return replace(study, says=says, prompts=(*study.prompts, *copies))


def _thinned(study: Study, rng: np.random.Generator) -> Study:
    """The study, perhaps with judgments that fail: here and there, of a pair, or of a model."""
    how = str(rng.choice(["none", "none", "none", "some", "a pair", "a model"]))
    if how == "none":
        return study
    first, second = sorted(rng.choice(len(study.models), 2, replace=False).tolist())
    share = float(rng.choice([0.1, 0.4]))

    def fails(a: int, b: int) -> bool:
        if how == "a pair":
            return (a, b) == (first, second) and len(study.models) > 2
        return rng.random() < (share if how == "some" or first in (a, b) else 0.0)

    verdicts = {
        key: None if fails(*key[1:]) else verdict for key, verdict in study.verdicts.items()
    }
    return replace(study, says=f"{study.says}, {how} failed", verdicts=verdicts)
