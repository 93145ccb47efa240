"""Only safetensors are loaded, whatever lies beside them."""

import shutil
from pathlib import Path

import pytest

from launch import _weights
from orchestrator.errors import LaunchError
from tests.conftest import BUNDLED

pytestmark = pytest.mark.models


def test_pickled_weights_are_not_loaded_beside_safetensors_of_another_name(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    from launch.embedded import engine, served  # noqa: PLC0415

    folder = shutil.copytree(BUNDLED / "novice", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    _weights.identity(str(folder))
    with pytest.raises(LaunchError, match="cannot be loaded"):
        served.load("m", str(folder), engine.Settings())
