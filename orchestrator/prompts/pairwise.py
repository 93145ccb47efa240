"""Prompts that ask a judge to compare two answers, by name, with five, three or two labels.

`judgment_distribution` is the wording of Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference
with the Judgment Distribution" (arXiv 2503.03064), which lists the five symbols; the version with a
chain of thought adds the explanation clauses that the paper prints for its pointwise prompt. The
bullets for three and for two labels are ours. `compact` is what the models bundled with this
project were trained on, with five labels; it shows the reference.
"""

from typing import Final, Literal

from orchestrator.prompts.compact import PAIRWISE, PAIRWISE_COT
from orchestrator.prompts.judging import JudgePrompt

LabelSet = Literal["five", "three", "two"]

_BULLETS: Final[dict[LabelSet, str]] = {
    "five": """\
- "[[>>]]" if assistant A is significantly better,
- "[[>]]" if assistant A is slightly better,
- "[[=]]" for a tie,
- "[[<]]" if assistant B is slightly better,
- "[[<<]]" if assistant B is significantly better.
""",
    "three": """\
- "[[>]]" if assistant A is better,
- "[[=]]" for a tie,
- "[[<]]" if assistant B is better.
""",
    "two": """\
- "A" if assistant A is better,
- "B" if assistant B is better.
""",
}

_ANSWERS: Final = """
[User Prompt]
{{ prompt }}
[End User Prompt]
[Start of Assistant A's Answer]
{{ answer_a }}
[End of Assistant A's Answer]
[Start of Assistant B's Answer]
{{ answer_b }}
[End of Assistant B's Answer]"""

_COMPARE: Final = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two "
    "AI assistants to the user prompt displayed below. Your evaluation should consider factors "
    "such as the helpfulness, relevance, and informativeness of each response."
)

_EXPLAIN_AND_USE: Final = (
    " Begin your evaluation by providing a short explanation. Be as objective as possible. After "
    "providing your explanation, use"
)

PAIRWISE_NAMES: Final = ("compact", "judgment_distribution")


def pairwise_prompt(name: str, labels: LabelSet) -> JudgePrompt:
    """One of `PAIRWISE_NAMES` for a set of labels.

    Raises:
        KeyError: If there is no such prompt.
    """
    if name == "compact":
        return JudgePrompt(PAIRWISE, PAIRWISE_COT)
    if name != "judgment_distribution":
        raise KeyError(name)
    rest = f" the following symbols to indicate your judgment:\n{_BULLETS[labels]}{_ANSWERS}"
    return JudgePrompt(f"{_COMPARE} Use{rest}", f"{_COMPARE}{_EXPLAIN_AND_USE}{rest}")
