import pytest

from tests.conftest import SHARED


@pytest.fixture(scope="session")
def recorded():
    folder = SHARED / "data" / "vllm_replies"
    if not folder.is_dir():
        pytest.skip("../shared is absent: it has the replies recorded from vLLM")
    return {path.stem: path.read_bytes() for path in folder.glob("*.json")}
