"""Prompts that ask a model to improve an answer of its own, by name.

`refinement` and `simple` are the wordings of Xia et al., "Language Models can Evaluate Themselves
via Probability Discrepancy" (Findings of ACL 2024): its Response Refinement Prompt and the Simple
Refinement Prompt of its appendix C. `refinement_code` is the wording of the code that the authors
released, which puts each sentence on a line and bans more words. `translation_code` is what that
code asks for translations: it names tables and code in place of emoji, asks for relevance, and does
not permit keeping the answer. `compact` is what the models bundled with this project were trained
on.
"""

from typing import Final

from orchestrator.prompts.compact import REWRITE

_GOAL: Final = (
    "I want you to act as a Response Rewriter.",
    "Your goal is to enhance the quality of the response given by an AI assistant to the #Given "
    "Prompt# through rewriting.",
    "But the rewritten response must be reasonable and must be understood by humans.",
)
_ROLE: Final = (
    *_GOAL,
    "Your rewriting cannot omit the non-text parts such as the emoji in #Given Prompt# and #Given "
    "Response#.",
)
_KEEP: Final = (
    "If you think the response is already great enough, you can keep it unchanged.",
    "You should try your best not to change the length of the response.",
)
# Lines of the code end with a blank here and there.
_ROLE_OF_CODE: Final = (*_ROLE[:-1], f"{_ROLE[-1]} ")
_TRANSLATION: Final = (
    "Your rewriting cannot omit the non-text parts such as the table and the code in #Given "
    "Prompt# and #Given Response#. ",
    "Also, please do not omit the input in #Given Prompt#.",
    "You Should enhance the quality of the response using the following method:",
    "Please make the Response more relevant to #Given Prompt#.",
    "You should try your best not to make the #Rewritten Response# become verbose.",
)
_BANNED: Final = (
    "#Given Response# and #Rewritten Response# are not allowed to appear in #Rewritten Response#."
)
_BANNED_BY_CODE: Final = (
    "'#Given Response#', '#Rewritten Response#', 'given response' and 'rewritten response' are not "
    "allowed to appear in #Rewritten Response#."
)
_SHOWN: Final = (
    "#Given Prompt#:\n{{ prompt }}\n#Given Response#:\n{{ answer }}\n#Rewritten Response#:\n"
)
_SIMPLE: Final = """\
According to the given #INSTRUCTION#, please modify the given #RESPONSE# to make it better.

#INSTRUCTION#:

{{ prompt }}

#RESPONSE#:

{{ answer }}

#Your Response#:
"""

PROMPTS: Final = {
    "refinement": f"{' '.join(_ROLE)}\n\n{' '.join(_KEEP)}\n\n{_BANNED}\n\n{_SHOWN}",
    "refinement_code": "\n".join((*_ROLE_OF_CODE, *_KEEP, _BANNED_BY_CODE, _SHOWN)),
    "translation_code": "\n".join((*_GOAL, *_TRANSLATION, _BANNED_BY_CODE, _SHOWN)),
    "simple": _SIMPLE,
    "compact": REWRITE,
}
"""User messages with `prompt` and `answer`, by name."""
MARKERS: Final = {
    **dict.fromkeys(
        ("refinement_code", "translation_code"), ("given response", "rewritten response")
    ),
    "compact": ("task:", "answer:"),
}
"""Texts besides those between two `#` that show that a rewriting took over a part of its prompt."""
