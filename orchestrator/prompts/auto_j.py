"""The wording of the glass-box paper's Figure 7: an answer is criticised, then rated.

Auto-J's own template has the same words without the leading `# ` and other blank lines; it is read
from Auto-J's file. On a Llama-2 model the server's chat template puts `[INST]` around it.

Source: Huang et al. 2024, the glass-box self-evaluation paper, Figure 7 ("self-generation").
"""

from typing import Final

from orchestrator.prompts.files import Wording

SELFEVAL: Final = Wording(
    user="""\
Write critiques for a submitted response on a given user's query, and grade the response:
# [BEGIN DATA]
# ***
# [Query]: {question}
# ***
# [Response]: {answer}
# ***
# [END DATA]
# Write critiques for this response. After that, you should give a final rating for the response \
on a scale of 1 to 10 by strictly following this format: "[[rating]]", for example: \
"Rating: [[5]]"."""
)
