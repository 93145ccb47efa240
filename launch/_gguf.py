"""The header of a GGUF file, and the GPU memory that its model needs under llama.cpp.

The format is that of ggml's docs/gguf.md, versions 2 and 3, little-endian: numbers and strings by
key, then for each tensor its name, shape and place. What a tensor takes is the way to the next one,
so that no format of quantisation need be known. The file is untrusted: nothing is read beyond it.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint

MAGIC: Final = b"GGUF"
ALL_LAYERS: Final = 999
"""As llama.cpp's users write it: more layers than any model has."""

_VERSIONS: Final = (2, 3)
# By ggml's number of the type; 8 is a string, 9 an array.
_NUMBERS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING: Final = 8
_ARRAY: Final = 9
_MAX_DIMENSIONS: Final = 4
_MAX_KEPT: Final = 4096
_ALIGNMENT: Final = 32
# Bytes of a number of the cache, blocks with their scales included.
_CACHE_BYTES: Final = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
# llama.cpp's batch of one step, in tokens, and its driver's context.
_STEP_TOKENS: Final = 512
_CONTEXT_BYTES: Final = 3 << 28
_SPLITS: Final = (1, 2, 4, 8)

# All can be looked up, whatever type a file has in the place of another.
Value = int | float | str | bool | tuple[int, ...]


class Place(NamedTuple):
    """The place of a tensor in its file.

    Attributes:
        shape: Lengths of its dimensions as numpy counts them, the longest stride first.
        kind: ggml's number of the format.
        begin: Offset of its first byte in the file.
        n_bytes: Bytes up to the next tensor, padding included.
    """

    shape: tuple[int, ...]
    kind: int
    begin: int
    n_bytes: int


class Header(msgspec.Struct, frozen=True):
    """The metadata that a GGUF file holds before its weights.

    Attributes:
        values: By key; arrays only where they are short and of whole numbers.
        lengths: Of all arrays, by key.
        places: Of the tensors, by name.
        arrays: Entries of all arrays by key; empty unless they were asked for.
    """

    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    places: Mapping[str, Place]
    arrays: Mapping[str, Sequence[Any]]


def read(file: Path, *, arrays: bool = False) -> Header:
    """Read the header of a file.

    Args:
        file: In GGUF.
        arrays: Keep the entries of all arrays, such as those of the tokenizer.

    Raises:
        LaunchError: If it is no whole GGUF file.
    """
    try:
        with file.open("rb") as stream:
            return _Reader(stream, file.stat().st_size, arrays=arrays).header()
    except (ValueError, OverflowError) as error:
        raise LaunchError(f"{file}: the GGUF header cannot be read: {error}") from error
    except OSError as error:
        raise LaunchError(f"{file} cannot be read: {error.strerror or error}") from error


class _Reader:
    """Reads on from the beginning of a file of known size."""

    def __init__(self, stream: BinaryIO, size: int, *, arrays: bool) -> None:
        self._stream = stream
        self._size = size
        self._left = size
        self._keeps_arrays = arrays
        self._arrays: dict[str, Sequence[Any]] = {}

    def header(self) -> Header:
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._number(4)
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is not known, {_VERSIONS} are")
        n_tensors, n_values = self._number(10), self._number(10)
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(n_values):
            key = self._text()
            kind = self._number(4)
            if kind == _STRING:
                values[key] = self._text()
            elif kind == _ARRAY:
                each, lengths[key] = self._number(4), self._number(10)
                self._array(key, each, lengths[key], values)
            else:
                values[key] = self._scalar(kind)
        found = sorted((self._place() for _ in range(n_tensors)), key=lambda place: place[3])
        alignment = values.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"an alignment of {alignment!r}")
        begin = math.ceil((self._size - self._left) / alignment) * alignment
        ends = [*(at for *_, at in found[1:]), self._size - begin]
        places = {
            name: Place(shape, kind, begin + at, end - at)
            for (name, shape, kind, at), end in zip(found, ends, strict=False)
        }
        if any(place.n_bytes < 0 for place in places.values()):
            raise ValueError("it is cut short")
        if len(places) < n_tensors:
            raise ValueError("two tensors have the same name")
        return Header(values, lengths, places, self._arrays)

    def _take(self, n_bytes: int) -> bytes:
        if n_bytes > self._left:
            raise ValueError("it is cut short")
        self._left -= n_bytes
        return self._stream.read(n_bytes)

    def _skip(self, n_bytes: int) -> None:
        if n_bytes > self._left:
            raise ValueError("it is cut short")
        self._left -= n_bytes
        self._stream.seek(n_bytes, 1)

    def _number(self, kind: int) -> int:
        return int(self._scalar(kind))

    def _scalar(self, kind: int) -> int | float | bool:
        form = _NUMBERS.get(kind)
        if form is None:
            raise ValueError(f"a value of the unknown type {kind}")
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        found: int | float | bool = value
        return found

    def _text(self) -> str:
        return self._take(self._number(10)).decode(errors="replace")

    def _array(self, key: str, each: int, n: int, values: dict[str, Value]) -> None:
        if each == _STRING:
            if self._keeps_arrays:
                self._arrays[key] = [self._text() for _ in range(n)]
            else:
                for _ in range(n):
                    self._skip(self._number(10))
        elif (form := _NUMBERS.get(each)) is None:
            raise ValueError(f"an array of the unknown type {each}")
        elif self._keeps_arrays or (n <= _MAX_KEPT and form[1] in "BbHhIiQq"):
            content = self._take(n * struct.calcsize(form))
            self._arrays[key] = found = struct.unpack(f"<{n}{form[1]}", content)
            if n <= _MAX_KEPT and form[1] in "BbHhIiQq":
                values[key] = found
        else:
            self._skip(n * struct.calcsize(form))

    def _place(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape and format of a tensor, and where it begins after the header."""
        name = self._text()
        n_dimensions = self._number(4)
        if n_dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"the tensor {name!r} has {n_dimensions} dimensions")
        # ggml counts dimensions from the one whose neighbours are adjacent in memory.
        shape = tuple(self._number(10) for _ in range(n_dimensions))[::-1]
        return name, shape, self._number(4), self._number(10)


def footprint(
    files: Sequence[Path],
    *,
    context: int,
    cache_type: str,
    n_gpu_layers: int | None = None,
    flash_attention: bool = True,
    adapters: int = 0,
) -> Footprint:
    """Return the GPU memory that llama-server needs. It takes its whole cache when it starts.

    Args:
        files: The parts of the model, the first first.
        context: Tokens of all slots together.
        cache_type: Of keys and values.
        n_gpu_layers: The last so many layers are there, and the output as one more; None for all.
        flash_attention: False where the scores of a whole step are held at once.
        adapters: Bytes of LoRA adapters.

    Raises:
        LaunchError: If a header can't be read, or does not say what is needed.
    """
    headers = [read(file) for file in files]
    model = _Model(headers[0], files[0])
    n_layers = model.number("block_count")
    if n_layers > _MAX_KEPT:
        raise LaunchError(f"{files[0]} says that the model has {n_layers} layers")
    wanted = ALL_LAYERS if n_gpu_layers is None else n_gpu_layers
    first = max(0, n_layers - wanted)
    places = {name: place for header in headers for name, place in header.places.items()}
    is_tied = not any(name.startswith("output.") for name in places)
    on_gpu = [one for name, one in places.items() if _is_on_gpu(name, first, is_tied=is_tied)]
    here = sum(place.n_bytes for place in on_gpu)
    heads = model.each_layer("attention.head_count", n_layers)
    kv_heads = model.each_layer("attention.head_count_kv", n_layers, heads)
    hidden = model.number("embedding_length")
    usual = hidden // max(1, *heads)
    width = model.number("attention.key_length", usual) + model.number(
        "attention.value_length", usual
    )
    cache = math.ceil(sum(kv_heads[first:]) * width * _CACHE_BYTES[cache_type] * context)
    inner = max(model.each_layer("feed_forward_length", n_layers, (4 * hidden,)))
    vocabulary = headers[0].lengths.get("tokenizer.ggml.tokens", 0)
    step = _STEP_TOKENS * 4 * (10 * hidden + 2 * inner + vocabulary)
    scores = 0 if flash_attention else _STEP_TOKENS * 4 * context * max(heads)
    return Footprint(
        weights=here + adapters,
        cache=cache,
        cache_wanted=cache,
        overhead=_CONTEXT_BYTES + step + scores,
        splits=tuple(n for n in _SPLITS if n <= max(1, n_layers - first)),
        cache_splits=max(1, n_layers - first),
    )


def _is_on_gpu(tensor: str, first: int, *, is_tied: bool) -> bool:
    """Return True if llama.cpp puts it there; the input's embeddings stay with the CPU."""
    if tensor.startswith("blk."):
        number = tensor.split(".")[1]
        return number.isdecimal() and int(number) >= first
    return is_tied or not tensor.startswith("token_embd.")


class _Model:
    """The numbers of a model, by names without that of its architecture."""

    def __init__(self, header: Header, file: Path) -> None:
        self._values = header.values
        self._file = file
        self._kind = header.values.get("general.architecture")

    def number(self, name: str, usual: int | None = None) -> int:
        value = self._values.get(f"{self._kind}.{name}", usual)
        if not isinstance(value, int) or value < 0:
            raise LaunchError(
                f"{self._file} says no {self._kind}.{name}, so its memory cannot be estimated; "
                "set the GPUs of its server in the recipe, or n_gpu_layers: 0"
            )
        return value

    def each_layer(self, name: str, n_layers: int, usual: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A number for each layer; the file may hold one for all."""
        value = self._values.get(f"{self._kind}.{name}", usual)
        if isinstance(value, tuple) and value:
            return value
        return (self.number(name),) * max(1, n_layers)
