"""File systems shared between machines are told from local ones."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from orchestrator.store.owner import is_network_fs

Mount = tuple[Path, str]


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch):
    """Has the kernel list other mounts."""

    def pretend(*mounts: Mount) -> None:
        listed = [
            SimpleNamespace(mountpoint=str(point), fstype=kind)
            for point, kind in ((Path("/"), "ext4"), *mounts)
        ]
        monkeypatch.setattr(psutil, "disk_partitions", lambda **_: listed)

    return pretend


@pytest.mark.parametrize(
    "kind",
    [
        "nfs", "nfs4", "lustre", "gpfs", "wekafs", "panfs", "beegfs", "ceph", "cifs", "9p",
        "virtiofs", "fuse", "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs",
    ],
)  # fmt: skip
def test_types_of_file_systems_of_clusters_are_known(kind, mounted, tmp_path):
    mounted((tmp_path, kind))
    assert is_network_fs(tmp_path / "runs" / "not there yet")


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_local_types_are_none(kind, mounted, tmp_path):
    mounted((tmp_path, kind))
    assert not is_network_fs(tmp_path)


def test_the_innermost_mount_counts_and_of_two_at_one_place_the_later(mounted, tmp_path):
    scratch = tmp_path / "my scratch"
    scratch.mkdir()
    mounted((tmp_path, "lustre"), (scratch, "xfs"))
    assert (is_network_fs(tmp_path), is_network_fs(scratch)) == (True, False)
    mounted((scratch, "xfs"), (scratch, "wekafs"))
    assert (is_network_fs(tmp_path), is_network_fs(scratch)) == (False, True)


def test_a_link_leads_to_the_file_system_of_its_target(mounted, tmp_path):
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    home.symlink_to(shared)
    mounted((shared, "panfs"))
    assert is_network_fs(home)


def test_without_a_list_of_mounts_a_file_system_is_local(monkeypatch, tmp_path):
    def missing(**_: bool) -> None:
        raise FileNotFoundError("/proc/self/mounts")

    monkeypatch.setattr(psutil, "disk_partitions", missing)
    assert not is_network_fs(tmp_path)
