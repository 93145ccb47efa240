"""What ended an answer, by the many names that servers give it: one table for all dialects."""

from collections.abc import Mapping
from typing import Final

STOP: Final = "stop"
"""The model ended it, or a stop string did."""
LENGTH: Final = "length"
"""It was cut at its greatest length."""
WITHHELD: Final = "withheld"
"""A filter took it, or the rest of it."""
CALLED: Final = "called"
"""The model called a tool instead."""
BROKEN: Final = "broken"
"""The server gave up; the same request may be answered."""
UNSAID: Final = "unsaid"
UNKNOWN: Final = "unknown"

_NAMES: Final = {
    STOP: "stop eos eos_token end end_turn end_of_turn end_of_text stop_sequence stop_token "
    "stop_string word complete completed finish finished done",
    LENGTH: "length limit max_tokens max_length max_new_tokens max_output_tokens "
    "max_completion_tokens model_length token_limit model_context_window_exceeded",
    WITHHELD: "content_filter content_filtered filtered safety recitation blocklist blocked "
    "prohibited_content spii refusal sensitive moderation guardrail guardrail_intervened "
    "error_toxic",
    CALLED: "tool_calls tool_call tool_use function_call function_calls",
    BROKEN: "abort aborted error cancel cancelled canceled timeout network_error interrupted "
    "insufficient_system_resource preempted",
}
_ENDS: Final[Mapping[str | None, str]] = {
    None: UNSAID,
    "": UNSAID,
    **{name: end for end, names in _NAMES.items() for name in names.split()},
}


def end_of(reason: str | None) -> str:
    """What a server's `finish_reason`, or its like, means: one of the names above."""
    found = _ENDS.get(reason)
    if found is None and reason is not None:
        return _ENDS.get(reason.strip().lower().replace("-", "_").replace(" ", "_"), UNKNOWN)
    return found or UNSAID
