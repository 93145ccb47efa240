"""Model folders made of GGUF files, for servers that take no GGUF.

Weights are dequantised to float32 once and kept in the user's cache, under the hash of the file.
A folder appears there when it is whole: it is written under another name, which only its own
process touches, and what a process that was killed left is removed by the next.
"""

import contextlib
import fcntl
import json
import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from launch import _gguf, _gguf_model
from launch._gguf_model import Model, Part
from orchestrator.disk import files
from orchestrator.disk.paths import cache_folder
from orchestrator.errors import LaunchError, need, on_disk_error
from orchestrator.numbers import size
from orchestrator.weights import FOLDER, RECORD, is_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

DEQUANTISED: Final = "float32, conversion 1"
"""Version of the conversion, part of a model's identity: raise it when numbers change."""

_VERSION: Final = 1
_WEIGHTS: Final = "model.safetensors"
_CHUNK_NUMBERS: Final = 1 << 23
_SAY_EVERY_S: Final = 5.0
_LOCK_WAIT_S: Final = 0.2
_FLOAT_BYTES: Final = 4
# What the tokenizer and the settings take beside the weights, generously.
_OTHER_BYTES: Final = 64 << 20
_GIVEN_UP: Final = "the conversion was given up before its end, as asked"


def described(file: Path) -> Model:
    """Return the model of a file, from its header.

    Raises:
        LaunchError: If the file can't be converted.
    """
    status = file.stat()
    return _described(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=16)
def _described(file: Path, size: int, mtime_ns: int) -> Model:  # noqa: ARG001 (parts of the key)
    header = _gguf.read(file)
    return _gguf_model.described(header, file)


def folder(file: Path, sha256: str, stop: threading.Event | None = None) -> Path:
    """Return the folder of a file's model; convert the file first where that was not done.

    Args:
        file: In GGUF.
        sha256: Of the file.
        stop: Set by another thread to give up.

    Raises:
        LaunchError: If the file can't be converted, the cache can't be written, or it was given up.
    """
    place = cache_folder() / FOLDER / f"{sha256}-{_VERSION}"
    if is_whole(place):
        return place
    need("converting a GGUF file", "gguf", ("gguf",))
    with on_disk_error(f"{place} cannot be written", LaunchError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place, stop):
            if not is_whole(place):
                _convert(file, sha256, place, stop or threading.Event())
    return place


@contextlib.contextmanager
def _locked(place: Path, stop: threading.Event | None) -> Iterator[None]:
    """Hold the right to write a folder; waits for another process that does."""
    lock = os.open(place.with_name(f".{place.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        said = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    _say("the same GGUF file is being converted already; waiting for that")
                    said = True
            if stop is not None and stop.is_set():
                raise LaunchError(_GIVEN_UP)
            time.sleep(_LOCK_WAIT_S)
        yield
    finally:
        os.close(lock)


def _convert(file: Path, sha256: str, place: Path, stop: threading.Event) -> None:
    """Write the folder `place`, whose lock is held."""
    start = time.monotonic()
    header = _gguf.read(file, arrays=True)
    model = _gguf_model.described(header, file)
    tokenizer, settings, template, ids = _gguf_model.converted(header, file)
    if model.frequencies is not None:
        model.config["rope_scaling"] = _frequencies(file, model)
    for part in model.parts:
        _row_bytes(file, header.places[part.source], part.source)
    n_bytes = sum(_FLOAT_BYTES * math.prod(part.shape) for part in model.parts)
    prefix = f".{place.name}.part-"
    for stale in files.entries(place.parent):
        if stale.name.startswith(prefix):  # its process ended: the lock was free
            shutil.rmtree(stale, ignore_errors=True)
    free = shutil.disk_usage(place.parent).free
    if free < n_bytes + _OTHER_BYTES:
        raise LaunchError(
            f"{file.name} takes {size(n_bytes)} when dequantised to float32, and "
            f"{place.parent} has {size(free)} free; set ORCHESTRATOR_CACHE to a folder "
            f"with more room"
        )
    _say(
        f"dequantising {file.name} ({size(file.stat().st_size)}) to float32: {size(n_bytes)}, "
        f"once, in {place}"
    )
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        _write_weights(made / _WEIGHTS, file, header, model, stop)
        _write_json(made / "config.json", model.config | ids)
        _write_json(made / "generation_config.json", {**ids, "do_sample": False})
        _write_json(made / "tokenizer.json", tokenizer)
        _write_json(made / "tokenizer_config.json", settings)
        if template:
            (made / "chat_template.jinja").write_text(template, encoding="utf-8")
        lengths = {one.name: one.stat().st_size for one in made.iterdir()}
        record = {"name": file.name, "sha256": sha256, "files": lengths}
        _write_json(made / RECORD, record)
        for one in made.iterdir():
            with one.open("rb") as stream:
                os.fsync(stream.fileno())
        if place.exists():  # damaged, or it would not be written
            shutil.rmtree(place)
        made.chmod(0o755)
        made.rename(place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _say(f"dequantised {file.name} in {time.monotonic() - start:.1f} s")


def _write_weights(
    path: Path, file: Path, header: _gguf.Header, model: Model, stop: threading.Event
) -> None:
    """Write all tensors in the format safetensors: length of the header, header, data.

    Written as it goes, so that memory is bounded by a tensor rather than by the model.

    Raises:
        LaunchError: If a tensor is in a format that is not known, or `stop` was set.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for part in model.parts:
        begin, end = end, end + _FLOAT_BYTES * math.prod(part.shape)
        entries[part.name] = {"dtype": "F32", "shape": part.shape, "data_offsets": (begin, end)}
    listed = json.dumps(entries).encode()
    listed += b" " * (-len(listed) % 8)
    said = time.monotonic()
    with path.open("wb") as out, file.open("rb") as source:
        out.write(len(listed).to_bytes(8, "little") + listed)
        done = 0
        for part in model.parts:
            for rows in _rows(source, file, header.places[part.source], part):
                if stop.is_set():
                    raise LaunchError(_GIVEN_UP)
                out.write(rows.astype("<f4", copy=False).tobytes())
                done += rows.nbytes
                if time.monotonic() - said >= _SAY_EVERY_S:
                    said = time.monotonic()
                    _say(f"dequantising {file.name}: {100 * done // end} %")


def _rows(
    source: BinaryIO, file: Path, place: _gguf.Place, part: Part
) -> Iterator["NDArray[np.float32]"]:
    """The tensor of a part in pieces of whole rows, in the order of `transformers`."""
    width = place.shape[-1]
    n_rows = math.prod(place.shape[:-1])
    # Rows change places only within a head.
    group = n_rows // part.heads if part.heads else 1
    step = max(1, _CHUNK_NUMBERS // max(1, width * group)) * group
    for first in range(0, n_rows, step):
        rows = _read(source, file, place, part.source, first, min(step, n_rows - first))
        if part.heads:
            rows = rows.reshape(-1, group // 2, 2, width).swapaxes(1, 2).reshape(-1, width)
        yield rows


def _row_bytes(file: Path, place: _gguf.Place, name: str) -> int:
    """Bytes of a row of a tensor, which lies in the file as a whole.

    Raises:
        LaunchError: If it doesn't, or is in a format that is not known.
    """
    import gguf  # noqa: PLC0415 (only where a file is converted)

    try:
        kind = gguf.GGMLQuantizationType(place.kind)
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise _gguf_model.refusal(file, f"{name} has the unknown format {place.kind}") from error
    *rows, width = place.shape
    row_bytes = width // block * block_bytes
    if width % block or math.prod(rows) * row_bytes > place.n_bytes:
        raise LaunchError(f"{file}: the tensor {name} is cut short")
    return row_bytes


def _read(
    source: BinaryIO, file: Path, place: _gguf.Place, name: str, first: int, n_rows: int
) -> "NDArray[np.float32]":
    """Rows of a tensor as float32, shape (n_rows, width)."""
    import gguf  # noqa: PLC0415 (only where a file is converted)
    import numpy as np  # noqa: PLC0415

    kind = gguf.GGMLQuantizationType(place.kind)
    row_bytes = _row_bytes(file, place, name)
    source.seek(place.begin + first * row_bytes)
    content = np.frombuffer(source.read(n_rows * row_bytes), np.uint8).reshape(n_rows, row_bytes)
    if kind in {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}:
        form = "<f4" if kind == gguf.GGMLQuantizationType.F32 else "<f2"
        return content.view(form).astype(np.float32)
    try:
        found: NDArray[np.float32] = gguf.quants.dequantize(content, kind)
    except NotImplementedError as error:
        raise _gguf_model.refusal(file, f"{name} has the format {kind.name}") from error
    return found


def _frequencies(file: Path, model: Model) -> dict[str, Any]:
    """The `rope_scaling` of a file that holds factors of rotary frequencies."""
    place = model.frequencies
    scaling: dict[str, Any] | None = None
    if place is not None and len(place.shape) == 1:
        with file.open("rb") as source:
            factors: Sequence[float] = _read(source, file, place, "rope_freqs", 0, 1)[0].tolist()
        scaling = _gguf_model.rope_scaling(factors, model.config)
    if scaling is None:
        raise _gguf_model.refusal(file, "its rotary frequencies are scaled in an unknown way")
    return scaling


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _say(text: str) -> None:
    _log.info(text, extra={"note": True})
