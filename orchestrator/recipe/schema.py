"""Contents of a recipe file (`RecipeFile`), and the validated recipe (`Recipe`).

In a file the settings of methods, servers, back-ends and datasets are `Any`:
`orchestrator.recipe.load` validates each by the `Config` of its kind. The descriptions go to the
JSON Schema that editors read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from orchestrator.backend import Batch, is_private
from orchestrator.contracts.method import Method, MethodSettings
from orchestrator.errors import Fault, LaunchError, UsageError
from orchestrator.plugins.base import Settings
from orchestrator.recipe.settings import Cluster, GivenAnswers, Headers, LogTo, OnEnd, ReusedRun
from orchestrator.recipe.settings import MethodRef as MethodRef
from orchestrator.recipe.settings import PluginRef as PluginRef
from orchestrator.recipe.settings import Price as Price
from orchestrator.recipe.settings import Sent as Sent
from orchestrator.recipe.settings import Thinking as Thinking
from orchestrator.statistics.results import Thresholds
from orchestrator.wire.requests import check_names

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
# Neither white space nor slashes, nor what a terminal obeys or shows as nothing (ESC, bidi, BOM).
KEY_PATTERN = (
    r"^[^\s/\\\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+$"
)
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

Count = Annotated[int, Field(ge=1)]
SUBSET_PATTERN = (
    r"^((100(\.0+)?|[1-9][0-9]?(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)%|[1-9][0-9]{0,5}/[1-9][0-9]{0,5})$"
)
Amount = Annotated[float, Field(gt=0)]

# Of a file, what a recipe that is written down says of itself first, and all of it.
_HEAD: Final = ("description", "seed", "limit", "subset")
_RESOLVED: Final = {
    *_HEAD, "statistics", "limits", "budget", "window", "resources", "probe", "gates",
}  # fmt: skip
_IF_GIVEN: Final = {"subset", "gates"}

DEFAULT_IN_FLIGHT = 64
"""Requests that a server has at a time where nobody says how many."""


class Limits(Settings):
    """Limits on the load of a model's server."""

    max_in_flight: Count | Literal["auto"] | None = None
    """Most requests at a time of each server. auto: found while the run goes on. Left out: auto for
    servers that are launched or on a private network, 64 for others."""
    requests_per_minute: Amount | None = None
    """Rate limit of the endpoint; null for none."""
    timeout_s: Amount = 600.0
    """Timeout of one attempt, in seconds."""
    max_attempts: Count = 5
    """Number of attempts before a transient failure is final for this call."""
    dead_after_s: Amount | None = None
    """Maximum time that a server may be out of reach, or refuse everything as busy or not ready,
    before its requests fail, in seconds. Left out: 30 for a server that was never there, 600 for
    one that was, or says that it is not ready."""
    silent_after_s: Amount = 30.0
    """Time without an end of any of its requests after which a server is taken for silent, in
    seconds, and never less than three times the longest answer took. Where others of the model
    answer meanwhile, they are sent its requests too."""


_OR_BOOL: Final = BeforeValidator(
    lambda value: ({} if value else None) if isinstance(value, bool) else value
)


class ModelEntry(Settings):
    """A model: launched (`server`, `weights`), reached at `base_url`, or its `answers` alone."""

    server: Any = None
    """Kind of server to launch: its name, or a mapping of `kind` and its settings."""
    weights: str | None = Field(None, min_length=1)
    """Weights to serve: a folder or a GGUF file (relative to the recipe), a hub id,
    `package:MODULE/FILE.gguf` of an installed package, or `bundled:NAME`."""
    replicas: Count = 1
    """Servers of this model to launch, as many as there is room for; each has `max_in_flight`
    requests at a time, and an item's requests stay on one of them while the load is even."""
    min_servers: Count = 1
    """Servers that must be ready before this model is asked, where there are `replicas` or several
    addresses; the others take their share as soon as they are."""
    base_url: list[str] | None = None
    """Address of a running server or hosted endpoint, as its provider prints it: with /v1 or
    without, with a path or a query of its own. Several that serve the same model share its
    requests."""
    answers: GivenAnswers | None = None
    """Answers that exist already, instead of a model that is asked: a file, or a mapping. They are
    judged, scored by other models and rated like those of a model that is served."""
    backend: Any = None
    """Protocol of the server: a kind, or a mapping of `kind` and the kind's settings. Left out,
    a server at `base_url` is asked for its kind (with `probe: false` it is taken for openai)."""
    model: str | None = Field(None, min_length=1)
    """Name of the model on the server. Default: its name in this recipe."""
    api_key_env: str | None = Field(None, pattern=VARIABLE_PATTERN)
    """Environment variable that holds the API key. Never write the key itself in a recipe."""
    headers: Headers = Field({})
    """Headers sent with every request, such as `{X-Team: evals, X-Api-Key: {env: MY_KEY}}`.
    `{env: NAME}` is the value of an environment variable, a secret like the API key."""
    query: Sent = Field({})
    """Parameters sent in the query of every address, written as `headers` are."""
    extra_body: Annotated[dict[str, Any], AfterValidator(check_names)] = Field({})
    """Fields added to every request that draws a text or holds a conversation, such as
    `chat_template_kwargs: {enable_thinking: false}`."""
    ca_file: str | None = Field(None, min_length=1)
    """Certificates (PEM, relative to the recipe) to trust beside the system's, for a server whose
    certificate a private authority signed."""
    system: str | None = None
    """System prompt put before every conversation of this model."""
    template: Literal["chat", "none"] = "chat"
    """Set to none for a base model: send the prompt as plain text, without the chat template."""
    thinking: Thinking | None = None
    """For a reasoning model: text up to `end` is thinking and not part of the answer."""
    limits: Limits = Limits()
    """Overrides of the recipe's `limits` for this model."""
    price: Price | None = None
    """Price for estimates and `budget.money`. Default: unknown."""
    batch: Annotated[Batch | None, _OR_BOOL] = None
    """Ask in batches, at a lower price: true, or a mapping. For endpoints with OpenAI's Batch API,
    and for programs such as `vllm run-batch`; answers take up to a day."""

    @field_validator("base_url", "answers", mode="before")
    @classmethod
    def _written_out(cls, value: object, info: ValidationInfo) -> object:
        is_address = info.field_name == "base_url"
        if isinstance(value, str):
            return [value] if is_address else {"path": value}
        if is_address and not (value is None or isinstance(value, list)):
            raise ValueError("must be an address, or a list of several")
        return value


class StopWhen(Settings):
    """Rule for early stopping: ask no more about two models once their order is settled."""

    block: Count = 20
    """Prompts of a block, and more where its last cluster goes on; orders are looked at after each.
    What is known then decides what is asked from the block after the next on, so that servers stay
    busy."""
    population: Literal["source", "dataset"] = "source"
    """source: the order on prompts like these, of which the dataset (its clusters, where it names
    any) is a sample. dataset: the order on exactly these prompts, of which those asked so far are a
    sample."""
    top: Count | None = None
    """Settle only which models are among this many best; null settles the order of every pair."""


class StatisticsSettings(Settings):
    """Settings of intervals and tests."""

    confidence_level: float = Field(0.95, gt=0, lt=1)
    """Confidence level of every interval."""
    n_resamples: int = Field(2000, ge=1, le=1_000_000)
    """Number of resamples of every bootstrap; more would change no digit that is shown."""
    of: list[Any] = Field([])
    """Numbers for each model, of columns of the rows, also of a finished run; each entry has a
    `kind`, a `method` and a `column`."""
    style_control: bool = True
    """Show Bradley-Terry ratings also at equal length and Markdown of the answers."""
    trust: Thresholds = Thresholds()
    """From when on the report says that there is no ranking, because of the judge."""
    stop_when: StopWhen | None = None
    """Ask in blocks of prompts, and no more about pairs whose order is settled at the
    `confidence_level`, all pairs together and however often one looks; null asks everything."""


class Budget(Settings):
    """Bounds on all calls of a run together; null for none. What is in flight is reserved."""

    requests: Count | None = None
    """Maximum number of requests."""
    tokens: Count | None = None
    """Maximum number of prompt and generated tokens, as servers report them."""
    money: Annotated[float, Field(ge=0)] | None = None
    """Maximum cost, in the currency of the models' `price`; failed attempts report no tokens "
    "and are not counted."""
    hours: Amount | None = None
    """Maximum wall-clock hours of all calls together."""


DEFAULT_UNITS = 2000
"""Units that may be open where a recipe does not say how many, and servers do not take more."""


class Window(Settings):
    """Bounds on what is open at the same time, so that memory does not grow with the run."""

    units: Count | None = None
    """Open units, an equal share for each model that is asked: no model has more requests in flight
    than its units ask. Left out: 2000, and more where servers take more requests at a time."""
    megabytes: Amount = 64.0
    """Maximum memory of open units, including their texts."""


class Resources(Settings):
    """Resources of this machine that launched servers may take."""

    max_servers: Count | None = None
    """Most server processes at a time; where there are more, they run in waves. null for no
    bound."""
    gpus: list[Amount] | None = None
    """Memory of each GPU in GiB, to plan for another machine; null for the GPUs that are here. An
    empty list leaves the GPUs alone."""


class RecipeFile(Settings):
    """A recipe: which models, asked what, judged how."""

    name: str | None = Field(None, pattern=NAME_PATTERN, max_length=100)
    """Name of the run directory. Default: the name of the file."""
    description: str = ""
    """Purpose of the recipe, in a line or two."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of sampled texts and bootstraps."""
    limit: Count | None = None
    """Use only this many items from the start."""
    subset: Count | Annotated[str, Field(pattern=SUBSET_PATTERN)] | None = None
    """Use only a random part of the items: a number of them, or a share such as 10%, or a shard
    such as 2/8, the second of eight parts that hold all items together. It is drawn by the `seed`,
    in whole clusters, and a larger number or share holds every item of a smaller one."""
    defaults: dict[Literal["models", "methods"], dict[str, Any]] = Field(default_factory=dict)
    """Settings that are written into every model and every method unless it says otherwise. Blocks
    for YAML anchors stand under names that begin with `x-`."""
    models: dict[Annotated[str, Field(pattern=KEY_PATTERN, max_length=100)], ModelEntry] = Field(
        min_length=1
    )
    """Models, each under a name of your choice for tables and methods."""
    dataset: Any
    """Source of the items."""
    methods: list[Any] = Field(min_length=1)
    """Methods to run over the items; each entry has a `kind` and the kind's settings."""
    analyses: list[Any] = Field([])
    """Analyses of the rows, also of a finished run; each entry has a `kind`."""
    gates: list[str] = Field([])
    """Requirements that the run is held against at its end, such as "large > medium", and by
    `orchestrator gate`; `docs/how_to/gate_in_ci.md` has the grammar and the exit codes."""
    reuse: list[str] = Field([])
    """Other runs (their folders, relative to the recipe), read only: what they were answered is
    copied instead of asked."""
    statistics: StatisticsSettings = StatisticsSettings()
    limits: Limits = Limits()
    """Limits of every model without its own."""
    budget: Budget = Budget()
    window: Window = Window()
    resources: Resources = Resources()
    cluster: Cluster = Cluster()
    """Resources of each launched server with `--on slurm` or `--on ray`."""
    probe: bool = True
    """Ask each server what it really does before its first request (some 50 small requests, and 16
    when the run goes on), refuse methods that it can't run, and notice when it is replaced."""

    on_end: OnEnd | None = None
    """Command to run when a call ends: text, or a mapping with `env_from` and `timeout_s`. Needs
    `--allow-code`."""
    log_to: list[LogTo] = Field([])
    """Trackers of experiments that get progress and results: `wandb`, `mlflow` or `trackio`, or
    mappings with `kind` and its settings."""

    @field_validator("on_end", "log_to", mode="before")
    @classmethod
    def _written_out(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name == "on_end":
            return {"command": value} if isinstance(value, str) else value
        entries = value if isinstance(value, list) else [value]
        return [{"kind": entry} if isinstance(entry, str) else entry for entry in entries]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model with everything filled in; one of `server`, `base_url` and `answers` is there.

    Attributes:
        name: In the recipe.
        server: What launches it.
        weights: An absolute folder or file, a hub id, `package:MODULE/FILE.gguf` or
            `bundled:NAME`; None with `base_url`.
        base_url: Without a trailing slash and without `/v1`.
        backend: Kind of back-end.
        backend_config: Its settings; None where none are given for a launched server.
        model: The endpoint's name for it; `name` where launched.
        entry: The rest of its entry in the file; the parts that stand here are empty in it.
        limits: The recipe's limits with this model's own over them.
        price: Unknown where None.
        answers: What it said, where it can't be asked; a path is absolute.
        base_urls: All addresses, where there are several; `base_url` is the first.
        finds_backend: True where the server is to be asked which kind it is.
    """

    name: str
    server: PluginRef | None
    weights: str | None
    base_url: str | None
    backend: str
    backend_config: Settings | None
    model: str
    entry: ModelEntry
    limits: Limits
    price: Price | None
    answers: GivenAnswers | None = None
    base_urls: tuple[str, ...] = ()
    finds_backend: bool = False

    @property
    def variables(self) -> list[str]:
        """The environment variables that its server's key, headers and query come from."""
        said = (*self.entry.headers.values(), *self.entry.query.values())
        named = [self.entry.api_key_env, *(one["env"] for one in said if isinstance(one, dict))]
        return [name for name in named if name is not None]

    @property
    def plain(self) -> bool:
        """True if it is asked by plain text, without a chat template."""
        return self.entry.template == "none"

    @property
    def thinking_end(self) -> str:
        """The text between its thinking and its answer; empty where it thinks not."""
        return self.entry.thinking.end if self.entry.thinking else ""

    @property
    def is_adaptive(self) -> bool:
        """True if its limit is found while the run goes on."""
        asked = self.limits.max_in_flight
        if self.entry.batch is not None:
            return False
        if asked is not None or self.answers is not None:
            return asked == "auto"
        urls = self.base_urls or (self.base_url or "",)
        return self.server is not None or all(map(is_private, urls))

    @property
    def max_in_flight(self) -> int:
        """Requests that each of its servers may have at a time, at first where that changes."""
        asked = self.limits.max_in_flight
        if isinstance(asked, int):
            return asked
        return DEFAULT_IN_FLIGHT if self.entry.batch is None else self.entry.batch.most

    @property
    def paid(self) -> Price | None:
        """The price that is paid: a share of `price` where it is asked in batches."""
        batch = self.entry.batch
        return self.price if self.price is None or batch is None else self.price.times(batch.price)

    def resolved(self) -> dict[str, Any]:
        """The entry of a recipe file that leads to this model."""
        if self.answers is not None:
            return {"answers": self.answers.model_dump(mode="json", exclude_none=True)}
        said = None if self.finds_backend else self.backend_config
        backend = said and PluginRef(self.backend, said).resolved()
        entry = self.entry
        own = {"thinking", "batch"}
        rest = entry.model_dump(mode="json", exclude_defaults=True, exclude=own)
        data = {
            "server": self.server and self.server.resolved(),
            "weights": self.weights,
            "base_url": list(self.base_urls) or self.base_url,
            "backend": backend,
            "model": self.model if self.server is None else None,
            **rest,
            "thinking": entry.thinking and entry.thinking.model_dump(),
            "limits": self.limits.model_dump(mode="json"),
            "price": self.price and self.price.model_dump(mode="json"),
            "batch": entry.batch and entry.batch.model_dump(mode="json", exclude_none=True),
        }
        return {key: value for key, value in data.items() if value is not None}


def shard_name(run: str, part: object, n: int) -> str:
    """Return the name of a shard's run directory: that of the whole run, and which part it is."""
    return f"{run}.shard-{part}-of-{n}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A loaded recipe: everything validated and filled in.

    Attributes:
        settings: The rest of the file, with the `limit` and the statistics that are used; the
            parts that stand below are empty in it.
        name: Of the run directory.
        models: By name, in the recipe's order.
        dataset: Source of the items; a `path` among its settings is absolute.
        methods: In the recipe's order.
        analyses: In the recipe's order.
        reuse: Runs to copy outcomes from, in the order they are asked.
        file: The recipe file, as it was named.
        fault: The fault of a path of keys, where it is written.
    """

    settings: RecipeFile
    name: str
    models: Mapping[str, ModelSpec]
    dataset: PluginRef
    methods: tuple[MethodRef, ...]
    analyses: tuple[PluginRef, ...]
    reuse: tuple[ReusedRun, ...]
    file: str
    fault: Callable[[tuple[str | int, ...], str], Fault] = field(repr=False, compare=False)

    @contextmanager
    def at(self, *path: str) -> Iterator[None]:
        """Say of an error inside where in the recipe the setting stands that it is about."""
        try:
            yield
        except (LaunchError, UsageError) as error:
            raise type(error)(str(self.fault(path, f"{'.'.join(path)}: {error}"))) from error

    @property
    def shard(self) -> tuple[int, int] | None:
        """Which shard of how many is run; None for all items, or a subset of another kind."""
        part, is_shard, n = str(self.settings.subset).partition("/")
        return (int(part), int(n)) if is_shard else None

    @property
    def run_name(self) -> str:
        """Name of the run directory in runs/: the recipe's, and of a shard which one it is."""
        return self.name if self.shard is None else shard_name(self.name, *self.shard)

    def candidates(self, method: Method[MethodSettings]) -> tuple[str, ...]:
        """The models that a method evaluates: those it names, else all that nowhere judge."""
        if method.candidates is not None:
            return method.candidates
        judges = {name for other in self.methods for name in other.method.judges}
        return tuple(name for name in self.models if name not in judges)

    def resolved(self) -> dict[str, Any]:
        """Plain data of a recipe file that loads to this recipe; holds no secrets."""
        # Nor `reuse`: what was copied is in the store, and those runs may be gone. Nor `on_end`,
        # `log_to` and `cluster`, which change no number. Some only where they are given, so that
        # the recipes of older runs read as they did.
        said = self.settings.model_dump(mode="json", include=_RESOLVED)
        kept = {key: value for key, value in said.items() if value or key not in _IF_GIVEN}
        return {
            "name": self.name,
            **{key: kept.pop(key) for key in _HEAD if key in kept},
            "models": {name: spec.resolved() for name, spec in self.models.items()},
            "dataset": self.dataset.resolved(),
            "methods": [method.resolved() for method in self.methods],
            "analyses": [analysis.resolved() for analysis in self.analyses],
            **kept,
        }
