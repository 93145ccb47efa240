"""Runs of `orchestrator run` against a fixed-reply server, as the benchmarks of the client need.

What is measured is the command itself, in a process of its own. Kinds of run: *judge*, whose
every request is one judgment of one token that lists 20 log-probabilities, of answers that exist;
*reply*, whose every request draws an answer of 256 tokens with 20 log-probabilities each; and
*score*, whose every request scores an answer of 256 tokens with glass-box features. The replies
are bodies recorded from vLLM, with the changes listed in `bodies`, or those of a real chat model
(`_drawn.py`).
"""

import copy
import hashlib
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _drawn
from benchmarks._server import launched

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT.parent / "shared" / "data" / "vllm_replies"
CANDIDATES = ("m1", "m2", "m3", "m4", "m5")
PER_ITEM = {"judge": len(CANDIDATES) * (len(CANDIDATES) - 1), "reply": 1, "score": 1}
_VOCABULARY = 151_936
# Tokens of the recorded judgment that stand for the labels.
_LABELS = {" while": "A", "ats": " A", " similarity": "B", " $": " B"}
_PROMPT_WORDS = 560


class Server(NamedTuple):
    """A running fixed-reply server."""

    url: str

    @property
    def port(self) -> int:
        """Port on which it listens."""
        return int(self.url.rpartition(":")[2])

    def asked(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        """Return the server's reply about itself."""
        with urllib.request.urlopen(self.url + path) as reply:  # noqa: S310 (loopback)
            return json.load(reply)

    def n_answered(self) -> int:
        """Chat and score requests that it answered."""
        counts = self.asked("/counts").items()
        return sum(n for path, n in counts if path.endswith(("completions", "score")))


class Measured(NamedTuple):
    """Resources that one call of the command took.

    Attributes:
        n_requests: That the server counted.
        cpu_s: User and system time of all threads and children.
        wall_s: From start to end.
        rss_mb: Most memory, MiB.
        n_bytes: Of the store, an outcome.
        first_s: From start to the first request.
        first_cpu_s: The processor time of that, to 0.02 s.
    """

    n_requests: int
    cpu_s: float
    wall_s: float
    rss_mb: float
    n_bytes: float
    first_s: float
    first_cpu_s: float


def bodies(folder: Path) -> dict[str, Path]:
    """Write the reply of each kind of run.

    *judge*: `judge.json`, four of its 20 tokens renamed to the labels and their variants. *reply*:
    `large.json` as a server writes it that was asked for ids: each token named by an id, here a
    hash of the token, as spread out as ids of a large vocabulary. *words*: `large.json` as it is.
    """
    judge = json.loads((RECORDED / "judge.json").read_bytes())
    for entry in judge["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
        if entry["token"] in _LABELS:
            entry["token"] = _LABELS[entry["token"]]
            entry["bytes"] = list(entry["token"].encode())
    words = json.loads((RECORDED / "large.json").read_bytes())
    reply = copy.deepcopy(words)
    content = reply["choices"][0]["logprobs"]["content"]
    for position in content:
        position["token"] = f"token_id:{_id(position)}"
        # Several tokens of one place may have one text; the drawn one is the first of them.
        n_before: Counter[str] = Counter()
        for entry in position["top_logprobs"]:
            text = entry["token"]
            entry["token"] = f"token_id:{_id(entry, n_before[text])}"
            n_before[text] += 1
    found = {"judge": judge, "reply": reply, "words": words}
    paths = {name: folder / f"{name}.json" for name in found}
    for name, body in found.items():
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        paths[name].write_text(text, encoding="utf-8")
    return paths


def _id(entry: dict[str, Any], n_before: int = 0) -> int:
    said = json.dumps([entry["token"], entry["bytes"], *[n_before] * bool(n_before)]).encode()
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) % _VOCABULARY


def drawn_bodies(folder: Path) -> dict[str, list[Path]]:
    """Write the replies of each kind of run that a real chat model gave.

    Raises:
        LaunchError: If its weights are not installed.
    """
    model = json.loads((RECORDED / "judge.json").read_bytes())
    found: dict[str, list[Path]] = {}
    for name, texts in _drawn.bodies(_drawn.recorded(), model).items():
        found[name] = [folder / f"drawn-{name}-{place}.json" for place in range(len(texts))]
        for path, text in zip(found[name], texts, strict=True):
            path.write_bytes(text)
    return found


@contextmanager
def served(*files: Path, port: int = 0) -> Iterator[Server]:
    """A server whose chats and scores are answered with the content of the files, in turn."""
    chats = (word for file in files for word in ("--chat", str(file.resolve())))
    options = ["--port", str(port), *chats]
    with launched("benchmarks.fixed_server", *options) as url:
        yield Server(url)


def write_recipe(folder: Path, kind: str, n_requests: int, url: str) -> Path:
    """A recipe with its dataset: prompts of at least 3 KB that all differ."""
    n_items = n_requests // PER_ITEM[kind]
    rng = random.Random(1)  # noqa: S311 (made-up text)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    with (folder / "items.jsonl").open("w", encoding="utf-8") as file:
        for index in range(n_items):
            text = f"{index} " + " ".join(rng.choices(words, k=_PROMPT_WORDS))
            answers = {name: f"{name} gives answer {index}" for name in CANDIDATES}
            file.write(json.dumps({"id": str(index), "prompt": text, **answers}) + "\n")
    judge: dict[str, Any] = {"base_url": url, "model": "judge"}
    judge["backend"] = {"kind": "openai", "top_logprobs": 20} if kind != "score" else "embedded"
    recipe: dict[str, Any] = {
        "name": "client",
        "dataset": {"path": "items.jsonl"},
        "limits": {"max_in_flight": 64},
        "statistics": {"n_resamples": 100},
        "probe": False,
    }
    if kind == "judge":
        recipe["models"] = {name: {"answers": {"field": name}} for name in CANDIDATES}
        recipe["models"]["judge"] = judge
        recipe["methods"] = [{"kind": "pairwise_ranking", "judges": ["judge"], "labels": "two"}]
    elif kind == "score":
        recipe["models"] = {"m1": {"answers": {"field": "m1"}}, "judge": judge}
        features = ["vocabulary", "attention"]
        recipe["methods"] = [{"kind": "glass_box", "scorer": "judge", "features": features}]
    else:
        recipe["models"] = {"m1": {**judge, "model": "m1"}}
        recipe["methods"] = [{"kind": "answers", "answer": {"max_tokens": 256}, "top_logprobs": 20}]
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe), encoding="utf-8")
    return path


def measure(folder: Path, server: Server, *options: str, ends: tuple[int, ...] = (0,)) -> Measured:
    """Run the recipe of a folder in `folder/run`, which may hold a run that was stopped.

    Raises:
        SystemExit: If the command ends with another code than one of `ends`, or what the server
            counted is not what the store holds more than before.
    """
    store, before = folder / "run" / "store.sqlite", server.n_answered()
    held = n_outcomes(store)
    command = [sys.executable, "-m", "orchestrator", "run", str(folder / "recipe.json"),
               "--run-dir", str(folder / "run"), "--display", "none", *options]  # fmt: skip
    started = time.monotonic()
    # As users run it: compiled modules are kept.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, env=environment
    )
    first_cpu_s = _cpu_until_first(process.pid, server)
    said = ""
    if process.stderr:
        with process.stderr:
            said = process.stderr.read().decode()
    code, usage = ended(process)
    wall = time.monotonic() - started
    if code not in ends:
        raise SystemExit(f"orchestrator run ended with {code}: {said}")
    n_requests, held_now = server.n_answered() - before, n_outcomes(store)
    if held_now - held != n_requests:
        raise SystemExit(f"{n_requests} requests, but {held_now - held} more outcomes in the store")
    first = server.asked("/first")
    return Measured(
        n_requests,
        usage.ru_utime + usage.ru_stime,
        wall,
        usage.ru_maxrss / 1024,
        sum(file.stat().st_size for file in store.parent.glob("store.sqlite*")) / max(held_now, 1),
        first[0] - started if first else float("nan"),
        first_cpu_s,
    )


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, resource.struct_rusage]:
    """Wait for a process; return its exit code, and what it took."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage


def _cpu_until_first(pid: int, server: Server) -> float:
    """Processor time of a process when it sends its first request; nan where it sends none."""
    while True:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        if stat[0] == "Z":
            return float("nan")
        if server.asked("/first"):
            return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(0.02)


def n_outcomes(store: Path) -> int:
    """Outcomes in a store; 0 where there is none."""
    if not store.exists():
        return 0
    connection = sqlite3.connect(store)
    ((found,),) = connection.execute("SELECT count(*) FROM outcome").fetchall()
    connection.close()
    return int(found)
