"""Prompts that ask a judge to compare two answers, by name.

`judgment_distribution` is the wording of Wang, Zhang and Choi, "Improving LLM-as-a-Judge Inference
with the Judgment Distribution" (arXiv 2503.03064), which lists the five symbols; the version with a
chain of thought adds the explanation clauses that the paper prints for its pointwise prompt.
`compact` is what the models bundled with this project were trained on; it shows the reference.
"""

from typing import Final, NamedTuple

from orchestrator.prompts.compact import PAIRWISE, PAIRWISE_COT


class PairwisePrompt(NamedTuple):
    """A user message that asks for a verdict at once, and one that asks for reasons first."""

    direct: str
    chain_of_thought: str


_SYMBOLS: Final = """\
- "[[>>]]" if assistant A is significantly better,
- "[[>]]" if assistant A is slightly better,
- "[[=]]" for a tie,
- "[[<]]" if assistant B is slightly better,
- "[[<<]]" if assistant B is significantly better.
"""

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

_ROLE: Final = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two "
    "AI assistants to the user prompt displayed below. Your evaluation should consider factors "
    "such as the helpfulness, relevance, and informativeness of each response."
)

_EXPLAIN: Final = (
    " Begin your evaluation by providing a short explanation. Be as objective as possible. After "
    "providing your explanation, use"
)

PROMPTS: Final = {
    "compact": PairwisePrompt(PAIRWISE, PAIRWISE_COT),
    "judgment_distribution": PairwisePrompt(
        f"{_ROLE} Use the following symbols to indicate your judgment:\n{_SYMBOLS}{_ANSWERS}",
        f"{_ROLE}{_EXPLAIN} the following symbols to indicate your judgment:\n{_SYMBOLS}{_ANSWERS}",
    ),
}
