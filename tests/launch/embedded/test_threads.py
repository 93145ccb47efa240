"""Numbers are exact from the first one on, whatever number of threads computes them."""

import re
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from launch._spec import VML, use_threads


class Recording(TorchDispatchMode):
    """Notes what is called, for how many numbers of which type, and with how many threads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[tuple[str, int, torch.dtype, int]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            name = func.overloadpacket.__name__
            first = args[0]
            self.calls.add((name, first.numel(), first.dtype, torch.get_num_threads()))
        found: torch.Tensor = func(*args, **(kwargs or {}))
        return found


def test_each_function_of_mkl_is_first_called_for_one_number_by_one_thread() -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "cpu" / "vml.h"
    left_to_mkl = re.findall(r"^IMPLEMENT_VML_MKL\((\w+),", header.read_text(), re.MULTILINE)
    assert sorted(VML) == sorted(left_to_mkl)
    with Recording() as recording:
        use_threads(3)
    types = (torch.float32, torch.float64)
    assert recording.calls == {(name, 1, dtype, 1) for name in left_to_mkl for dtype in types}
    assert torch.get_num_threads() == 3
    use_threads(1)
