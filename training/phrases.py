"""Text from which the tokenizer learns its words."""

from __future__ import annotations

import re

from orchestrator.prompts import compact

_TEMPLATES = (
    compact.PAIRWISE,
    compact.PAIRWISE_COT,
    compact.RATING,
    compact.RATING_COT,
    compact.REWRITE,
)

FIXED: tuple[str, ...] = (
    *(re.sub(r" ?\{\{ \w+ \}\}", "", template) for template in _TEMPLATES),
    "Reverse: Sort: Repeat: Swap first and last: Rotate: First: Last:",
    " Reverse: Sort: Repeat: Swap first and last: Rotate: First: Last:",
    "Swap first and last:",
    "Sort:",
    "system user assistant tool",
    "A B yes no right near wrong so",
    *compact.LABELS,
)
"""Wording of the prompts the bundled models are trained on."""

GENERAL: tuple[str, ...] = (
    "You are a helpful assistant. Answer briefly.",
    "Please act as an impartial judge and evaluate the quality of the responses provided by two "
    "AI assistants to the user question displayed below. You should choose the assistant that "
    "follows the user's instructions and answers the user's question better. Your evaluation "
    "should consider factors such as the helpfulness, relevance, accuracy, depth, creativity, "
    "and level of detail of their responses. Begin your evaluation by comparing the two "
    "responses and provide a short explanation. Avoid any position biases and ensure that the "
    "order in which the responses were presented does not influence your decision. Do not allow "
    "the length of the responses to influence your evaluation. Do not favor certain names of "
    "the assistants. Be as objective as possible.",
    "After providing your explanation, output your final verdict by strictly following this "
    'format: "[[A]]" if assistant A is better, "[[B]]" if assistant B is better, and "[[C]]" for '
    "a tie.",
    "Assistant A is significantly better: [[A>>B]] Assistant A is slightly better: [[A>B]] Tie, "
    "relatively the same: [[A=B]] Assistant B is slightly better: [[B>A]] Assistant B is "
    "significantly better: [[B>>A]]. My final verdict is tie: [[A=B]]",
    "Please act as a Response Rewriter. Your task is to rewrite the given response so that it is "
    "better, more accurate and more helpful. Keep what is right and correct what is wrong. "
    "Output only the rewritten response, with no comments before or after it.",
    "Please rate the response with an integer score from 1 to 9, where 1 is the worst and 9 is "
    "the best. Rate the quality of the answer on a scale of 1 to 10. Your rating should be a "
    "single number. The score is: Rating: [[5]]",
    "[User Question] [The Start of Assistant A's Answer] [The End of Assistant A's Answer] [The "
    "Start of Assistant B's Answer] [The End of Assistant B's Answer] [Reference Answer]",
    "### Instruction: ### Response: ### Question: ### Answer: ### Input: ### Output:",
    "<question> <answer> <response> <reference> <instruction> </question> </answer> </response>",
    "Given the question and the reference answer, decide which of the two answers is better. "
    "Write the verdict first and then the reasons. Compare the candidates step by step. Which "
    "answer is more correct? Choose one of the following options: A, B, C or D.",
    "Is this answer correct? Answer yes or no. Evaluate, judge, grade, score, rank, prefer, "
    "select, improve, revise, refine, explain, check, verify, because, therefore, however.",
    "The quick brown fox jumps over the lazy dog. What is the capital of France? How many of "
    "these are there? Write a poem about the sea. When, where, why, who, with, without, that, "
    "this, then, than, there, which, would, could, should, about, other, after, before.",
    "people time year work way day man thing woman life child world school state family student "
    "group country problem hand part place case week company system program government number "
    "night point home water room mother area money story fact month book eye job word business "
    "side kind head house service friend father power hour game line member law car city name "
    "president team minute idea body information back parent face others level office door "
    "health person art war history party result change morning reason research girl guy moment",
    "be have do say get make go know take see come think look want give use find tell ask seem "
    "feel try leave call is are was were has had did been being can will may might must just "
    "into over also only very even most such much many some more new good high old great big",
)
"""Wording common in prompts for judging, rating and rewriting."""
