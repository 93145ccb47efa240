"""Build the documentation site into build/docs, without network, and check it.

`python tools/docs.py [--to DIR]`, called by `make docs`. Sphinx treats each warning as an error: a
link or anchor that does not resolve, a page outside the navigation, a reference to an unknown name.
Then the finished pages are checked: local links and anchors, files fetched from elsewhere, public
names that the API reference lacks. Exit code 1 with a line a fault.
"""

import argparse
import importlib
import inspect
import re
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import build_main

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "build" / "docs"
# Modules whose `__all__` is the public interface (docs/versioning.md).
PUBLIC: Final = ("orchestrator", "orchestrator.plugin")
# Attributes that make a browser fetch a file unasked; a link that a reader follows may go anywhere.
_FETCHED: Final = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
_IN_CSS: Final = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""")


def main() -> None:
    """Build, check and say where the site is; exit code 1 on any fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, default=SITE, help="folder for the pages")
    options = parser.parse_args()
    failed = not build(ROOT / "docs", options.to)
    faults = [*broken_links(options.to), *fetched_files(options.to), *missing_names(options.to)]
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    if failed or faults:
        sys.exit(1)
    print(f"{len(list(options.to.rglob('*.html')))} pages: {options.to / 'index.html'}")


def build(pages: Path, site: Path) -> bool:
    """Turn a folder of pages into HTML; False if Sphinx had an error or a warning."""
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env", "--quiet"]
    doctrees = site.with_name(f"{site.name}-doctrees")
    settings = ["-c", str(ROOT / "docs"), "-d", str(doctrees)]
    return build_main(["-b", "html", *settings, *strict, str(pages), str(site)]) == 0


class _Page(HTMLParser):
    """Links, anchors and fetched files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            if (tag, name) in _FETCHED:
                self.fetched.append(value)
            if (tag == "a" and name == "href") or (tag, name) in _FETCHED:
                self.links.append(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield each local link of a page whose file or anchor does not exist."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in _pages(site)}
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(site.resolve())}: "
            if not target.is_file():
                yield f"{where}link to a file that does not exist: {link}"
            elif (found := pages.get(target)) and not _has(found, parts.fragment):
                yield f"{where}link to an anchor that does not exist: {link}"


def fetched_files(site: Path) -> Iterator[str]:
    """Yield each file that a page or style sheet would fetch from another place."""
    for path in _pages(site):
        for link in _Page(path.read_text(encoding="utf-8")).fetched:
            parts = urlsplit(link)
            if parts.netloc or (parts.scheme and parts.scheme != "data"):
                yield f"{path.relative_to(site)}: fetches {link}"
    for path in sorted(site.rglob("*.css")):
        for address in _IN_CSS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: fetches {address}"


def missing_names(site: Path) -> Iterator[str]:
    """Yield each public name that has no docstring, or no place in the API reference."""
    described = inventory(site / "objects.inv")
    names = list(public_names())
    # An error that two modules export has its place under one of the names.
    elsewhere = {id(value) for name, value in names if name in described}
    for name, value in names:
        if name not in described and id(value) not in elsewhere:
            yield f"{name}: not in the API reference"
        if not inspect.getdoc(value):
            yield f"{name}: no docstring"


def public_names() -> Iterator[tuple[str, object]]:
    """Yield the dotted name and the object of each public name, and of its own public methods."""
    for module_name in PUBLIC:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            yield f"{module_name}.{name}", value
            if not isinstance(value, type):
                continue
            for member, own in vars(value).items():
                if not member.startswith("_") and (callable(own) or _is_descriptor(own)):
                    yield f"{module_name}.{name}.{member}", own


def inventory(file: Path) -> set[str]:
    """Return the names that a Sphinx inventory (version 2) holds for Python."""
    head, _, packed = file.read_bytes().partition(b"using zlib.\n")
    assert b"version 2" in head  # noqa: S101 (Sphinx has written no other since 2010)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split()[0] for line in lines if " py:" in line}


def _is_descriptor(value: object) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or hasattr(value, "func")


def _has(page: _Page, anchor: str) -> bool:
    return not anchor or unquote(anchor) in page.anchors


def _pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


if __name__ == "__main__":
    main()
