"""Retries: tenacity's stop and wait policies, consulted after a failed attempt only."""

import msgspec
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from orchestrator.records import Failure

_RETRYING = Retrying()


class RetryPolicy(msgspec.Struct, frozen=True):
    """Retries of a request after a transient failure.

    Attributes:
        max_attempts: Attempts in all.
        first_wait_s: Upper bound of the first random wait; it doubles each time.
        max_wait_s: Upper bound of any wait that the server did not ask for.
    """

    max_attempts: int = 5
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0

    def wait_s(
        self, failure: Failure, attempts: int, max_attempts: int | None = None
    ) -> float | None:
        """Seconds to wait after `attempts` attempts; None means: give up.

        What the server asked for (`Retry-After`) is honoured, up to ten minutes.

        Args:
            failure: Of the last attempt.
            attempts: Made so far.
            max_attempts: The model's own bound; the policy's where None.
        """
        if not failure.retriable:
            return None
        state = RetryCallState(_RETRYING, None, (), {})
        state.attempt_number = attempts
        if stop_after_attempt(max_attempts or self.max_attempts)(state):
            return None
        wait = wait_random_exponential(multiplier=self.first_wait_s, max=self.max_wait_s)(state)
        if failure.retry_after_s is not None:
            wait = max(wait, min(failure.retry_after_s, 600.0))
        return float(wait)
