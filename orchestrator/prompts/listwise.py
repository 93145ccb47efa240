"""Prompts that ask a judge to rank several answers from best to worst.

The wording is our own, after the pairwise prompt of Wang, Zhang and Choi (arXiv 2503.03064): their
listwise prompt was not at hand. What the forms share stands first, so that servers can reuse it.
"""

from typing import Final, Literal

from orchestrator.prompts.judging import JudgePrompt

ListForm = Literal["list", "turns"]

_LISTED: Final = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by "
    "{{ answers | length }} AI assistants to the user prompt displayed below. Your evaluation "
    "should consider factors such as the helpfulness, relevance, and informativeness of each "
    "response.\n"
    "[User Prompt]\n{{ prompt }}\n[End User Prompt]\n"
    "{% for one in answers %}"
    "[Start of Assistant {{ one.letter }}'s Answer]\n{{ one.text }}\n"
    "[End of Assistant {{ one.letter }}'s Answer]\n"
    "{% endfor %}"
)

_EXPLAIN: Final = (
    "Begin your evaluation by providing a short explanation. Be as objective as possible."
)

FIRST_TURN: Final = "Which assistant's answer is best? Reply with nothing but its letter."
"""The question for the best of all answers."""

LIST_FORMS: Final[dict[ListForm, JudgePrompt]] = {
    "list": JudgePrompt(
        f"{_LISTED}Rank all assistants from best to worst. Reply with nothing but their letters in "
        'this order, separated by " > ".',
        f"{_LISTED}{_EXPLAIN} After providing your explanation, rank all assistants from best to "
        'worst: end with a line of nothing but their letters in this order, separated by " > ".',
    ),
    "turns": JudgePrompt(
        f"{_LISTED}{FIRST_TURN}",
        f"{_LISTED}{_EXPLAIN} Compare all answers; you will be asked for a ranking afterwards.",
    ),
}
"""Asks for the whole list in one reply, or for the best answer first; with a chain of thought the
prompt of the turns asks for the explanation alone."""


def next_turn(letters: str) -> str:
    """Return the question for the best of the answers left, whose letters are listed."""
    return (
        f"Which answer is best among those of the other assistants ({letters})? Reply with nothing "
        "but its letter."
    )
