"""Plug-ins in files of their own: `kind: ./my_method.py`.

A file is imported under a private name, from the bytes that its digest is taken of. `sys.path`
stays as it is, so the file's neighbours can't be imported, nor shadow anything; a package
(`./my_method/__init__.py`) imports its own modules by relative imports. Nothing is
written beside a file.
"""

import re
import sys
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from orchestrator.disk.paths import answers, expanded
from orchestrator.errors import PluginError

SUFFIX: Final = ".py"
_PACKAGE: Final = "__init__"
_PREFIX: Final = "_orchestrator_plugin"

_digests: dict[str, str] = {}


def is_file(kind: str) -> bool:
    """Return whether a kind is the path of a file."""
    return kind.endswith(SUFFIX)


def absolute(kind: str, folder: str) -> str:
    """Return the path of a file plug-in, absolute, without `~` and `..`.

    Args:
        kind: As the recipe names it.
        folder: The recipe's.
    """
    file = Path(folder) / expanded(kind)
    try:
        return str(file.parent.resolve() / file.name)
    except (OSError, ValueError, RuntimeError):
        return str(file)  # names nothing; said when it is loaded


def label(kind: str) -> str:
    """Return the name of a file plug-in in tables and frames: its stem, as an identifier."""
    file = Path(kind)
    stem = file.parent.name if file.stem == _PACKAGE else file.stem
    name = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_") or "plugin"
    return f"_{name}" if name[0].isdigit() else name


def digest(kind: str) -> str:
    """Return the digest of the source that a file plug-in was loaded from; empty before that."""
    return _digests.get(kind, "")


def load(kind: str) -> ModuleType:
    """Import a file, or return its module where the same source was imported before.

    Args:
        kind: An absolute path.

    Raises:
        PluginError: If there is no such file, or it can't be read.
        Exception: Whatever the file raises while it is imported.
    """
    file = Path(kind)
    try:
        source = file.read_bytes()
        sources = [source]
        for other in sorted(file.parent.rglob("*.py")) if file.stem == _PACKAGE else ():
            if other != file:
                path = other.relative_to(file.parent).as_posix()
                sources += [path.encode(errors="surrogateescape"), other.read_bytes()]
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            said = getattr(error, "strerror", None) or error
            raise PluginError(f"{file} cannot be read: {said}") from error
        beside = file.parent.iterdir() if answers(file.parent, Path.is_dir) else ()
        names = sorted(one.name for one in beside if one.suffix == SUFFIX)
        there = f"; files in that folder: {', '.join(names)}" if names else ""
        raise PluginError(f"no such file: {file}{there}") from error
    hashed = sha256()
    for one in (kind.encode(errors="surrogateescape"), *sources):
        hashed.update(len(one).to_bytes(8, "big") + one)
    name = f"{_PREFIX}_{label(kind)}_{hashed.hexdigest()[:16]}"
    module = sys.modules.get(name) or _imported(name, file, source)
    _digests[kind] = sha256(b"\0".join(sha256(one).digest() for one in sources)).hexdigest()
    return module


def files(kind: str) -> list[str]:
    """Return the paths of all modules of a file plug-in, more than one where it is a package."""
    file = Path(kind)
    others = file.parent.rglob("*.py") if file.stem == _PACKAGE else ()
    return [kind, *(str(other) for other in others if other != file)]


def hint_for_neighbour(kind: str, missing: str) -> str:
    """Return advice, to end an error with, where a file imports a module that lies beside it."""
    top = missing.partition(".")[0]
    beside = Path(kind).parent / top
    is_beside = answers(beside, Path.is_dir) or answers(beside.with_suffix(SUFFIX), Path.is_file)
    if not is_file(kind) or not is_beside:
        return ""
    return (
        "; files beside a plug-in cannot be imported. Make a package: a folder with "
        f"{_PACKAGE}{SUFFIX} and {top}{SUFFIX}, 'from .{top} import …', and 'kind: "
        f"./FOLDER/{_PACKAGE}{SUFFIX}'"
    )


def _imported(name: str, file: Path, source: bytes) -> ModuleType:
    folders = [str(file.parent)] if file.stem == _PACKAGE else None
    spec = spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None:
        raise PluginError(f"{file} cannot be imported")
    module = module_from_spec(spec)
    # Dataclasses and type hints look their module up there.
    sys.modules[name] = module
    try:
        # The bytes that were read, of which no compiled copy is kept.
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module
