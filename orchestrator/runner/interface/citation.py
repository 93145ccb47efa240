"""The citations of a run as a value, without what it takes to make them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
