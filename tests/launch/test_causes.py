import pytest

from launch._causes import likely_cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "ModuleNotFoundError: No module named 'uvicorn'",
            "uvicorn is not installed: pip install 'selfeval-orchestrator[embedded]'",
        ),
        ("No module named 'torch.cuda'", "torch is not installed"),
        ("/usr/bin/python3: No module named x.y", "the Python module x.y is not installed"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'w'", "folder: 'w'"),
        ("RuntimeError: CUDA not available", "CUDA is not available: set device to cpu"),
        ("AssertionError: Torch not compiled with CUDA enabled", "CUDA is not available"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "out of GPU memory"),
        ("DefaultCPUAllocator: not enough memory: you tried", "out of memory"),
        ("[Errno 98] error while attempting to bind: address already in use", "took its port"),
        ("ValueError: Model architectures ['X'] are not supported", "not supported by the server"),
        ("server.py: error: unrecognized arguments: --x", "unrecognized arguments: --x"),
        ("ValueError: set trust_remote_code=True", "which is never run"),
        ("error: --model x is given twice", "--model x is given twice"),
        ("server.py: error: argument --dtype: invalid choice", "argument --dtype: invalid choice"),
    ],
)
def test_a_known_line_of_the_log_gives_its_cause(log, cause):
    assert cause in likely_cause(f"INFO starting\n{log}\n", 1)


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (None, "it did not get ready in time"),
        (-9, "memory ran out"),
        (-11, "it was ended by signal 11"),
        (2, "it ended with exit code 2"),
    ],
)
def test_an_unknown_log_leaves_the_exit_code(exit_code, cause):
    assert cause in likely_cause("all is well", exit_code)
