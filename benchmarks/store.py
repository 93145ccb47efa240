"""Measure the store: records a second, processor time and bytes a record, look-ups, start-up.

    python benchmarks/store.py [--records N] [--folder DIR]
    python benchmarks/store.py --vocabulary smollm2 [--write]

The folder decides whose disk is measured. With --vocabulary only outcomes as bytes are measured:
those of a real chat model (`_drawn.py`), by what is observed. --write puts the table into
docs/performance.md. Nothing is asserted.
"""

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import _drawn, _page
from benchmarks._runs import RECORDED
from orchestrator.ask import ScoreAsk, digest
from orchestrator.records import Choice, Failure, Generation, Label, Message, Outcome, TopLogprobs
from orchestrator.store import Lender, RunDirectory, Store, codec
from orchestrator.wire import replies
from orchestrator.wire.drawn import Reading
from orchestrator.wire.labels import choice_from_top

_VERDICTS = (Label("A", ("A", " A")), Label("B", ("B", " B")))
_ROUNDS = 40
TOP_SHAPE = (256, 20)


def judge(rng: np.random.Generator) -> Choice:
    logprobs = tuple(np.log(rng.dirichlet(np.ones(5))).tolist())
    return Choice(logprobs, logprobs, "top_logprobs", 1063, 1024, 2)


def answer(rng: np.random.Generator) -> Generation:
    top = np.sort(rng.gumbel(size=TOP_SHAPE).astype(np.float32) - 8)[:, ::-1]
    ids = rng.integers(0, 150_000, TOP_SHAPE, np.int32)
    words = rng.choice(["alpha", "be", "gamma", "delta", "the", "of", "zeta"], 200)
    return Generation(
        " ".join(words),
        "stop",
        100,
        257,
        ids[:, 0].copy(),
        top[:, 0].copy(),
        TopLogprobs(ids, top),
    )


def plain(rng: np.random.Generator) -> Generation:
    made = answer(rng)
    return Generation(made.text, "stop", 100, 257, made.token_ids, made.logprobs)


def measure_codec(name: str, outcome: Outcome) -> None:
    packed = codec.encode(outcome)
    n = 3000

    def microseconds(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(n):
            work()
        return (time.perf_counter() - start) / n * 1e6

    encode = microseconds(lambda: codec.encode(outcome))
    decode = microseconds(lambda: codec.decode(*packed))
    n_bytes = sum(map(len, packed))
    print(f"{name:28} encode {encode:7.1f} us   decode {decode:7.1f} us   {n_bytes:6} B")


def drawn(dtype: _drawn.Dtype) -> dict[str, list[Outcome]]:
    """Outcomes that the client makes of the replies of a real chat model, by what is observed."""
    model = json.loads((RECORDED / "judge.json").read_bytes())
    bodies = _drawn.bodies(_drawn.recorded(dtype), model)

    def answers(kind: str, top: int) -> list[Outcome]:
        reading = Reading(top=top)
        return [_known(replies.generation(body, reading)) for body in bodies[kind]]

    def scores(top: int, features: tuple[str, ...]) -> list[Outcome]:
        said = (Message("user", "x"),)
        ask = ScoreAsk("m", said, (), "x", top_logprobs=top, features=features)
        method = "embedded.score"
        return [_known(replies.scored(body, ask, method, "")) for body in bodies["score"]]

    n_top, features = _drawn.N_TOP, _drawn.FEATURES
    attention, of_tokens = features[:1], features[1:]
    judgments = [choice_from_top(body, _VERDICTS) for body in bodies["judge"]]
    return {
        "judgment of one token": [_known(one) for one in judgments],
        "answer": answers("reply", 0),
        f"answer, {n_top} alternatives by their texts": answers("words", n_top),
        f"answer, {n_top} alternatives by id": answers("reply", n_top),
        "score": scores(0, ()),
        f"score, {n_top} alternatives": scores(n_top, ()),
        "score, three features a token": scores(0, of_tokens),
        "score, entropy of each attention head": scores(0, attention),
        "score, all features": scores(0, features),
        f"score, all features, {n_top} alternatives": scores(n_top, features),
    }


def _known(outcome: Outcome | Failure) -> Outcome:
    if isinstance(outcome, Failure):
        raise SystemExit(f"a recorded reply can't be read: {outcome.message}")
    return outcome


def measure_drawn(*, write: bool) -> None:
    """Bytes of such outcomes, and processor time to make them and to read them again."""
    rows = []
    wide = drawn("float32")
    for name, outcomes in drawn("bfloat16").items():
        packed = [codec.encode(one) for one in outcomes]
        encode = _microseconds(lambda: [codec.encode(one) for one in outcomes])  # noqa: B023
        decode = _microseconds(lambda: [codec.decode(*one) for one in packed])  # noqa: B023
        n = len(outcomes)
        rows.append(
            f"| {name} | {_mean_bytes(outcomes):,.0f} | {_mean_bytes(wide[name]):,.0f} | "
            f"{encode / n:.0f} | {decode / n:.0f} |"
        )
    lines = [
        "## Store: outcomes of a real chat model",
        "",
        f"Replies of SmolLM2 ({_drawn.N_TOKENS} tokens of a vocabulary of 49,152, temperature 1) "
        "as stored blobs, without keys, the columns beside them and the pages of SQLite.",
        "",
        "| outcome | bytes, bfloat16 | bytes, float32 | encode, CPU us | decode, CPU us |",
        "| --- | --: | --: | --: | --: |",
        *rows,
        "",
        f"{_page.machine()}. Command: `python benchmarks/store.py --vocabulary smollm2`",
    ]
    _page.publish("store-smollm2", "\n".join(lines), {}, write=write)


def _mean_bytes(outcomes: Sequence[Outcome]) -> float:
    return sum(len(blob) for one in outcomes for blob in codec.encode(one)) / len(outcomes)


def _microseconds(work: Callable[[], object]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    for _ in range(_ROUNDS):
        work()
    return (time.process_time() - start) / _ROUNDS * 1e6


def measure_store(folder: Path, name: str, outcomes: list[Outcome], n: int) -> None:
    path = folder / f"{name}.sqlite"
    keys = [digest(name, number) for number in range(n)]
    with Store.open(path) as store:
        wall, cpu = time.perf_counter(), time.process_time()
        for number, key in enumerate(keys):
            store.put_outcome(
                key,
                "choose",
                "judge",
                outcomes[number % len(outcomes)],
                server=1,
                prompt_hash=key,
                attempts=1,
                latency_s=0.1,
            )
        queued = time.perf_counter() - wall
        store.flush()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        start = time.perf_counter()
        for key in keys:
            store.get(key)
        got = (time.perf_counter() - start) / n * 1e6
        start = time.perf_counter()
        for key in keys:
            store.get(key[::-1])
        missed = (time.perf_counter() - start) / n * 1e6
    print(
        f"{name:28} {n / wall:7.0f} records/s   {cpu / n * 1e6:5.0f} us CPU   "
        f"put {queued / n * 1e6:5.1f} us   get {got:5.1f} us   miss {missed:4.1f} us   "
        f"{path.stat().st_size / n:6.0f} B/record"
    )


def written_bytes() -> int:
    """Return the bytes that this process has handed to the disk so far (Linux)."""
    counters = Path("/proc/self/io").read_text(encoding="utf-8").split()
    return int(counters[counters.index("wchar:") + 1])


def measure_commits(folder: Path, n: int) -> None:
    """Outcomes and units as a run puts them, committed 64 outcomes at a time."""
    with Store.open(folder / "commits.sqlite") as store:
        plan = store.open_plan(b"a" * 16, n)
        written, cpu = written_bytes(), time.process_time()
        for number in range(n):
            key, logprobs = digest(number), (-1.0 - number / n, -2.0, -3.0)
            store.put_outcome(
                key,
                "choose",
                "judge",
                Choice(logprobs, logprobs, "top_logprobs", 1063, 1024, 1),
                server=1,
                prompt_hash=key,
                attempts=1,
                latency_s=0.1,
            )
            if number % 2:
                unit = digest("unit", number)
                store.put_unit(unit, plan, number // 2, 0, "judgments", [("item", "a", "b", 0.5)])
            if number % 64 == 63:
                store.flush()
        store.flush()
        cpu, n_bytes = time.process_time() - cpu, (folder / "commits.sqlite").stat().st_size
        print(
            f"{n} outcomes and {n // 2} units in commits of 64: {cpu / n * 1e6:.0f} us CPU an "
            f"outcome, {(written_bytes() - written) / 1e6:.0f} MB written for a file of "
            f"{n_bytes / 1e6:.0f} MB"
        )


def measure_lending(folder: Path, n: int) -> None:
    """Measure the cost of `reuse`: looking for a key, and copying its outcome."""
    with RunDirectory.lock(folder / "lends") as run, Store.open(run.store_path) as store:
        for number in range(n):
            logprobs = (-1.0 - number / n, -2.0, -3.0)
            made = Choice(logprobs, logprobs, "top_logprobs", 1063, 1024, 1)
            store.put_outcome(
                digest(number), "choose", "judge", made,
                server=1, prompt_hash=b"", attempts=1, latency_s=0.1,
            )  # fmt: skip
    keys = [digest(number) for number in range(n)]
    with (
        contextlib.closing(Lender(folder / "lends")) as lender,
        Store.open(folder / "borrows.sqlite") as store,
    ):
        start = time.thread_time()
        lender.find(b"none")
        first = time.thread_time() - start
        start = time.thread_time()
        for key in keys:
            lender.find(key[::-1])
        missed = time.thread_time() - start
        store.get(b"none")
        start, cpu = time.thread_time(), time.process_time()
        for key in keys:
            lent = lender.find(key)
            if lent is not None:
                store.copy_outcome("choose", "judge", lent, 1)
        copied = time.thread_time() - start
        store.flush()
        cpu = time.process_time() - cpu
    print(
        f"{n} outcomes of another run: first look-up {first * 1e3:.0f} ms, miss "
        f"{missed / n * 1e6:.1f} us, copy {copied / n * 1e6:.0f} us, with the writer's thread "
        f"{cpu / n * 1e6:.0f} us CPU"
    )


def measure_plan(folder: Path, n: int) -> None:
    with Store.open(folder / "plan.sqlite") as store:
        plan = store.open_plan(b"a" * 16, n)
        start = time.perf_counter()
        for position in range(n):
            unit = digest("unit", position)
            store.put_unit(unit, plan, position, 0, "judgments", [("item", "a", "b", 0.5)])
        store.flush()
        put = time.perf_counter() - start
        start = time.perf_counter()
        store.done_bitmap(plan, n)
        bitmap = time.perf_counter() - start
        start = time.perf_counter()
        n_rows = sum(len(unit.rows) for unit in store.iter_rows(plan, "judgments"))
        rows = time.perf_counter() - start
        other = store.open_plan(b"b" * 16, n)
        hashes = [(position, digest("unit", position)) for position in range(n)]
        start = time.perf_counter()
        store.adopt(other, hashes)
        adopt = time.perf_counter() - start
    print(
        f"{n_rows} units: put {put / n * 1e6:.0f} us, bitmap {bitmap / n * 1e6:.2f} us, "
        f"rows {rows / n * 1e6:.1f} us, adopt {adopt / n * 1e6:.1f} us each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--vocabulary", choices=("smollm2",), help="outcomes of a real chat model")
    parser.add_argument("--write", action="store_true", help="its table into docs/performance.md")
    options = parser.parse_args()
    if options.vocabulary:
        measure_drawn(write=options.write)
        return
    rng = np.random.default_rng(0)
    makers: dict[str, Callable[[np.random.Generator], Outcome]] = {
        "judge choice": judge,
        "answer, 256 log-probs": plain,
        "answer, 256 x 20 log-probs": answer,
    }
    shares = {"judge choice": 1, "answer, 256 log-probs": 4, "answer, 256 x 20 log-probs": 20}
    for name, make in makers.items():
        measure_codec(name, make(rng))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, make in makers.items():
            outcomes = [make(rng) for _ in range(50)]
            measure_store(Path(folder), name, outcomes, options.records // shares[name])
        measure_plan(Path(folder), options.records)
        measure_lending(Path(folder), options.records)
        measure_commits(Path(folder), options.records)


if __name__ == "__main__":
    main()
