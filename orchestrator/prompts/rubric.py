"""Prompts that ask a judge for one criterion of a rubric, or for all of them in one reply.

The wording is our own. What all criteria share stands first, so that servers can reuse it.
"""

from typing import Final

from orchestrator.prompts.judging import JudgePrompt

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

ONE_CRITERION: Final = JudgePrompt(
    f"{_JUDGED}{_CRITERION}By this criterion alone, reply with {{{{ scale }}}}, without further "
    "explanation.",
    f"{_JUDGED}{_CRITERION}By this criterion alone, explain in a few sentences how good the answer "
    "is. After your explanation, end your reply with {{ scale }}.",
)
"""Asks for one criterion: its text, a description, and the labels."""

ALL_CRITERIA: Final = JudgePrompt(
    f"{_JUDGED}{_CRITERIA}Reply with nothing but {_LINES}",
    f"{_JUDGED}{_CRITERIA}Explain in a few sentences how good the answer is by each criterion. "
    f"After your explanation, end your reply with {_LINES}",
)
"""Asks for all criteria in one reply."""
