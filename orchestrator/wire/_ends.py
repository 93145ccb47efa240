"""What ended an answer, by the many names that servers give it: one table for all dialects."""

import re
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
    "stop_string word complete completed finish finished done eos_found stop_string_found",
    LENGTH: "length limit max_tokens max_length max_new_tokens max_output_tokens "
    "max_completion_tokens model_length token_limit model_context_window_exceeded "
    "context_length max_context_length context_length_reached max_predicted_tokens_reached "
    "error_limit",
    WITHHELD: "content_filter content_filtered filtered safety recitation blocklist blocked "
    "prohibited_content spii refusal sensitive moderation guardrail guardrail_intervened "
    "error_toxic image_safety sensitive_content content_policy content_policy_violation "
    "policy_violation model_armor risk language",
    CALLED: "tool_calls tool_call tool_use function_call function_calls malformed_function_call "
    "unexpected_tool_call",
    BROKEN: "abort aborted error cancel cancelled canceled timeout network_error interrupted "
    "insufficient_system_resource preempted failed user_cancel user_stopped time_limit "
    "model_unloaded",
}
_ENDS: Final[Mapping[str | None, str]] = {
    None: UNSAID,
    "": UNSAID,
    **{name: end for end, names in _NAMES.items() for name in names.split()},
}
# As enumerations are written whole: FinishReason.STOP, FINISH_REASON_STOP.
_ENUM: Final = re.compile(r"(?:finish|stop)_?reason[._]", re.IGNORECASE)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def end_of(reason: str | None) -> str:
    """What a server's `finish_reason`, or its like, means: one of the names above."""
    found = _ENDS.get(reason)
    if found is None and reason is not None:
        name = _HUMP.sub("_", _ENUM.sub("", reason.strip(), count=1))
        return _ENDS.get(re.sub(r"[- ]", "_", name).lower(), UNKNOWN)
    return found or UNSAID
