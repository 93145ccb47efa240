"""How much the product does at once: of a few rows, too, it makes several parts with `small`."""

from typing import Final

import pytest

SMALL: Final = {
    "orchestrator.contracts.context.ROWS_AT_ONCE": 3,
    "orchestrator.dataset.rows._CHUNK": 7,
    "orchestrator.frames._CHUNK_ROWS": 2,
    "orchestrator.frames.PART_ROWS": 3,
    "orchestrator.ranking.preferences._CELLS": 8,
    "orchestrator.runner.session.session._OPENED_AT_ONCE": 2,
    "orchestrator.runner.session.token_texts._AT_ONCE": 2,
    "orchestrator.scheduler.window._SCANNED_AT_ONCE": 2,
    "orchestrator.statistics.association._CHUNK_CELLS": 20,
    "orchestrator.statistics.bounded_mean._CELLS": 8,
    "orchestrator.statistics.bradley_terry._CHUNK_ROWS": 3,
    "orchestrator.statistics.elo._CHUNK_CELLS": 20,
    "orchestrator.statistics.field._CELLS": 8,
    "orchestrator.statistics.prompt_sums._CHUNK_CELLS": 8,
    "orchestrator.statistics.prompt_sums._DENSE_CELLS": 20,
    "orchestrator.statistics.resampling._CHUNK_BYTES": 400,
    "orchestrator.statistics.resampling._CHUNK_CELLS": 20,
    "orchestrator.store.blobs._BYTES_AT_ONCE": 50,
    "orchestrator.store.lookup._LOADED_AT_ONCE": 2,
    "orchestrator.store.merging._AT_ONCE": 2,
    "orchestrator.store.merging._COPIED_AT_ONCE": 3,
    "orchestrator.store.merging._DUPLICATES_AT_ONCE": 2,
    "orchestrator.store.reading._POSITIONS_AT_ONCE": 3,
    "orchestrator.store.reading._ROWS_AT_ONCE": 2,
    "orchestrator.store.salvage._AT_ONCE": 2,
    "orchestrator.store.values.UNITS_AT_ONCE": 3,
    "orchestrator.summaries._peer._CHUNK_ROWS": 3,
    "backends.bertscore.encoder._SIMILARITIES_AT_ONCE": 64,
}
"""Bounds of a part, and such as three rows exceed."""


def small(monkeypatch: pytest.MonkeyPatch, within: str = "") -> None:
    """Lower the bounds of the modules of a package, by default of all."""
    for name, bound in SMALL.items():
        if name.startswith(within):
            monkeypatch.setattr(name, bound)
