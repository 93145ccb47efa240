"""vLLM 0.32 with the V1 model runner.

While a request for given ids (`logprob_token_ids`) is under way, requests that read alternatives
are answered with too few of them.
"""

from collections.abc import Mapping

from tests.fake.dialects import Dialect
from tests.fake.dialects.vllm_v2 import Vllm
from tests.fake.toy import Toy


class VllmV1(Vllm):
    """One server."""

    def __init__(self, toy: Toy) -> None:
        super().__init__(toy)
        self._n_exact = 0

    def spoils(self, body: Mapping[str, object]) -> bool:
        """See `Vllm`."""
        return self._n_exact > 0

    def began(self, body: Mapping[str, object]) -> None:
        """See `Dialect`."""
        self._n_exact += bool(body.get("logprob_token_ids"))

    def ended(self, body: Mapping[str, object]) -> None:
        """See `Dialect`."""
        self._n_exact -= bool(body.get("logprob_token_ids"))


def create(toy: Toy) -> Dialect:
    """A server of this kind."""
    return VllmV1(toy)
