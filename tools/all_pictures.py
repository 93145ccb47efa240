"""Make the pictures of the documentation anew, each from a run of the recipe that it shows.

`python tools/all_pictures.py [NAME ...]`, called by `make pictures`: those named (ranking, report,
…), or all. Runs are kept in runs/pictures; a recipe that was run there is only continued, so delete
the folder to begin anew. All of them take most of an hour on two cores. Needs chromium.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RUNS: Final = ROOT / "runs" / "pictures"
# Name of a picture: the recipe that is run for it, and the keys of the tables that it shows (the
# first gives the picture its name); no tables for the ranking of the run.
TABLES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "ranking": ("pairwise_ranking", ()),
    "align_bench_ratings": ("judges", ("align_bench.ratings",)),
    "alpaca_eval": ("alpaca_eval", ("alpaca_eval", "alpaca_eval.lengths")),
    "auto_j_ratings": ("judges", ("auto_j.ratings",)),
    "confidence": ("confidence", ("confidence", "meta_evaluation.models")),
    "conflict": ("conflict", ("conflict",)),
    "consistency": ("consistency", ("consistency",)),
    "critique_llm_ratings": ("judges", ("critique_llm.ratings",)),
    "glass_box": ("glass_box", ("glass_box", "meta_evaluation.categories")),
    "judge_accuracy_pointwise": (
        "judge_accuracy",
        ("judge_accuracy.pointwise", "judge_accuracy.pairwise"),
    ),
    "judge_benchmark": ("judge_benchmark", ("judge_benchmark", "judge_benchmark.subsets")),
    "judge_calibration": ("reward", ("judge_calibration", "judge_calibration.bins")),
    "judge_prompts": ("judge_prompts", ("judge_prompts", "judge_prompts.agreement")),
    "jury_ratings": ("jury", ("jury.ratings", "judges.agreement", "jury.members")),
    "leaderboard": ("self_evaluation", ("leaderboard", "leaderboard.order", "same_winner")),
    "mt_bench_judge_ratings": ("mt_bench", ("mt_bench_judge.ratings", "mt_bench_judge.wins")),
    "pairwise_scoring_scores": (
        "pairwise_scoring",
        ("pairwise_scoring.scores", "pairwise_scoring.estimators"),
    ),
    "peer_elo": ("peer_elo", ("peer_elo", "peer_elo.length")),
    "pointwise_scores": ("pointwise", ("pointwise.scores", "pointwise.estimators")),
    "probdiff": ("probdiff", ("probdiff", "probdiff.pairs")),
    "probdiff_ablation": ("probdiff_ablation", ("probdiff_ablation",)),
    "rubric_criteria": ("rubric", ("rubric.criteria", "rubric.correlations")),
    "samples": ("curve", ("samples",)),
}
# The same of runs of a real chat model, under names of their own: its tables have the same keys.
CHAT: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "ablation_chat": ("answers_chat", ("probdiff_ablation",)),
    "answers_chat": ("answers_chat", ("consistency", "samples", "conflict")),
    "confidence_chat": ("confidence_chat", ("meta_evaluation.models", "confidence.read")),
    "judge_benchmark_chat": ("judging_chat", ("judge_benchmark", "judge_calibration")),
    "jury_chat": ("judging_chat", ("judges.agreement", "jury.members")),
    "leaderboard_chat": ("judging_chat", ("leaderboard", "leaderboard.order")),
    "rubric_chat": ("rubric_chat", ("rubric.criteria",)),
    "self_preference_chat": ("judging_chat", ("self_preference", "self_preference.judges")),
    "sharpening_chat": ("judging_chat", ("sharpening.entropy", "sharpening")),
    "style_control_chat": ("judging_chat", ("style_control", "style_control.effects")),
}
# The same with files that are not part of this project, in the folder ORCHESTRATOR_DATA: questions
# and prompts of benchmarks. Drawn only where they are named.
GIVEN: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "harnesses_chat": (
        "harnesses_chat",
        ("mt_bench_judge.ratings", "auto_j.ratings", "alpaca_eval"),
    ),
    "llm_bar_chat": ("llm_bar_chat", ("judge_benchmark", "judge_benchmark.subsets")),
}
# Runs that are not of a whole recipe: the recipe, and the options that the documentation names.
PARTS: Final = {
    "answers_chat": ("answers_chat", ("--limit", "24")),
    "harnesses_chat": ("benchmarks/harnesses_chat.yaml", ("--limit", "4")),
    "judging_chat": ("judging_chat", ("--limit", "24")),
    "llm_bar_chat": ("benchmarks/llm_bar_chat.yaml", ()),
}
OTHERS: Final = ("sample", "report", "report_chat", "viewer")
ITEM: Final = 3
UNITS_FAILED: Final = 3
"""Exit code of a run that is finished, but for some units that failed."""


def main() -> None:
    """Run what is needed and draw; exit code 1 if a command fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if omitted")
    usual = [*TABLES, *CHAT, *OTHERS]
    names = parser.parse_args().names or usual
    if unknown := sorted({*names} - {*usual, *GIVEN}):
        sys.exit(f"no such picture: {', '.join(unknown)}; there are {', '.join([*usual, *GIVEN])}")
    for name in names:
        draw(name)


def draw(name: str) -> None:
    """Make one picture, and first the run that it shows."""
    match name:
        case "sample":
            _call("tools/pictures.py", "--sample")
        case "report":
            run = _run("validate")
            _call("-m", "orchestrator", "report", str(run), "--html", str(run / "report.html"))
            _call("tools/report_picture.py", str(run / "report.html"))
        case "report_chat":
            run = RUNS / "demo_chat"
            _call("tools/demo_chat.py", "--run-dir", str(run))
            picture = ROOT / "docs" / "images" / "report_chat.jpg"
            _call("tools/report_picture.py", str(run / "report.html"), "--to", str(picture))
        case "viewer":
            run = _run("pairwise_ranking")
            _call("tools/view_picture.py", str(run.parent), run.name, str(ITEM))
        case _:
            if name in {**CHAT, **GIVEN}:
                _call("-m", "orchestrator", "get", "weights", "smollm2", "--yes", quiet=True)
            recipe, keys = {**TABLES, **CHAT, **GIVEN}[name]
            tables = [argument for key in keys for argument in ("--table", key)]
            named = () if name in TABLES else ("--name", name)
            _call("tools/pictures.py", "--run", str(_run(recipe)), *tables, *named)


def _run(name: str) -> Path:
    run = RUNS / name
    recipe, part = PARTS.get(name, (name, ()))
    options = ("--run-dir", str(run), "--display", "none", *part)
    _call("-m", "orchestrator", "run", recipe, *options, quiet=True, accepted=(0, UNITS_FAILED))
    return run


def _call(*arguments: str, quiet: bool = False, accepted: Sequence[int] = (0,)) -> None:
    output = subprocess.DEVNULL if quiet else None
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False, stdout=output)
    if done.returncode not in accepted:
        done.check_returncode()


if __name__ == "__main__":
    main()
