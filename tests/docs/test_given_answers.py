"""The page on existing answers names each form by which files of them are read."""

from orchestrator.dataset.answers import FORMS
from tests.docs.reader import DOCS

OF_A_TEXT = ["chats", "rows with a text"]


def test_the_page_lists_each_form_as_it_is_announced():
    page = (DOCS / "how_to" / "given_answers.md").read_text(encoding="utf-8")
    listed = page.partition("<!-- forms -->\n")[2].partition("<!-- end")[0].splitlines()
    names = list(dict.fromkeys(form.name for form in FORMS))
    assert [line.removeprefix("* ") for line in listed] == [*names, *OF_A_TEXT]
