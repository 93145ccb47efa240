"""Prompts that ask a judge to rate one answer, by name; `low` and `high` are ends of the scale.

`judgment_distribution` is the wording that Wang, Zhang and Choi (arXiv 2503.03064) print, with and
without the two clauses that ask for an explanation; theirs is from 1 to 9. `compact` is what the
models bundled with this project were trained on: from 1 to 9, and it shows the reference.
"""

from typing import Final

from orchestrator.prompts.compact import RATING, RATING_COT
from orchestrator.prompts.judging import JudgePrompt

_JUDGE_ONE: Final = (
    "Please act as an impartial judge and evaluate the quality of the response provided by an AI "
    "assistant to the user prompt displayed below. Your evaluation should consider factors such as "
    "the helpfulness, relevance, accuracy, depth, creativity, level of detail, and ethicality of "
    "the response."
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
    "compact": JudgePrompt(RATING, RATING_COT),
    "judgment_distribution": JudgePrompt(
        f"{_JUDGE_ONE} Be as objective as possible. Please {_RATE_ONE}{_ANSWER}",
        f"{_JUDGE_ONE} Begin your evaluation by providing a short explanation. Be as objective as "
        f"possible. After providing your explanation, please {_RATE_ONE}{_ANSWER}",
    ),
}
