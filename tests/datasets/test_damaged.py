"""A damaged file of any form is a dataset, or an error in our words instead of a library's."""

import bz2
import gzip
import lzma
import re
import tempfile
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import DatasetError
from tests.datasets.test_excel import write as sheets
from tests.datasets.test_open import opened


def _made(write):
    """The content of what writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made")
        write(path)
        return path.read_bytes()


_GOOD = b'{"id": "k", "prompt": "one?"}\n{"id": "m", "prompt": "two?", "x": [1, {"y": "z"}]}\n'
_FORMS = {
    ".jsonl": _GOOD,
    ".json": b"[" + b",".join(_GOOD.splitlines()) + b"]",
    ".csv": b'id,prompt\nk,"one, or two?"\nm,"tw""o"\n',
    ".jsonl.gz": gzip.compress(_GOOD, mtime=0),
    ".jsonl.bz2": bz2.compress(_GOOD),
    ".jsonl.xz": lzma.compress(_GOOD),
    ".parquet": _made(pl.DataFrame({"id": ["k"], "prompt": ["one?"]}).write_parquet),
    ".xlsx": _made(lambda path: sheets(path, s=[["id", "prompt"], ["k", "one?"]])),
}
_RAW = re.compile(r"\bb'|0x|Errno|recursion|mode\?|<class| object at |Error\b|Traceback|codec|None")


@settings(deadline=None)
@given(st.sampled_from(list(_FORMS)), st.data())
def test_a_damaged_file_of_any_form_is_said_in_our_words(tmp_path_factory, suffix, data):
    content = bytearray(_FORMS[suffix])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["cut", "set", "put", "swap ends", "other form", "twice"])):
            case "cut":
                del content[at:]
            case "set":
                content[at : at + 1] = data.draw(st.binary(min_size=1, max_size=3))
            case "put":
                content[at:at] = data.draw(st.sampled_from([b"\r", b"\0", b'"', b"[" * 9_999]))
            case "swap ends":
                content = content.replace(b"\n", b"\r")
            case "other form":
                content = bytearray(_FORMS[data.draw(st.sampled_from(list(_FORMS)))])
            case _:
                content = content + content
    path = tmp_path_factory.mktemp("damaged") / f"x{suffix}"
    path.write_bytes(bytes(content))
    try:
        opened(path, {"xlsx": "excel"}.get(kind := suffix.split(".")[1], kind))
    except DatasetError as error:
        said = str(error).partition("; the line begins")[0]
        assert not _RAW.search(said), said
        assert len(said) < 400 * (1 + said.count("\n")), said
