"""Secrets, told by the names that hold them and by the forms that they have."""

import os
import re
from typing import Final

_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
FIELD: Final = re.compile(
    r"^token$|(?:^|[-_])(?:(?:api|access|auth|bearer|hf|hub|refresh|session)[-_]?token"
    r"|(?:api|access|auth|private|secret|subscription)[-_]?key|secret|passwd|password"
    r"|authorization|credentials?)$",
    re.IGNORECASE,
)
"""Fields of requests that are secrets; eos_token, prompt_cache_key and such are none."""
_VALUE: Final = re.compile(
    r"\b(?:sk-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@]+:[^/\s@]+@"
    r"|^(?i:basic|bearer) \S{4,}$"
)
PARAMETER: Final = re.compile(
    r"key|token|secret|passw|pwd|credential|auth(?:orization|[-_]|$)|bearer|cookie|jwt"
    r"|sig(?:nature)?$",
    re.IGNORECASE,
)
"""Headers and parameters of an address that sound like secrets: addresses are shown everywhere."""
_SHORTEST_KNOWN: Final = 8


def is_secret_name(name: str) -> bool:
    """Return whether a variable or an argument is called a secret."""
    return _NAME.search(name) is not None


def is_secret(value: str) -> bool:
    """Return whether a value has the form of a secret, or is one of our own environment's."""
    ours = (
        text
        for name, text in os.environ.items()
        if is_secret_name(name) and len(text) >= _SHORTEST_KNOWN
    )
    return value in ours or _VALUE.search(value) is not None
