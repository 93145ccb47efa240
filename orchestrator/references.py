"""Works that runs cite, as BibTeX: `references.bib`, the source of the documentation's entries."""

import functools
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

_KEY: Final = re.compile(r"@\w+\{\s*([^,\s]+)\s*,")


def entries(text: str) -> dict[str, str]:
    """Return the entries of a BibTeX text by key; an entry begins a line with `@`."""
    found = (part.strip() for part in re.split(r"^(?=@)", text, flags=re.MULTILINE))
    keyed = ((_KEY.match(part), part) for part in found)
    return {key[1]: part for key, part in keyed if key is not None}


def cited(works: Iterable[str]) -> dict[str, str]:
    """Return the entries of works by key, each once, in their order.

    Args:
        works: Keys of `references.bib`, or whole BibTeX entries; unknown keys are left out.
    """
    found: dict[str, str] = {}
    for work in works:
        known = entries(work) if work.lstrip().startswith("@") else _bundled()
        keys = known if work.lstrip().startswith("@") else [work] if work in known else []
        found.update({key: known[key] for key in keys})
    return found


@functools.cache
def _bundled() -> dict[str, str]:
    return entries((files("orchestrator") / "references.bib").read_text(encoding="utf-8"))
