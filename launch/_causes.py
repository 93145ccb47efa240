"""From the log of a server that did not start to what its reader can do about it."""

import re
from typing import Final

ADDRESS_IN_USE: Final = re.compile(r"address already in use|EADDRINUSE|Errno 98\b", re.IGNORECASE)

_EMBEDDED_MODULES: Final = (
    "torch|transformers|tokenizers|safetensors|starlette|uvicorn|httptools|uvloop"
)

# The first that matches wins, so what is specific comes before what is general.
_CAUSES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), cause)
    for pattern, cause in (
        (
            rf"No module named '(?P<what>{_EMBEDDED_MODULES})\b",
            "{what} is not installed: pip install 'selfeval-orchestrator[embedded]'",
        ),
        (
            r"Free memory on device .* is less than desired GPU memory utilization",
            "another program holds the GPU's memory: end it, or lower gpu_memory_utilization",
        ),
        (
            r"No available memory for the cache blocks",
            "no memory is left for the KV cache: raise gpu_memory_utilization (on a CPU "
            "cpu_kv_cache_gb), or serve a smaller model",
        ),
        (
            r"To serve at least one request with the models?'s max seq len \((?P<what>\d+)\)",
            "the KV cache can't hold one request of {what} tokens: lower max_model_len, or raise "
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
        (
            r"Cannot find any model weights with (?P<what>[^\n]*)",
            "there are no weights in {what}",
        ),
        (
            r"Failed to infer device type|appears to be a URI|PackageNotFoundError: [^\n]*vllm",
            "this vLLM was built for another device, or its installation is not whole",
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
        (ADDRESS_IN_USE.pattern, "another program took its port, several times in a row"),
        (r"trust_remote_code", "the model brings its own code, which is never run"),
        (
            r"Model architectures? .* not supported|does not recognize this architecture|"
            r"Unrecognized model in|unsupported model",
            "this model is not supported by the server",
        ),
        (
            r"No such file or directory:? *(?P<what>[^\n]*)",
            "no such file or folder: {what}",
        ),
        (r"Permission denied:? *(?P<what>[^\n]*)", "not allowed to read or run {what}"),
        (r"error: (?P<what>unrecognized arguments[^\n]*)", "it knows another command line: {what}"),
        (r"^([\w.]+: )?error: (?P<what>[^\n]+)", "{what}"),
    )
)


def likely_cause(log: str, exit_code: int | None) -> str:
    """One line on why a server did not start.

    Args:
        log: What it wrote since it was started.
        exit_code: As `subprocess` counts (negative: a signal); None where it still runs.
    """
    for pattern, cause in _CAUSES:
        if match := pattern.search(log):
            return cause.format(**match.groupdict()).rstrip(": ")
    match exit_code:
        case None:
            return "it did not get ready in time"
        case -9:
            return "it was killed by signal 9, most often because memory ran out"
        case int() if exit_code < 0:
            return f"it was ended by signal {-exit_code}"
        case _:
            return f"it ended with exit code {exit_code}"
