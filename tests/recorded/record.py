"""Records a real server's replies to `asks`, with what a forward pass says of the same.

`python -m tests.recorded.record vllm` (or llamacpp) launches the server of that kind of the
conformance suite.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from backends import llamacpp, vllm
from backends._openai_compatible import OpenaiCompatible
from backends._transport import http_transport
from orchestrator.ask import ChooseAsk
from orchestrator.backend import Endpoint, Provenance
from orchestrator.records import Generation, Messages, Scored
from orchestrator.wire import by_ids
from tests.conformance.measure import known
from tests.conformance.reference import Reference
from tests.conformance.servers import KINDS, MODEL, Running, running
from tests.conftest import BUNDLED
from tests.recorded.asks import CHOICES, DRAWS, FAULTY, SCORES, asked
from tests.recorded.replay import Recorder, Recording


def main(kind: str) -> None:
    """Launch, ask, compare, write."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with running(KINDS[kind], log) as run:
            kept = asyncio.run(_record(run, Reference(BUNDLED / MODEL)))
    path = kept.write(kind)
    sys.stdout.write(f"{path}: {len(kept.exchanges)} exchanges, {path.stat().st_size} bytes\n")


async def _record(run: Running, truth: Reference) -> Recording:
    kept = Recording({})
    endpoint = Endpoint(
        base_url=run.server.base_url, model=MODEL, api_key=run.server.api_key, max_in_flight=1
    )
    transport = Recorder(http_transport(endpoint), kept.keep)

    def connected() -> OpenaiCompatible:
        """A back-end that knows nothing yet, so that every ask can be played by itself."""
        if run.kind.name == "llamacpp":
            settings = llamacpp.Config.model_validate(run.kind.backend)
            return llamacpp.Connection(endpoint, transport, settings)
        return vllm.Connection(endpoint, transport, vllm.Config.model_validate(run.kind.backend))

    stated = known(await connected().provenance())
    assert isinstance(stated, Provenance)
    kept.about = {
        "server": stated.backend,
        "version": stated.version,
        "fingerprint": stated.fingerprint,
        "model": run.kind.weights,
        "settings": str(dict(run.kind.settings)),
    }
    for name, ask in (DRAWS | SCORES).items():
        outcome = known(await asked(connected(), ask))
        kept.truth[name] = _of_ids(truth, ask.messages, outcome)
    for name, choice in CHOICES.items():
        known(await asked(connected(), choice))
        kept.truth[name] = _of_labels(truth, choice)
    for faulty in FAULTY.values():
        await asked(connected(), faulty)
    await connected().load()
    await transport.close()
    return kept


def _of_ids(truth: Reference, messages: Messages, outcome: object) -> dict[str, Any]:
    assert isinstance(outcome, Generation | Scored)
    assert outcome.token_ids is not None
    ids = outcome.token_ids.tolist()
    rows = truth.logprobs(truth.prompt(messages), ids)
    best = np.argsort(-rows, axis=1)[:, :2]
    return {
        "ids": ids,
        "logprobs": _rounded(rows[np.arange(len(ids)), ids]),
        "best_ids": best.tolist(),
        "best_logprobs": [_rounded(row[some]) for row, some in zip(rows, best, strict=True)],
    }


def _of_labels(truth: Reference, ask: ChooseAsk) -> list[float]:
    before = [*truth.prompt(ask.messages), *truth.encode(ask.prefix.text)]
    groups = [[tuple(truth.encode(text)) for text in label.spellings] for label in ask.labels]
    names = [label.name for label in ask.labels]
    paths, _ = by_ids.cut(groups, names, truth.tokenizer.eos_token_id)
    return _rounded(
        [
            np.logaddexp.reduce([truth.scores(before, path).sum() for path in group])
            for group in paths
        ]
    )


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]


if __name__ == "__main__":
    main(sys.argv[1])
