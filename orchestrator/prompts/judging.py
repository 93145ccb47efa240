"""Prompts of judges, by name: two answers, one, several in a list, or criteria of a rubric."""

from collections.abc import Mapping
from typing import Final, Literal

from orchestrator.prompts.compact import PAIR_BODY, PAIRWISE, PAIRWISE_COT, RATING, RATING_COT

JudgePrompt = tuple[str, str]
"""A user message that asks for a verdict at once, and one that asks for reasons first."""


# Prompts that ask a judge to compare two answers, by name, with five, three or two labels.
#
# `judgment_distribution` is the wording of Wang, Zhang and Choi, "Improving LLM-as-a-Judge
# Inference with the Judgment Distribution" (arXiv 2503.03064), which lists the five symbols; the
# version with a chain of thought adds the explanation clauses that the paper prints for its
# pointwise prompt. The bullets for three and for two labels are ours. `compact` is what the models
# bundled with this project were trained on, with five labels; it shows the reference.


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


PAIRWISE_PROMPTS: Final[Mapping[str, Mapping[LabelSet, JudgePrompt]]] = {
    "compact": dict.fromkeys(_BULLETS, (PAIRWISE, PAIRWISE_COT)),
    "judgment_distribution": {
        labels: (f"{_COMPARE} Use{rest}", f"{_COMPARE}{_EXPLAIN_AND_USE}{rest}")
        for labels, bullets in _BULLETS.items()
        for rest in [f" the following symbols to indicate your judgment:\n{bullets}{_ANSWERS}"]
    },
}
"""For each set of labels."""


# Prompts that ask a judge to rate one answer, by name; `low` and `high` are ends of the scale.
#
# `judgment_distribution` is the wording that Wang, Zhang and Choi (arXiv 2503.03064) print, with
# and without the two clauses that ask for an explanation; theirs is from 1 to 9. `compact` is what
# the models bundled with this project were trained on: from 1 to 9, and it shows the reference.


def _rated(answers: str, whose: str, rest: str) -> JudgePrompt:
    """Return what asks for a score of answers, at once or after an explanation."""
    judge = (
        f"Please act as an impartial judge and evaluate the quality of the {answers} to the user "
        "prompt displayed below. Your evaluation should consider factors such as the helpfulness, "
        f"relevance, accuracy, depth, creativity, level of detail, and ethicality of {whose}."
    )
    return (
        f"{judge} Be as objective as possible. Please {rest}",
        f"{judge} Begin your evaluation by providing a short explanation. Be as objective as "
        f"possible. After providing your explanation, please {rest}",
    )


_RATE_ONE: Final = (
    "rate the response with an integer score from {{ low }} to {{ high }}, without further "
    "explanation.\n"
)

_ANSWER: Final = """
[User Prompt]
{{ prompt }}
[End User Prompt]
[Start of Assistant's Answer]
{{ answer }}
[End of Assistant's Answer]"""

POINTWISE_PROMPTS: Final = {
    "compact": (RATING, RATING_COT),
    "judgment_distribution": _rated(
        "response provided by an AI assistant", "the response", f"{_RATE_ONE}{_ANSWER}"
    ),
}


# Prompts that ask a judge to rate two answers in one reply, by name.
#
# The prompt of Wang, Zhang and Choi (arXiv 2503.03064) was not at hand (2026-11-28). `two_scores`
# is our own wording, after their pointwise one; `compact` is its short form with the reference. The
# models bundled with this project were trained on neither.


_RATE_BOTH: Final = (
    "rate each response with an integer score from {{ low }} to {{ high }}: write the score of "
    "assistant A, a space, and the score of assistant B, without further explanation.\n"
)


SCORING_PROMPTS: Final = {
    "compact": (
        f"Rate both answers from {{{{ low }}}} to {{{{ high }}}}. Ratings only.\n{PAIR_BODY}",
        f"Rate both answers from {{{{ low }}}} to {{{{ high }}}}. Check first.\n{PAIR_BODY}",
    ),
    "two_scores": _rated(
        "responses provided by two AI assistants", "each response", f"{_RATE_BOTH}{_ANSWERS}"
    ),
}


# Prompts that ask a judge for one criterion of a rubric, or for all of them in one reply.
#
# The wording is our own. What all criteria share stands first, so that servers can reuse it.


_JUDGED: Final = (
    "Please act as an impartial judge and evaluate the response provided by an AI assistant to the "
    "user prompt displayed below. Be as objective as possible.\n"
    "[User Prompt]\n{{ prompt }}\n[End User Prompt]\n"
    "[Start of Assistant's Answer]\n{{ answer }}\n[End of Assistant's Answer]\n"
)
_CRITERION: Final = (
    "[Criterion]\n{{ criterion }}{% if description %}: {{ description }}{% endif %}\n"
    "[End of Criterion]\n"
)
_CRITERIA: Final = (
    "[Criteria]\n"
    "{% for one in criteria %}{{ one.key }}"
    "{% if one.description %}: {{ one.description }}{% endif %} (reply with {{ one.scale }})\n"
    "{% endfor %}[End of Criteria]\n"
)
_LINES: Final = (
    "one line for each criterion, in this order: its name, a colon, and the verdict, such as "
    '"{{ criteria[0].key }}: {{ criteria[0].best }}".'
)

ONE_CRITERION: Final = (
    f"{_JUDGED}{_CRITERION}By this criterion alone, reply with {{{{ scale }}}}, without further "
    "explanation.",
    f"{_JUDGED}{_CRITERION}By this criterion alone, explain in a few sentences how good the answer "
    "is. After your explanation, end your reply with {{ scale }}.",
)
"""Asks for one criterion: its text, a description, and the labels."""

ALL_CRITERIA: Final = (
    f"{_JUDGED}{_CRITERIA}Reply with nothing but {_LINES}",
    f"{_JUDGED}{_CRITERIA}Explain in a few sentences how good the answer is by each criterion. "
    f"After your explanation, end your reply with {_LINES}",
)
"""Asks for all criteria in one reply."""
