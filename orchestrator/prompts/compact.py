"""Short prompt templates which the bundled models were trained to follow.

The wording is part of the bundled models: they tell the forms apart by the first line, so a
changed word needs new weights. Placeholders are Jinja variables (`{{ prompt }}` and so on).
"""

from __future__ import annotations

LABELS: tuple[str, ...] = ("[[>>]]", "[[>]]", "[[=]]", "[[<]]", "[[<<]]")
"""Pairwise verdicts, from "A much better" to "B much better"."""

RATINGS: tuple[str, ...] = ("1", "2", "3", "4", "5", "6", "7", "8", "9")
"""Ratings, from worst to best."""

PAIR_BODY = (
    "Task: {{ prompt }}\n"
    "Reference: {{ reference }}\n"
    "Answer A: {{ answer_a }}\n"
    "Answer B: {{ answer_b }}"
)
_SINGLE_BODY = "Task: {{ prompt }}\nReference: {{ reference }}\nAnswer: {{ answer }}"

PAIRWISE = f"Compare two answers. Verdict only.\n{PAIR_BODY}"
PAIRWISE_COT = f"Compare two answers. Check first.\n{PAIR_BODY}"
RATING = f"Rate the answer from 1 to 9. Rating only.\n{_SINGLE_BODY}"
RATING_COT = f"Rate the answer from 1 to 9. Check first.\n{_SINGLE_BODY}"
REWRITE = "Improve the answer. Keep it if it is right.\nTask: {{ prompt }}\nAnswer: {{ answer }}"
