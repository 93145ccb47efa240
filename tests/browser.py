"""Chromium for tests: what marks them, fixtures that conftest.py of a folder imports, and axe."""

import functools
import shutil
import subprocess
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

IN_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is absent"),
]


@functools.cache
def lacks_arial() -> bool:
    """Return True if no font here is as wide as Arial, which charts are laid out for."""
    if shutil.which("fc-match") is None:
        return True
    found = subprocess.run(["fc-match", "Arial"], capture_output=True, text=True).stdout
    return not any(name in found for name in ("Arial", "Liberation Sans", "Arimo", "Helvetica"))


LIKE_ARIAL = pytest.mark.skipif(
    CHROMIUM is not None and lacks_arial(),
    reason="no font as wide as Arial is here: root installs one by make test-all",
)


@pytest.fixture(scope="module")
def browser():
    # Other tests of these folders need no browser and don't wait for its import.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core, fetched by npm's own client."""
    npm = shutil.which("npm")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm or "npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
    if npm is None or subprocess.run([*command, "axe-core@4"], capture_output=True).returncode:
        pytest.skip("axe-core is absent: npm can't fetch it")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def assert_no_fault(page: Any, axe: str, n_passes: int) -> None:
    """axe finds no fault of any impact in a page, and more than so many rules that it keeps."""
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > n_passes
    faults = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]
    assert faults == []
