"""File systems shared between machines are told from local ones."""

from pathlib import Path

import pytest

from orchestrator.store import owner
from orchestrator.store.owner import is_network_fs, network_fs

ROOT_MOUNT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Has the kernel list other mounts."""

    def pretend(*lines: str) -> None:
        file = tmp_path / "mountinfo"
        file.write_text("\n".join((ROOT_MOUNT, *lines, "")))
        monkeypatch.setattr(owner, "_MOUNTS", file)

    return pretend


def mount(point: Path, kind: str) -> str:
    escaped = str(point).replace("\\", r"\134").replace(" ", r"\040")
    return f"99 22 0:50 / {escaped} rw,noatime shared:7 master:2 - {kind} source:/export rw"


@pytest.mark.parametrize(
    "kind",
    [
        "nfs", "nfs4", "lustre", "gpfs", "wekafs", "panfs", "beegfs", "ceph", "cifs", "9p",
        "virtiofs", "fuse", "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs",
    ],
)  # fmt: skip
def test_types_of_file_systems_of_clusters_are_known(kind, mounted, tmp_path):
    mounted(mount(tmp_path, kind))
    assert network_fs(tmp_path / "runs" / "not there yet") == kind


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_local_types_are_none(kind, mounted, tmp_path):
    mounted(mount(tmp_path, kind))
    assert not is_network_fs(tmp_path)


def test_the_innermost_mount_counts_and_of_two_at_one_place_the_later(mounted, tmp_path):
    scratch = tmp_path / "my scratch"
    scratch.mkdir()
    mounted(mount(tmp_path, "lustre"), mount(scratch, "xfs"))
    assert (network_fs(tmp_path), network_fs(scratch)) == ("lustre", None)
    mounted(mount(scratch, "xfs"), mount(scratch, "wekafs"))
    assert (network_fs(tmp_path), network_fs(scratch)) == (None, "wekafs")


def test_a_link_leads_to_the_file_system_of_its_target(mounted, tmp_path):
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    home.symlink_to(shared)
    mounted(mount(shared, "panfs"))
    assert network_fs(home) == "panfs"


@pytest.mark.parametrize(
    ("magic", "name"),
    [(0x0BD00BD0, "lustre"), (0x47504653, "gpfs"), (0x19830326, "beegfs"), (0xAAD7AAEA, "panfs"),
     (0x65735546, "fuse"), (0xEF53, None)],
)  # fmt: skip
def test_without_a_list_of_mounts_the_number_of_the_file_system_decides(
    magic, name, monkeypatch, tmp_path
):
    monkeypatch.setattr(owner, "_MOUNTS", tmp_path / "none")
    monkeypatch.setattr(owner, "_magic", lambda _: magic)
    assert network_fs(tmp_path) == name


def test_lines_that_are_no_mounts_are_passed_over(mounted, tmp_path):
    mounted("", "garbage", "1 2 3:4 / - nfs")
    assert network_fs(tmp_path) is None
