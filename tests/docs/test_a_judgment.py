"""The page that walks a judgment from a recipe to a rating, held against a run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "a_judgment_file_by_file.md"
STEPS = re.findall(r"^\d+\. `(\S+)`, `(\S+)`: ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
MAX_FILES = 25
# A request is written where it is asked for: below the back-end, the scheduler and the fleet.
MAX_FRAMES, MAX_FILES_OF_FRAMES = 21, 10
RECIPE = {
    "name": "judged",
    "models": {
        name: {"server": "fake", "weights": f"{name}:0.5"} for name in ("small", "large", "judge")
    },
    "dataset": {"kind": "demo", "n": 2},
    "methods": [{"kind": "pairwise_ranking", "judges": ["judge"]}],
}
PROFILED = """
import json, sys
from orchestrator.cli import main

root, target, *words = sys.argv[1:]
entered, sending = {}, []

own = tuple(f"{root}/{name}/" for name in ("orchestrator", "backends", "launch"))

def is_own(frame):
    return frame.f_code.co_filename.startswith(own)

def note(frame, event, _):
    code = frame.f_code
    # Functions only: bodies of modules and classes run when they are imported.
    if event != "call" or not code.co_flags & 1 or not is_own(frame):
        return
    name = code.co_filename[len(root) + 1 :]
    entered.setdefault((name, code.co_qualname))
    if code.co_qualname == "AiohttpTransport._exchange" and not sending:
        while frame is not None:
            if is_own(frame):
                sending.append(frame.f_code.co_filename)
            frame = frame.f_back

sys.setprofile(note)
code = main(words)
sys.setprofile(None)
with open(target, "w") as file:
    json.dump({"entered": list(entered), "sending": sending}, file)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    recipe, target = folder / "judged.json", folder / "profile.json"
    recipe.write_text(json.dumps(RECIPE))
    words = ["run", str(recipe), "--run-dir", str(folder / "run"), "--display", "none"]
    subprocess.run(
        [sys.executable, "-c", PROFILED, str(ROOT), str(target), *words],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    return json.loads(target.read_text())


def test_a_run_enters_the_functions_of_the_page_in_their_order(profile):
    steps = [list(step) for step in STEPS]
    assert 0 < len({file for file, _ in STEPS}) == len(STEPS) <= MAX_FILES
    assert [one for one in profile["entered"] if one in steps] == steps


def test_the_first_byte_of_a_run_is_few_frames_away_from_the_command(profile):
    assert 0 < len(profile["sending"]) <= MAX_FRAMES
    assert len(set(profile["sending"])) <= MAX_FILES_OF_FRAMES
