"""Rankings of a run, computed once for the same judgments and kept beside them."""

import hashlib
from typing import Final

import msgspec

from orchestrator.clusters import clusters_of
from orchestrator.columns import ITEMS
from orchestrator.contracts.context import roles_in
from orchestrator.frames import FrameFiles
from orchestrator.ranking.analysis import RankingAnalysis
from orchestrator.runner.results.cache import Keeping, code_digest
from orchestrator.runner.results.frames import analyse
from orchestrator.statistics.trust import DEFAULTS, Thresholds

NAME: Final = ".rankings"
_KEY_BYTES: Final = 16


def rankings_of(
    frames: FrameFiles,
    *,
    confidence_level: float,
    thresholds: Thresholds = DEFAULTS,
) -> list[RankingAnalysis]:
    """Return what `analyse` returns, computed only where no earlier call has kept it."""
    settings = repr((confidence_level, thresholds))
    key = _key(frames, settings)
    if key is None:
        return []

    def compute() -> list[RankingAnalysis]:
        return analyse(frames, confidence_level=confidence_level, thresholds=thresholds)

    keeping = Keeping(frames.beside / NAME)
    found = keeping.once(key, list[RankingAnalysis], compute)
    # Where the run went on meanwhile, the rankings may be those of newer files.
    if _key(frames, settings) == key:
        keeping.save()
    return found


def _key(frames: FrameFiles, settings: str) -> bytes | None:
    """Digest of everything that the rankings come from; None where no frame is ranked."""
    ranked = {
        name: role
        for name, role in roles_in(frames).items()
        if role.pairs is not None and role.pairs.ranked
    }
    if not ranked:
        return None
    digest = hashlib.blake2b(code_digest(), digest_size=_KEY_BYTES)
    digest.update(settings.encode())
    for name, role in ranked.items():
        digest.update(msgspec.json.encode((name, role)))
        digest.update(frames.digest(name))
    if clusters_of(frames).are_known:
        digest.update(frames.digest(ITEMS))
    return digest.digest()
