"""What the commands print of some runs, a file a screen: run pytest with --approve, and look."""

import functools
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.oracles.verdicts.runs import command, made
from tests.oracles.verdicts.studies import drawn, scored

ROOT = Path(__file__).parents[2]
STUDIES = {
    "some_failed": functools.partial(drawn, 57),
    "clusters": functools.partial(drawn, 26),
    "hard": functools.partial(drawn, 105),
    "rare_wins": functools.partial(drawn, 140),
    "copies": functools.partial(drawn, 148),
    "scores": functools.partial(scored, 4),
    "unsure_scores": functools.partial(scored, 28),
}
GATES = (
    *("--require", "ash > birch", "--require", "birch >= ash - 0.2"),
    *("--require", "failed() <= 0", "--require", "missing(judge) < 0.5"),
)
SCORE_GATES = (
    *("--require", "score(ash) > score(birch)", "--require", "score(cedar) >= 2"),
    *("--require", "failed() <= 0.02"),
)
SCREENS = {
    "report": ("report", "RUN"),
    "full": ("report", "RUN", "--full"),
    "markdown": ("report", "RUN", "--format", "markdown"),
    "compare": ("compare", "RUN"),
    "compare_markdown": ("compare", "RUN", "--confidence", "0.8", "--format", "markdown"),
    "gate": ("gate", "RUN", "GATES"),
    "gate_markdown": ("gate", "RUN", "GATES", "--confidence", "0.8", "--format", "markdown"),
    "cite": ("cite", "RUN"),
}
JSON = {
    "report_json": ("report", "RUN", "--format", "json"),
    "compare_json": ("compare", "RUN", "--format", "json"),
    "gate_json": ("gate", "RUN", "GATES", "--format", "json"),
}
ALL = {"some_failed": SCREENS | JSON, "scores": SCREENS}
EACH = {name: SCREENS[name] for name in ("full", "compare", "gate")}
# How long a run took, when, and of which version.
HIDDEN = (
    (re.compile(r" · [\d.,]+ (ms|s|min)$", re.MULTILINE), ""),
    (re.compile(r'"hours": [\d.e-]+'), '"hours": TIME'),
    (re.compile(r"\d{4}-\d\d-\d\d(T[\d:.+Z]+)?"), "DATE"),
    (re.compile(re.escape(version("selfeval-orchestrator"))), "VERSION"),
)
# Digits that not every machine computes alike.
LONG = re.compile(r"-?\d+\.\d{9,}(e-?\d+)?")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run of a study, which is made once."""

    @functools.cache
    def of(name):
        return made(STUDIES[name](), tmp_path_factory.mktemp("study") / name)

    return of


@pytest.mark.parametrize(
    ("study", "screen"),
    [(study, screen) for study in STUDIES for screen in ALL.get(study, EACH)],
)
def test_screen(study, screen, run, approved):
    folder = run(study)
    gates = SCORE_GATES if "scores" in study else GATES
    words: list[str | Path] = []
    for word in (SCREENS | JSON)[screen]:
        words += {"RUN": [folder], "GATES": gates}.get(word, [word])
    code, out, err = command(*words)
    text = f"exit code {code}\n{out}" + (f"on stderr:\n{err}" if err else "")
    for pattern, shown in HIDDEN:
        text = pattern.sub(shown, text)
    text = LONG.sub(lambda found: f"{float(found[0]):.9g}", text)
    approved(text, folder=folder.parent, project=ROOT)
