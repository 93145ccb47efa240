import pytest

from launch._supervisor import first_error, likely_cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "ModuleNotFoundError: No module named 'uvicorn'",
            "uvicorn is not installed: pip install 'selfeval-orchestrator[embedded]'",
        ),
        (
            "[2026-11-23 13:06:32,204 W 26200] gcs_client.cc:210: RPC error: Connection refused\n"
            "Ray: ConnectionError: Failed to connect to Ray cluster at 10.0.0.1:6379",
            "no Ray cluster answers (Failed to connect to Ray cluster at 10.0.0.1:6379): run this",
        ),
        ("Ray: RuntimeError: Version mismatch: The cluster was", "another version of Ray"),
        (
            "srun: error: Unable to confirm allocation for job 8: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 8",
            "Slurm does not know job 8 any more",
        ),
        ("No module named 'torch.cuda'", "torch is not installed"),
        ("/usr/bin/python3: No module named x.y", "the Python module x.y is not installed"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'w'", "folder: 'w'"),
        ("RuntimeError: CUDA not available", "CUDA is not available: set device to cpu"),
        ("AssertionError: Torch not compiled with CUDA enabled", "CUDA is not available"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "out of GPU memory"),
        ("DefaultCPUAllocator: not enough memory: you tried", "out of memory"),
        (
            "[Errno 98] error while attempting to bind: address already in use",
            "was taken by another program",
        ),
        ("ValueError: Model architectures ['X'] are not supported", "not supported by the server"),
        (
            "ValueError: Free memory on device cuda:0 (3.2/79 GiB) on startup is less than desired "
            "GPU memory utilization (0.92, 72 GiB)",
            "another program uses the GPU memory",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing",
            "no memory is left for the KV cache",
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (8192), 4 GiB",
            "cannot hold one request of 8192 tokens",
        ),
        (
            "Total number of attention heads (14) must be divisible by tensor parallel size (4).",
            "14 attention heads can't be shared out evenly",
        ),
        ("RuntimeError: Cannot find any model weights with `/m`", "no weights in `/m`"),
        (
            "User-specified max_model_len (9999) is greater than the derived max_model_len (2048)",
            "the model takes no 9999 tokens",
        ),
        ("RuntimeError: Failed to infer device type", "built for another device"),
        (
            "E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1",
            "was taken by another program",
        ),
        ("llama_model_load: error: unknown model architecture: 'x9'", "architecture 'x9'"),
        ("error loading vocabulary: unknown pre-tokenizer type: 'z'", "pre-tokenizer 'z'"),
        ("tensor 'blk.0.a' data is not within the file bounds", "incomplete (tensor 'blk.0.a')"),
        ("E quantized V cache requires flash_attn to be enabled", "needs flash_attention: on"),
        ("E srv load_model: failed to load model, '/m.gguf'", "it can't read the model /m.gguf"),
        ("failed to allocate buffer for kv cache\nfailed to load model '/m'", "the KV cache"),
        ("error: invalid argument: --bogus", "command line: invalid argument: --bogus"),
        ("server.py: error: unrecognized arguments: --x", "unrecognized arguments: --x"),
        ("ValueError: set trust_remote_code=True", "which is never run"),
        (
            "Initializing an engine with config: trust_remote_code=False\nValueError: Available "
            "memory on node 0 (20.47/23.54 GiB) on startup is less than desired CPU memory "
            "utilization (0.92, 21.66 GiB).",
            "set cpu_kv_cache_gb",
        ),
        ("error: --model x is given twice", "--model x is given twice"),
        ("server.py: error: argument --dtype: invalid choice", "argument --dtype: invalid choice"),
    ],
)
def test_a_known_line_of_the_log_gives_its_cause(log, cause):
    assert cause in likely_cause(f"INFO starting\n{log}\n", 1)


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (None, "it was not ready in time"),
        (-9, "memory ran out"),
        (-11, "it was killed by signal 11"),
        (0, "it exited with code 0"),
        (2, "it exited with code 2"),
    ],
)
def test_an_unknown_log_leaves_the_exit_code(exit_code, cause):
    assert cause in likely_cause("all is well", exit_code)


VLLM = """\
(APIServer pid=1) WARNING 11-22 19:05:05 [u.py:255] This can cause `OSError: [Errno 24]`.
(Worker pid=2) ERROR 11-22 19:06:37 [x.py:1063] WorkerProc hit an exception.
(Worker pid=2) ERROR 11-22 19:06:37 [x.py:1063] Traceback (most recent call last):
(Worker pid=2) ERROR 11-22 19:06:37 [x.py:1063]   File "/a/lora.py", line 204, in _get_logits
(Worker pid=2) ERROR 11-22 19:06:37 [x.py:1063] RuntimeError: einsum(): subscript b has size 4
(EngineCore pid=3) ERROR 11-22 19:06:37 [c.py:15] EngineCore encountered a fatal error.
(APIServer pid=1) ERROR 11-22 19:06:37 [a.py:9] vllm.exceptions.EngineDeadError: See above.
INFO:     Shutting down
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (VLLM, "RuntimeError: einsum(): subscript b has size 4"),
        ("INFO: fine\nERROR:    Application startup failed.", "Application startup failed."),
        ("a.py:3: warning\nx.cpp:123: GGML_ASSERT(x) failed", "x.cpp:123: GGML_ASSERT(x) failed"),
        ("thread 'main' panicked at src/x.rs:3", "thread 'main' panicked at src/x.rs:3"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'head'", "KeyError: 'head'"),
        ("ValueError: \x1b[31mred\x1b[0m\u202e", "ValueError: red"),
        ("all is well\n0 errors", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_first_error_is_the_first_exception_or_else_the_first_line_that_says_so(log, expected):
    assert first_error(log.splitlines()) == expected


def test_a_line_of_megabytes_costs_no_more_than_its_beginning():
    assert len(first_error(["ERROR " + "x" * 10**7])) <= 500


def test_an_exit_code_comes_with_the_servers_own_error():
    assert likely_cause(VLLM, 1) == (
        "it exited with code 1: RuntimeError: einsum(): subscript b has size 4"
    )
