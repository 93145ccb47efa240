"""One cluster for the tests of a module."""

import tempfile
from pathlib import Path

import pytest

from tests.cluster.ray_rig import RayRig
from tests.cluster.rig import Rig
from tests.cluster.slurm_runs import Cluster


@pytest.fixture(scope="module")
def rig():
    # Other users can't reach pytest's own folders.
    with (
        tempfile.TemporaryDirectory(prefix="orchestrator-rig-") as folder,
        Rig(Path(folder)) as made,
    ):
        yield made


@pytest.fixture
def cluster(rig, tmp_path):
    made = Cluster(rig, tmp_path)
    yield made
    made.end()
    rig.run("scancel", "--user=root")


@pytest.fixture(scope="module")
def expected(rig, tmp_path_factory):
    """The frames of a run on this machine."""
    return Cluster(rig, tmp_path_factory.mktemp("local")).here()


@pytest.fixture(scope="module")
def ray_rig(tmp_path_factory):
    with RayRig(tmp_path_factory.mktemp("rig")) as made:
        yield made
