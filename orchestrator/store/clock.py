"""Wall time, for when something was recorded; durations take a monotonic clock."""

import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
