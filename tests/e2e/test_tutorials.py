"""The commands, files and edits of tutorials and how-to pages, in the order of the page.

Pages of the fifteen tasks are followed in `tests/tasks`, and the one on endpoints in
`test_your_endpoint.py`.
"""

import pytest

from tests.docs.reader import FOLLOWED, Reader
from tests.tasks.tasks import TASKS

OF_OTHERS = {"how_to/your_endpoint", *(page for task in TASKS for page in task.pages)}
NEEDED = {"how_to/gguf": (pytest.mark.smollm2,)}
# The others are followed by `make test-long`.
SOON = {"how_to/merge_runs", "how_to/own_metric", "tutorials/one_server"}


def marks(page):
    return (*NEEDED.get(page, ()), *(() if page in SOON else (pytest.mark.long,)))


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=marks(page)) for page in FOLLOWED if page not in OF_OTHERS],
)
def test_a_reader_who_follows_the_page_sees_what_it_says(tmp_path, page):
    folder = tmp_path / "folder of mine"
    folder.mkdir()
    reader = Reader(folder)
    try:
        reader.follow(page)
        reader.interrupt()
    finally:
        reader.end()
