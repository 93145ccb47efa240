"""Version and changelog of a release, and what stands in its way."""

import datetime as dt
import re
import subprocess
import sys

import pytest

from orchestrator import __version__
from tools.release import FIRST_RUN, ROOT, STATED, ReleaseError, bumped, check, dated

DAY = dt.date(2030, 1, 2)


@pytest.mark.parametrize("name", STATED)
def test_each_file_that_states_the_version_gets_the_new_one(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    new = bumped(text, STATED[name], "999.0.0")
    old = set(text.splitlines()) - set(new.splitlines())
    assert len(old) == 1
    assert '"999.0.0"' in new


@pytest.mark.parametrize("version", ["0.0.1", "0.1.0", "0.02.0", "next"])
def test_a_version_that_is_not_after_the_last_or_odd_is_refused(version):
    with pytest.raises(ReleaseError):
        bumped('version = "0.1.0"\n', STATED["pyproject.toml"], version)


def test_what_was_unreleased_becomes_the_version_below_an_empty_part():
    text = dated("# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0 - 2026-11-22\n", "0.2.0", DAY)
    headings = [line for line in text.splitlines() if line.startswith(("## ", "- "))]
    assert headings == ["## Unreleased", "## 0.2.0 - 2030-01-02", "- New.", "## 0.1.0 - 2026-11-22"]


def test_a_release_without_changes_is_refused():
    with pytest.raises(ReleaseError, match="nothing below"):
        dated("# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-11-22\n\n- Old.\n", "0.2.0", DAY)


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_three_commands_lead_from_the_wheel_to_the_results_of_the_demo(tmp_path):
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    check(wheel, __version__, tmp_path / "clean")
    (run,) = (tmp_path / "clean" / "runs").iterdir()
    assert (run / "store.sqlite").is_file()


def test_the_page_prints_these_commands():
    page = (ROOT / "docs" / "tutorials" / "install.md").read_text(encoding="utf-8")
    shown = re.search(r"## From a wheel\n.*?```sh\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    wheel = re.search(r"[\w-]+(\.[\w-]+)+\.whl", shown[1])
    assert wheel is not None
    said = "\n".join(FIRST_RUN).format(wheel=wheel[0])
    assert [
        line.partition("  #")[0].rstrip() for line in shown[1].splitlines()
    ] == said.splitlines()
