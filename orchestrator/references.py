"""Works that runs cite, as BibTeX: `references.bib`, the source of the documentation's entries."""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

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
        known = entries(work) if work.lstrip().startswith("@") else bundled()
        keys = known if work.lstrip().startswith("@") else [work] if work in known else []
        found.update({key: known[key] for key in keys})
    return found


@functools.cache
def bundled() -> dict[str, str]:
    """Return the works that come with this project, by key."""
    return entries((files("orchestrator") / "references.bib").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Citation:
    """A paragraph and the references on a run, for the methods section of a paper.

    Attributes:
        text: A paragraph: models, prompts, sampling, seeds, numbers of items, intervals, versions.
            Works are cited by the keys of `entries`, in square brackets.
        entries: BibTeX entries by key: methods, dataset, servers, statistics and this program.
        facts: The same facts as plain data.
    """

    text: str
    entries: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def bibtex(self) -> str:
        """All entries as one BibTeX file."""
        return "\n\n".join(self.entries.values()) + "\n"

    def to_json(self) -> str:
        """Return text, entries and facts as a JSON object."""
        found = {"text": self.text, "bibtex": dict(self.entries), "facts": dict(self.facts)}
        return json.dumps(found, indent=2, default=str) + "\n"
