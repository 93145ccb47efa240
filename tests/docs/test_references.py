"""BibTeX has one source, `references.bib`: what plug-ins and pages cite is in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import contracts, plugins
from orchestrator.references import cited, entries

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs" / "methods").glob("*.md")), ROOT / "docs" / "statistics.md"]
BIB = entries((ROOT / "orchestrator" / "references.bib").read_text(encoding="utf-8"))


def of_page(page: Path) -> set[str]:
    """Return the keys that a page names in a line of its own."""
    lines = re.findall(
        r"^BibTeX \(.*?\)\): (.*)\.$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    return set(re.findall(r"`(\w+)`", " ".join(lines)))


def citing() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for family in (plugins.METHODS, plugins.DATASETS, plugins.BACKENDS, plugins.ANALYSES):
        for kind in plugins.kinds(family):
            yield family, kind, contracts.load(contracts.BASES[family], kind).cites


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_cites_has_an_entry(page):
    assert of_page(page) <= set(BIB)


@pytest.mark.parametrize(("family", "kind", "works"), list(citing()))
def test_what_a_kind_cites_is_known_and_on_its_page(family, kind, works):
    assert set(works) <= set(BIB)
    page = ROOT / "docs" / "methods" / f"{kind}.md"
    if family == plugins.METHODS and page.exists():
        assert works
        assert set(works) <= of_page(page)


def test_entries_are_whole():
    text = (ROOT / "orchestrator" / "references.bib").read_text(encoding="utf-8")
    assert len(BIB) == len(re.findall(r"^@", text, re.MULTILINE))
    for key, entry in BIB.items():
        assert entry.count("{") == entry.count("}"), key
        assert "title" in entry


def test_a_plug_in_may_cite_whole_entries():
    own = "@misc{mine,\n  title = {A @ B}\n}"
    assert cited([own, "xia2024probdiff", "unknown"]) == {
        "mine": own, "xia2024probdiff": BIB["xia2024probdiff"],
    }  # fmt: skip
