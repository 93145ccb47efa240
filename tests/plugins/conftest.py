from pathlib import Path

import pytest

from orchestrator import plugins


@pytest.fixture(autouse=True)
def configuration(tmp_path, monkeypatch):
    """A configuration folder of its own; gives the list of allowed folders, which is not there."""
    folder = tmp_path / "configuration"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder / "orchestrator" / "allowed-folders.json"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package with entry points, as pip leaves one."""

    def write(name: str, points: dict[str, dict[str, str]], **modules: str) -> Path:
        site: Path = tmp_path / f"site {name}"
        about = site / f"{name}-1.2.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = []
        for group, kinds in points.items():
            lines += [f"[{group}]", *(f"{kind} = {value}" for kind, value in kinds.items())]
        (about / "entry_points.txt").write_text("\n".join(lines))
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(site)
        return site

    plugins.installed.cache_clear()
    plugins._warn_of_shadowed.cache_clear()
    yield write
    plugins.installed.cache_clear()
    plugins._warn_of_shadowed.cache_clear()
