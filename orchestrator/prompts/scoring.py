"""Prompts that ask a judge to rate two answers in one reply, by name.

Wang, Zhang and Choi (arXiv 2503.03064) do not print their prompt for this setting. `two_scores` is
our own wording, after their pointwise one; `compact` is its short form with the reference. The
models bundled with this project were trained on neither.
"""

from typing import Final

from orchestrator.prompts.judging import JudgePrompt

_JUDGE_BOTH: Final = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI "
    "assistants to the user prompt displayed below. Your evaluation should consider factors such "
    "as the helpfulness, relevance, accuracy, depth, creativity, level of detail, and ethicality "
    "of each response."
)

_RATE_BOTH: Final = (
    "rate each response with an integer score from {{ low }} to {{ high }}: write the score of "
    "assistant A, a space, and the score of assistant B, without further explanation.\n"
)

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

_COMPACT_BODY: Final = (
    "Task: {{ prompt }}\n"
    "Reference: {{ reference }}\n"
    "Answer A: {{ answer_a }}\n"
    "Answer B: {{ answer_b }}"
)

SCORING_PROMPTS: Final = {
    "compact": JudgePrompt(
        f"Rate both answers from {{{{ low }}}} to {{{{ high }}}}. Ratings only.\n{_COMPACT_BODY}",
        f"Rate both answers from {{{{ low }}}} to {{{{ high }}}}. Check first.\n{_COMPACT_BODY}",
    ),
    "two_scores": JudgePrompt(
        f"{_JUDGE_BOTH} Be as objective as possible. Please {_RATE_BOTH}{_ANSWERS}",
        f"{_JUDGE_BOTH} Begin your evaluation by providing a short explanation. Be as objective as "
        f"possible. After providing your explanation, please {_RATE_BOTH}{_ANSWERS}",
    ),
}
