"""The log of a server process, without secrets, and what its reader can do about its end."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from orchestrator.disk import files
from orchestrator.wire import failures

_TAIL_BYTES: Final = 64 * 1024
_SEARCHED_BYTES: Final = 16 * 2**20
_LINE_BYTES: Final = 64 * 1024


class ServerLog:
    """The file that takes a server's output, from where this start begins."""

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self.path = path
        self._secrets = [*secrets]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._start = path.stat().st_size if path.exists() else 0
        self._mark = self._start

    def open(self) -> int:
        """A descriptor to append to, readable by its owner only."""
        descriptor = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        os.fchmod(descriptor, 0o600)
        return descriptor

    def mark(self) -> None:
        """Remember where the log ends now, for `lines`."""
        with contextlib.suppress(OSError):
            self._mark = self.path.stat().st_size

    def lines(self, *, whole: bool = False) -> Iterator[str]:
        """Lines since the mark, or since the start; of the first 16 MB, without the secrets."""
        hidden = files.blots(self._secrets)
        # A line that is too long is cut, but no secret in it.
        n_kept = max(map(len, hidden), default=1) - 1
        kept = b""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            end = file.seek(self._start if whole else self._mark) + _SEARCHED_BYTES
            while file.tell() < end and (read := file.readline(_LINE_BYTES)):
                part = files.blot(kept + read, hidden)
                is_cut = len(read) == _LINE_BYTES and not read.endswith(b"\n")
                n_shown = max(len(part) - n_kept, 0) if is_cut else len(part)
                kept = part[n_shown:]
                yield part[:n_shown].decode(errors="replace")
        if kept:
            yield kept.decode(errors="replace")

    def text(self) -> str:
        """The last 64 KB since the start, without the secrets."""
        try:
            return files.tail(self.path, _TAIL_BYTES, self._secrets, self._start)
        except FileNotFoundError:
            return ""


ADDRESS_IN_USE: Final = re.compile(
    r"address already in use|EADDRINUSE|Errno 98\b|couldn't bind HTTP server socket", re.IGNORECASE
)

_EMBEDDED_MODULES: Final = (
    "torch|transformers|tokenizers|safetensors|starlette|uvicorn|httptools|uvloop"
)

# The first that matches wins, so what is specific comes before what is general.
_CAUSES: Final = (
    (
        r"^Ray: ConnectionError: (?P<what>[^\n]*)",
        "no Ray cluster answers ({what}): run this on a node of the cluster, and set "
        "cluster.address or RAY_ADDRESS",
    ),
    (
        r"^Ray: RuntimeError: Version mismatch",
        "the Ray cluster runs another version of Ray or Python than this environment",
    ),
    (
        r"(?:allocation for|Expired or invalid) job (?P<what>\d+)(?:: Invalid job id specified|$)",
        "Slurm does not know job {what} any more (it has ended, or slurmctld has lost it): "
        "continue with the same command in a new job",
    ),
    (
        rf"No module named '(?P<what>{_EMBEDDED_MODULES})\b",
        "{what} is not installed: pip install 'selfeval-orchestrator[embedded]'",
    ),
    (
        r"Free memory on device .* is less than desired GPU memory utilization",
        "another program uses the GPU memory: stop it, or lower gpu_memory_utilization",
    ),
    (
        r"memory .* is less than desired CPU memory utilization",
        "too little memory is free for what vLLM reserves: set cpu_kv_cache_gb, or lower "
        "gpu_memory_utilization, which on a CPU is a share of its memory",
    ),
    (
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache: raise gpu_memory_utilization (on a CPU "
        "cpu_kv_cache_gb), or serve a smaller model",
    ),
    (
        r"To serve at least one request with the models?'s max seq len \((?P<what>\d+)\)",
        "the KV cache cannot hold one request of {what} tokens: lower max_model_len, or raise "
        "gpu_memory_utilization",
    ),
    (
        r"max_model_len \((?P<what>\d+)\) is greater than the derived max_model_len",
        "the model takes no {what} tokens: lower max_model_len",
    ),
    (
        r"Total number of attention heads \((?P<what>\d+)\) must be divisible by tensor",
        "{what} attention heads can't be shared out evenly: change tensor_parallel_size",
    ),
    (r"Cannot find any model weights with (?P<what>[^\n]*)", "there are no weights in {what}"),
    (
        r"Failed to infer device type|appears to be a URI|PackageNotFoundError: [^\n]*vllm",
        "this vLLM was built for another device, or its installation is incomplete",
    ),
    (
        r"unknown pre-tokenizer type: (?P<what>'[^'\n]*')",
        "this llama.cpp does not know the model's pre-tokenizer {what}: build a newer one",
    ),
    (
        r"unknown model architecture: (?P<what>'[^'\n]*')",
        "this llama.cpp does not know models of the architecture {what}: build a newer one",
    ),
    (
        r"(?P<what>tensor '[^'\n]*') (not found|data is not within)",
        "the GGUF file is incomplete ({what})",
    ),
    (
        r"quantized V cache .*requires flash_attn|requires flash_attn to be enabled",
        "this cache_type needs flash_attention: on",
    ),
    (
        r"failed to allocate buffer for kv cache",
        "no memory is left for the KV cache: lower max_model_len or slots",
    ),
    (
        r"cudaMalloc failed: out of memory",
        "out of GPU memory: lower n_gpu_layers, or serve a smaller model",
    ),
    (
        r"error: (?P<what>invalid (?:argument|device): [^\n]*)",
        "it refuses its command line: {what}",
    ),
    (r"failed to load model,? '(?P<what>[^'\n]*)'", "it can't read the model {what}"),
    (
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "no memory is left for the KV cache: raise mem_fraction_static, or serve a smaller model",
    ),
    (
        r"The memory capacity is unbalanced",
        "another program uses memory of some GPUs: stop it, or choose other `gpus`",
    ),
    (r"No module named '?(?P<what>[\w.]+)", "the Python module {what} is not installed"),
    (
        r"(CUDA|HIP) out of memory|torch\.OutOfMemoryError",
        "out of GPU memory: serve fewer models, a smaller one, or a smaller context",
    ),
    (
        r"MemoryError|Cannot allocate memory|DefaultCPUAllocator: not enough memory",
        "out of memory: serve fewer models or a smaller one",
    ),
    (
        r"CUDA (is )?not available|no CUDA-capable device|not compiled with CUDA|"
        r"Found no NVIDIA driver|no CUDA GPUs are available",
        "CUDA is not available: set device to cpu, or install a CUDA build of torch",
    ),
    (ADDRESS_IN_USE.pattern, "its port was taken by another program several times in a row"),
    # A dump of all settings also names the setting.
    (
        r"trust_remote_code=True|contains? custom code|execute the configuration file",
        "the model needs its own code, which is never run",
    ),
    (
        r"Model architectures? .* not supported|does not recognize this architecture|"
        r"Unrecognized model in|unsupported model",
        "this model is not supported by the server",
    ),
    (r"No such file or directory:? *(?P<what>[^\n]*)", "no such file or folder: {what}"),
    (r"Permission denied:? *(?P<what>[^\n]*)", "not allowed to read or run {what}"),
    (r"error: (?P<what>unrecognized arguments[^\n]*)", "it knows another command line: {what}"),
    (r"^([\w.]+: )?error: (?P<what>[^\n]+)", "{what}"),
)


# What logging puts before its words: a process, a level, a time and a place, in any order.
_PREFIX: Final = re.compile(
    r"^(?:\s*(?:\([\w: =/.-]+\)|\[[^\]]*\]|(?:ERROR|CRITICAL|FATAL)\b:?|[\d:.,TZ+/-]{5,}|\|))+\s*"
)
# The last line of a traceback of Python: a class, and what was said.
_EXCEPTION: Final = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Fault|Failure)(?:: .+)?$")
_ERROR: Final = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:error|fatal|panicked|assertion failed|terminate called)\b|"
    r"GGML_ASSERT|Segmentation fault|CUDA error"
)
# What a server dumps of its own state may be megabytes long.
_MOST_CHARACTERS: Final = 4_000


def first_error(lines: Iterable[str]) -> str:
    """Return a server's own first error, on one line of printable characters.

    That is the first exception that it wrote, else the first line that calls itself an error; empty
    if there is none. What stands before the words (process, time, place) is left out.
    """
    found = ""
    for line in lines:
        words = _PREFIX.sub("", line[:_MOST_CHARACTERS].rstrip())
        if _EXCEPTION.match(words):
            return failures.clean(words)
        if not found and _ERROR.search(line[:_MOST_CHARACTERS]):
            found = failures.clean(words)
    return found


def likely_cause(log: str, exit_code: int | None) -> str:
    """One line on why a server did not start.

    Args:
        log: What it wrote since it was started.
        exit_code: As `subprocess` counts (negative: a signal); None where it still runs.
    """
    for pattern, cause in _CAUSES:
        if match := re.search(pattern, log, re.IGNORECASE | re.MULTILINE):
            return cause.format(**match.groupdict()).rstrip(": ")
    match exit_code:
        case None:
            return "it was not ready in time"
        case -9:
            return "it was killed by signal 9, usually because memory ran out"
        case int() if exit_code < 0:
            return f"it was killed by signal {-exit_code}"
        case _:
            said = first_error(log.splitlines())
            return f"it exited with code {exit_code}" + (f": {said}" if said else "")
