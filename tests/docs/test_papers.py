"""docs/papers.md lists every table and figure of the papers, with recipes that exist.

Whether a recipe makes the tables that the page names is seen in `tests/recipes`, which runs each.
"""

import re

import pytest
import yaml

from orchestrator.recipe.load import find
from tests.conftest import ROOT, SHARED
from tests.docs.papers import NOT_MADE, entries

# The notes and the README number no tables: a text of theirs stands for what has no caption.
TEXTS = {
    "ProbDiff": "probdiff_acl_findings.txt",
    "ProbDiff (anonymous submission)": "probdiff_anonymous_submission.txt",
    "Glass-box self-evaluation": "glass_box_self_evaluation.txt",
    "Judgment distribution": "judgment_distribution_notes_zh.txt",
    "Peer evaluation": "peer_evaluation_bertscore_elo.txt",
}
NOT_CAPTIONED = {
    "Scores 1 to 5 with logits and probabilities": "| token | logit | softmax",
    "Mean against mode: 42 of 48 cases": "outperforms the mode in 42 out of 48 cases",
    "Table 10": "In Table 10",
    "Without reasoning against with it: 14 of 16 cases": "outperforms CoT in 14 out of 16 cases",
    "Sharpening by reasoning": "being due to sharpening",
    "Both orders averaged, by example": "s(“我喜欢狗”)=(s1(“我喜欢狗”)+s2(“我喜欢狗”))/2.0",
    "Five symbols with probabilities": "| symbol | probability |",
    "Elo ratings and wins": "calculate the Elo ratings to obtain the final model rankings",
    "Predicted win rates": "decide which model will win",
}
# Of what the notes do not hold: a text of ours about what the authors say.
OF_AUTHORS = {"Lists: calibration of the mean": "Listwise: mean does not raise accuracy"}
CAPTION = re.compile(r"(?:^\s*|(?<=\.))((?:Table|Figure) \d+):", re.MULTILINE)
ENTRIES = entries()


def printed(paper: str) -> list[str]:
    return [entry.printed for entry in ENTRIES if entry.paper == paper]


def text_of(paper: str) -> str:
    path = SHARED / "papers" / TEXTS[paper]
    if not path.exists():
        pytest.skip("../shared is absent")
    return path.read_text(encoding="utf-8")


def test_the_page_is_about_the_five_papers():
    assert list(dict.fromkeys(entry.paper for entry in ENTRIES)) == list(TEXTS)


@pytest.mark.parametrize("paper", TEXTS)
def test_every_table_and_figure_of_a_paper_is_listed_once(paper):
    text = text_of(paper)
    captions = sorted(set(CAPTION.findall(text)))
    uncaptioned = [name for name in printed(paper) if name in NOT_CAPTIONED]
    assert sorted(set(printed(paper)) - set(uncaptioned) - set(OF_AUTHORS)) == captions
    assert len(printed(paper)) == len(set(printed(paper)))
    for name in uncaptioned:
        assert NOT_CAPTIONED[name] in text, name


def test_tables_without_a_caption_are_all_listed():
    rules = re.findall(r"^\|(?:---\|)+$", text_of("Judgment distribution"), re.MULTILINE)
    listed = [text for text in NOT_CAPTIONED.values() if text.startswith("|")]
    assert len(rules) == len(listed) == 2
    assert set(NOT_CAPTIONED) <= {entry.printed for entry in ENTRIES}


def test_what_the_authors_say_of_lists_is_listed():
    path = SHARED / "design" / "methods.md"
    if not path.exists():
        pytest.skip("../shared is absent")
    said = path.read_text(encoding="utf-8")
    assert set(OF_AUTHORS) <= set(printed("Judgment distribution"))
    assert all(text in said for text in OF_AUTHORS.values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: f"{one.paper}: {one.printed}")
def test_an_entry_names_a_recipe_with_the_kinds_of_its_tables_or_says_why_not(entry):
    if not entry.recipe:
        assert entry.tables == ()
        assert entry.differs.startswith(NOT_MADE)
        assert DATE.search(entry.differs)
        return
    assert entry.tables
    recipe = yaml.safe_load(find(entry.recipe).read_text(encoding="utf-8"))
    parts = [*recipe["methods"], *recipe.get("analyses", ())]
    known = {part["kind"] for part in parts}
    for name in entry.tables:
        # Tables of a ranking are named by method and judge: ratings-pairwise-ranking-judge.
        assert any(kind in name.replace("-", "_") for kind in known), name


CLAIM = re.compile(
    r"not at hand|maintenance mode|no licence|none stated|states? no licence|last release"
    r"|(?<!none )not (?:yet )?(?:published|released)|only on the hub|archived"
    r"|not (?:been )?run here|not in the copy|[Nn]o prompts were|(?<!or )could not be (?:read|run)"
    r"|alone could be read|there is no GPU",
)
DATE = re.compile(r"20\d\d-\d\d-\d\d|commit [0-9a-f]{7}")


def claims() -> list[tuple[str, str]]:
    """Yield our claims that something is not there, with the lines around each."""
    found = []
    for folder in ("docs", "orchestrator", "backends", "launch", "recipes"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in {".md", ".py", ".yaml"} or "design" in path.parts:
                continue
            text = path.read_text(encoding="utf-8")
            for match in CLAIM.finditer(text):
                around = text[max(0, match.start() - 250) : match.end() + 250]
                found.append((f"{path.relative_to(ROOT)}: {match[0]}", around))
    return found


def test_a_claim_that_something_is_not_there_carries_the_date_of_its_check():
    known = claims()
    assert len(known) > 10
    assert [where for where, around in known if not DATE.search(around)] == []
