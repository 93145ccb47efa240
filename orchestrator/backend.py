"""The seam to inference servers: the base class of back-end kinds, and the connections they make.

A file in `backends/` holds a class derived from `BackendKind`. Failures come back as values; only
programming errors and cancellation are raised.
"""

import ipaddress
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from pydantic import Field

from orchestrator.ask import ChooseAsk, GenerateAsk, Request, RewardAsk, ScoreAsk, SimilarityAsk
from orchestrator.errors import OrchestratorError, PluginError
from orchestrator.plugins.base import ConfigT, Plugin, Settings
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Messages,
    PairScores,
    Rewards,
    Scored,
    unsupported,
)
from orchestrator.secrets import PARAMETER
from orchestrator.wire.replies import ServerLoad as ServerLoad

T = TypeVar("T")
LOCAL: Final = "local"
"""Stands for the address of a back-end that needs no server."""
PLAIN: Final = "openai"
"""Kind of back-end for a server that is only known to be compatible with OpenAI's."""
ROUTES_MISSING: Final = frozenset({404, 405, 501})
"""Statuses of a server that lacks the route, or the method of the request."""


RAISE_FAULTS: Final = "ORCHESTRATOR_RAISE_FAULTS"
"""With this variable in the environment `answered` hides no fault; the tests set it."""

_INSTEAD: Final = "use 'api_key_env', or 'headers' and 'query' with {env: NAME}"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS: Final = re.compile(
    r"(?:accept|content|proxy|sec|transfer)-.*|accept|connection|cookie2|expect|host|keep-alive|te"
    r"|trailer|upgrade",
    re.IGNORECASE,
)
_SPELLED: Final = {"authorization": "Authorization", "user-agent": "User-Agent"}
_ROUTE: Final = re.compile(r"/(?:(?:chat/)?completions|responses|messages)/*$")
_NO_URL: Final = "must be a URL such as http://127.0.0.1:8000"
# A name as it is looked up, or an address of IPv6.
_HOST: Final = re.compile(r"[\w.-]+|[\da-f:.]+(?:%[\w.-]+)?", re.ASCII)
_PRIVATE_DOMAINS: Final = (".localhost", ".local", ".internal", ".home.arpa")
# Not an address in one of the forms that resolvers read as one, such as 2130706433 or 0x7f000001.
_BARE_NAME: Final = re.compile(r"(?!0x)(?=[0-9_-]*[a-z])[a-z0-9_-]+")
_SHARED_SPACE: Final = ipaddress.ip_network("100.64.0.0/10")

_log = logging.getLogger(__name__)


async def answered(call: Awaitable[T]) -> T | Failure:
    """Await a reply of a back-end; turn an unexpected exception into a failure.

    Back-ends return failures as values, whatever a server sends. This is the one boundary behind
    that promise: a fault in a decoder costs the request that met it, not the run. The failure is
    transient, so the next call of the command asks again.
    """
    try:
        return await call
    except OrchestratorError:
        raise
    except Exception as error:  # the boundary
        if RAISE_FAULTS in os.environ:
            raise
        # What it says may hold anything that a server sent.
        frames = extract_tb(error.__traceback__)
        where = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        said = f"the reply can't be read: {type(error).__name__}{where}"
        _log.warning("%s; please report this fault, or mend it where the code is yours", said)
        return Failure("unparseable", said)


def verified(found: T, kind: type) -> T:
    """Return what a back-end returned; a `PluginError` if it is neither that nor a failure."""
    if not isinstance(found, (Failure, kind)):
        said = f"{type(found).__name__}, not {kind.__name__} or Failure"
        raise PluginError(f"a back-end returned {said}")
    return found


def base_url_fault(base_url: str) -> str:
    """Return why a text can't be the address of a server; empty if it can.

    The text may hold a key, so the reason does not repeat it.

    Args:
        base_url: Such as http://127.0.0.1:8000.
    """
    try:
        parts = urlsplit(base_url)
        is_host = _HOST.fullmatch((parts.hostname or "").encode("idna").decode())
        is_url = parts.scheme in {"http", "https"} and is_host and parts.port != 0
    except ValueError:
        return _NO_URL
    if parts.username or parts.password:
        return f"must not contain a user name or password; {_INSTEAD}"
    if not is_url or base_url != base_url.strip():
        return _NO_URL
    if parts.fragment:
        return "must not contain '#'"
    if route := _ROUTE.search(parts.path):
        return f"must end before {route[0]!r}; each request adds its route"
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    if any(PARAMETER.search(name) for name, _ in parameters):
        return f"must not contain a key behind '?'; {_INSTEAD}"
    return ""


def check_header(name: str, value: str = "x") -> str:
    """Return the name of a header that can be sent with every request.

    Raises:
        ValueError: If it can't; the reason does not repeat the value, which may be a secret.
    """
    if not _TOKEN.fullmatch(name):
        raise ValueError("the name of a header has letters, digits and '-' only")
    if _OURS.fullmatch(name):
        raise ValueError("this header is decided by each request and its transport")
    if not (value.isascii() and value.isprintable() and value == value.strip() != ""):
        raise ValueError("must be printable ASCII on one line")
    return name


def server_address(base_url: str) -> str:
    """The server's own address: without a trailing slash and `/v1`, with its query."""
    address, query = split_query(base_url)
    return address.removesuffix("/v1").rstrip("/") + query


def split_query(base_url: str) -> tuple[str, str]:
    """The address, without a trailing slash, and the query with its `?`: a route goes between."""
    address, mark, query = base_url.partition("?")
    return address.rstrip("/"), mark + query


def with_query(base_url: str, more: Mapping[str, str]) -> str:
    """The address with more parameters in its query."""
    if not more:
        return base_url
    address, query = split_query(base_url)
    return f"{address}{query}{'&' if query else '?'}{urlencode(more, quote_via=quote)}"


def is_private(base_url: str) -> bool:
    """Return True if a URL, by itself, names this machine or a private network.

    These are addresses that the internet does not route (RFC 1918, 4193, 6598 and others), names
    under domains that no public name can have (RFC 6761, 6762, 8375 and ICANN's `internal`), and
    names without a dot, such as `gpu-node-07`: those come from this network's own list of hosts or
    search domain.
    """
    host = (urlsplit(base_url).hostname or "").lower()
    if host.removesuffix(".").endswith(_PRIVATE_DOMAINS) or _BARE_NAME.fullmatch(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    # The space that carriers and overlay networks share is private in neither direction for Python.
    is_shared = isinstance(address, ipaddress.IPv4Address) and address in _SHARED_SPACE
    return address.is_private or is_shared


class Batch(Settings):
    """Requests in files of many, which an endpoint answers within a day at a lower price."""

    most: int = Field(10_000, ge=1, le=50_000)
    """Most requests of a file, and of the model at a time."""
    wait_s: float = Field(10.0, gt=0)
    """Time without a further request after which a file is sent, in seconds."""
    poll_s: float = Field(60.0, gt=0)
    """Time between two looks at a batch, in seconds."""
    price: float = Field(0.5, ge=0, le=1)
    """Price of a request in a batch, as a share of the model's `price`."""
    folder: str | None = Field(None, min_length=1)
    """Folder (relative to the recipe) to write files of requests NAME.jsonl to and to read
    NAME.replies.jsonl from, as `vllm run-batch` writes them; with `base_url: local`."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one served model, with limits and credentials.

    Attributes:
        base_url: Without a trailing slash and without `/v1`; a query goes behind every route.
        model: Name under which the server knows it.
        api_key: Secret, never written anywhere; empty for none. Left out of repr.
        headers: Sent with every request; one that shows a key otherwise goes before ours.
        query: Secret parameters that are sent behind every route; others stand in `base_url`.
        hidden: The secrets among the values of both, one a line.
        ca_file: Certificates (PEM) that are trusted beside the system's; empty for none.
        extra_body: Fields added to every request that draws a text or holds a conversation.
        batch: Settings of batches; None where each request is sent by itself.
        kept_in: Folder of this model for what outlives a call, such as where batches are.
        timeout_s: Total deadline of one attempt.
        max_in_flight: How many connections may be open.
        plain: Whether the model is a base model, asked by plain text without a chat template.
        thinking_end: What stands between thinking and answer of a reasoning model; empty for none.
    """

    base_url: str
    model: str
    api_key: str = ""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    hidden: str = ""
    ca_file: str = ""
    extra_body: Mapping[str, Any] = {}
    batch: Batch | None = None
    kept_in: str = ""
    timeout_s: float = 600.0
    max_in_flight: int = 64
    plain: bool = False
    thinking_end: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.model!r})"

    @property
    def secret(self) -> str:
        """The key and all that is hidden, one a line; no text may repeat them."""
        return "\n".join(filter(None, (self.api_key, self.hidden)))

    def key_headers(self) -> dict[str, str]:
        """Return headers for requests to this address and to no proxy: its own and its key's."""
        shown = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        # Azure's routes with a date for a version read a key in a header of their own.
        if self.api_key and "api-version=" in split_query(self.base_url)[1]:
            shown["api-key"] = self.api_key
        # In one spelling, so that no library sends its own besides.
        own = {_SPELLED.get(name.lower(), name): value for name, value in self.headers.items()}
        others = {name.lower() for name in own}
        return {name: shown[name] for name in shown if name.lower() not in others} | own


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of a kind of server.

    Attributes:
        generate: Texts with chosen-token log-probabilities.
        score: Teacher-forced log-probabilities of given ids.
        choose: Label probabilities: "exact" for any label, "top" where labels must show up among
            the top log-probabilities of one token, "none".
        features: What it can observe in a scoring pass, of `records.FEATURES`.
        similarity: Comparing texts.
        plain_choose: Label probabilities after plain text, of a base model.
        choose_begun: Label probabilities behind a begun answer.
        reward: Rating conversations, where the model is a reward model.
    """

    generate: bool = True
    score: bool = False
    choose: str = "none"
    features: frozenset[str] = frozenset()
    similarity: bool = False
    plain_choose: bool = False
    choose_begun: bool = True
    reward: bool = False


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The server behind an outcome: stored with outcomes, compared when a run resumes."""

    backend: str
    base_url: str
    model: str
    version: str = ""
    fingerprint: str = ""


NOT_OFFERED: Final = unsupported("this kind of back-end does not offer that")
_RATES_NONE: Final = unsupported(
    "this kind of server can't rate answers by a reward model; vLLM, SGLang and the embedded "
    "server can: say `backend: vllm` (or sglang, embedded)"
)


class Asked:
    """A client of one model; what it does not offer is a permanent failure."""

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:  # noqa: ARG002
        """Draw a text; `seed` is sent where the server honours seeds."""
        return NOT_OFFERED

    async def score(self, ask: ScoreAsk) -> Scored | Failure:  # noqa: ARG002 (a default)
        """Teacher-force the ids of `ask`."""
        return NOT_OFFERED

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:  # noqa: ARG002 (a default)
        """Read label probabilities."""
        return NOT_OFFERED

    async def similarity(self, ask: SimilarityAsk) -> PairScores | Failure:  # noqa: ARG002
        """Compare every ordered pair of texts."""
        return NOT_OFFERED

    async def reward(self, ask: RewardAsk) -> Rewards | Failure:  # noqa: ARG002 (a default)
        """Rate a conversation by a reward model."""
        return _RATES_NONE


class Backend(Asked, ABC):
    """A connection to one served model.

    Attributes:
        defers: True if answers come hours later, so that a run can stop meanwhile: what is in
            flight then is asked for again by its next call.
        renamed: Called, on the event loop, when replies, if they name what answered, are of another
            model or fingerprint than before.
        asked_again: Called so when it sends a request once more by itself, in another way.
    """

    defers = False
    renamed: Callable[[], None]
    asked_again: Callable[[], None]

    @abstractmethod
    async def provenance(self) -> Provenance | Failure:
        """Ask the server what it is; also serves as its health check."""

    def for_request(self, request: Request) -> Asked:  # noqa: ARG002 (for those that share out)
        """Return the client for a request; over several servers one of them is chosen for it."""
        return self

    async def load(self) -> ServerLoad | None:
        """Load figures, or None where the server publishes none."""
        return None

    async def spell(self, ids: Sequence[int]) -> Mapping[int, bytes] | Failure:  # noqa: ARG002
        """Return the bytes of tokens by id, as far as they are known; special ones by their names.

        Bytes that a server can't tell are those of U+FFFD. The texts are written down once in the
        run, so that its tokens can be read without the server.
        """
        return NOT_OFFERED

    async def rendered(
        self,
        messages: Messages,  # noqa: ARG002 (a default)
    ) -> tuple[tuple[int, ...], str | None] | Failure:
        """Return the ids of a prompt, the opening of the assistant's turn included, and its text.

        The text is None where the server does not turn ids into text. Probes look at both.
        """
        return NOT_OFFERED

    async def withdraw(self) -> None:
        """Have nothing more answered; return when what was answered until then has come."""

    async def close(self) -> None:
        """Close connections."""


Call = Callable[[Backend], Awaitable[T | Failure]]
"""Asks a server."""


class Client(Asked, ABC):
    """Asks by `send`."""

    @abstractmethod
    async def send(self, call: Call[T]) -> T | Failure:
        """Return the outcome from one of the servers."""

    async def generate(self, ask: GenerateAsk, seed: int) -> Generation | Failure:
        """See `Asked`."""
        return await self.send(lambda backend: backend.generate(ask, seed))

    async def score(self, ask: ScoreAsk) -> Scored | Failure:
        """See `Asked`."""
        return await self.send(lambda backend: backend.score(ask))

    async def choose(self, ask: ChooseAsk) -> Choice | Failure:
        """See `Asked`."""
        return await self.send(lambda backend: backend.choose(ask))

    async def reward(self, ask: RewardAsk) -> Rewards | Failure:
        """See `Asked`."""
        return await self.send(lambda backend: backend.reward(ask))


class BackendKind(Plugin[ConfigT], ABC):
    """A kind of back-end: how servers of one kind are spoken to.

    The type in brackets is the model of the connection's settings, at `backend:` in a recipe.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Features of such a server with these settings; a class attribute if none matters."""
        return Capabilities()

    @abstractmethod
    def connect(self, endpoint: Endpoint) -> Backend:
        """Make a connection to one model; nothing is sent yet.

        Raises:
            UsageError: If the base URL or the key can't be used.
        """


class ComparerKind(BackendKind[ConfigT]):
    """A kind of back-end that compares texts on this machine, without a server."""

    @property
    def capabilities(self) -> Capabilities:
        """Comparing texts, and nothing else."""
        return Capabilities(generate=False, similarity=True)

    @abstractmethod
    def identity(self, base: Path) -> Mapping[str, str]:
        """Tell what decides the numbers, without loading anything.

        Args:
            base: Folder that relative paths in the settings start from.

        Raises:
            UsageError: If something that it needs is not installed, or is not there.
        """

    def located(self, base: Path) -> Self:  # noqa: ARG002 (for kinds whose settings hold paths)
        """Return the same with paths in its settings made absolute."""
        return self
