"""Settings of the sections of a recipe: answers, clusters, what follows a run, reuse, plug-ins."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from orchestrator import plugins
from orchestrator.backend import check_header
from orchestrator.contracts.method import Method, MethodSettings
from orchestrator.errors import Fault, RecipeError
from orchestrator.plugins.base import Settings
from orchestrator.secrets import is_secret


class GivenAnswers(Settings):
    """Answers that exist already, in a file or in a column of the dataset."""

    path: str | None = Field(None, min_length=1)
    """A file of answers, relative to the recipe: JSON Lines, JSON, CSV or Parquet, in one of the
    forms that docs/datasets.md lists."""
    rows: str | None = Field(None, min_length=1)
    """Path of the list of answers in a JSON file, such as `results.items`, if it cannot be told."""
    generator: str | None = None
    """Name of the model, if the file holds answers of several."""
    key: str | None = Field(None, min_length=1)
    """Column of item keys. Default: found by the usual names."""
    prompt: str | None = Field(None, min_length=1)
    """Column of prompts, for a file without keys."""
    text: str | None = Field(None, min_length=1)
    """Column of answers; a text, or a list with one for each turn."""
    field: str | None = Field(None, min_length=1)
    """A column of the dataset instead of a file: labelled pairs."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.path is None) == (self.field is None):
            raise ValueError("give either 'path' (a file) or 'field' (a column of the dataset)")
        of_file = [
            name for name in ("generator", "key", "prompt", "text", "rows") if getattr(self, name)
        ]
        if self.field is not None and of_file:
            raise ValueError(f"{of_file[0]!r} can be used only with 'path', not with 'field'")
        return self


Count = Annotated[int, Field(ge=1)]
Words = tuple[Annotated[str, Field(min_length=1)], ...]
Option = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]*[mhd]$")]

_BYTES: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
# Options of srun and sbatch that choose resources and priorities; they run and write nothing.
_HARMLESS: Final = frozenset((
    "account", "clusters", "comment", "constraint", "exclude", "exclusive", "gpu-bind",
    "gpus-per-node", "hint", "licenses", "mail-type", "mem-per-cpu", "mem-per-gpu", "network",
    "nice", "nodelist", "partition", "priority", "qos", "reservation", "switches", "wckey",
))  # fmt: skip
# They are decided elsewhere in the section, or by this program.
_OURS: Final = frozenset((
    "array", "batch", "chdir", "cpus-per-task", "dependency", "error", "exact", "export", "gpus",
    "gres", "immediate", "input", "job-name", "jobid", "label", "mem", "mpi", "multi-prog", "nodes",
    "ntasks", "output", "overlap", "pty", "requeue", "signal", "time", "unbuffered", "wait",
))  # fmt: skip


SHARED: Final = "shared"
"""Of `Cluster.jobs`."""


def minutes(duration: str) -> int:
    """Minutes of a duration such as 4h."""
    return int(duration[:-1]) * _MINUTES[duration[-1]]


class ServerSize(Settings):
    """Resources of one server on a cluster, which its step, job or actor asks for."""

    cpus: Count = 1
    """CPUs."""
    gpus: int = Field(0, ge=0)
    """GPUs of a node: as many as the server's tensor parallelism, where it has one node."""
    memory: str | None = Field(None, pattern=r"^[1-9][0-9]*[KMGT]$")
    """Memory, such as 32G. null shares what the job has on the node with other servers (Slurm), or
    asks for none (Ray)."""
    nodes: Count | None = None
    """Of a model: nodes that share it, each with these CPUs, GPUs and memory (vLLM and SGLang, on
    Slurm); default 1. Of the section: with `--submit`, nodes of the client's job, on which servers
    are steps, where by default it is small and servers are jobs of their own; with `--shards`,
    nodes of each shard's job, default 1."""

    def memory_bytes(self) -> int:
        """Return the memory in bytes; 0 where it is left open."""
        return 0 if self.memory is None else int(self.memory[:-1]) * _BYTES[self.memory[-1]]


class Cluster(ServerSize):
    """Resources of each launched server with `--on slurm` or `--on ray`, and of their jobs."""

    address: str | None = Field(None, min_length=1)
    """Address of the Ray cluster, such as 10.0.0.1:6379. null takes RAY_ADDRESS, or else the
    cluster of this machine."""

    autoscaling: bool = False
    """The Ray cluster adds nodes when servers wait for them. false: servers are planned on nodes
    that are there, in waves if not all fit together."""

    models: dict[str, ServerSize] = Field({})
    """Resources of the servers of single models, in place of those above."""
    jobs: bool | Literal["shared"] | None = None
    """Each server is a job of its own, rather than a step of the job that the command runs in.
    Default: outside a job. `shared`: none is started, and those of `orchestrator servers start`
    are used, on whatever machine the command runs."""
    partition: str | None = Field(None, min_length=1)
    """Partition of these jobs; null: the cluster's default."""
    time: Duration | None = None
    """Time limit of these jobs, such as 4h; null: the partition's default."""
    drain: Duration = "10m"
    """With `--submit` or `--shards`, how long before the time limit the client stops, to continue
    in another job. Slurm may begin up to a minute earlier."""
    options: dict[Option, str] = Field({})
    """Further options of srun and sbatch by their long names, such as `account`."""
    setup: Words = ()
    """Lines for bash on the node before a server starts, such as `module load cuda`."""
    container: Words = ()
    """Words before a server's command, such as `[apptainer, exec, --nv, vllm.sif]`."""
    python: str | None = Field(None, min_length=1)
    """Python on the nodes, 3.11 or newer; null: the one that runs this command, by its path."""

    @model_validator(mode="after")
    def _fits(self) -> "Cluster":
        ours = sorted(self.options.keys() & _OURS)
        if ours:
            raise ValueError(f"options: {ours[0]!r} is decided by the other settings of `cluster`")
        return self

    def size(self, models: tuple[str, ...]) -> ServerSize:
        """Return the resources of the server of these models: those of the first that has its own.

        Args:
            models: All models of the server.
        """
        own = (self.models[name] for name in models if name in self.models)
        return next(own, ServerSize(cpus=self.cpus, gpus=self.gpus, memory=self.memory))

    def programs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the settings that run something of the recipe's choice: where, and what it is."""
        for name in ("setup", "container", "python"):
            if getattr(self, name):
                yield (name,), f"{name}: a program of the recipe's choice"
        for name in sorted(self.options.keys() - _HARMLESS):
            yield ("options", name), f"options: srun's --{name}, which may run something,"


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _checked(value: object) -> object:
    if isinstance(value, str):
        return check_header("X", value) and value
    if isinstance(value, dict) and value.keys() == {"env"}:
        return value
    raise ValueError("must be text in quotes, or {env: NAME} for an environment variable's value")


Value = Annotated[str | dict[Literal["env"], VariableName], BeforeValidator(_checked)]
Sent = dict[str, Value]
"""Texts by name; a mapping `{env: NAME}` stands for the value of an environment variable."""
Headers = dict[Annotated[str, AfterValidator(check_header)], Value]


class OnEnd(Settings):
    """A command that is run when a call of `run` ends."""

    command: str = Field(min_length=1)
    """Command for `/bin/sh`. `ORCHESTRATOR_STATE` (complete, partial, interrupted or failed),
    `ORCHESTRATOR_RUN` and others in its environment have the result."""
    env_from: list[VariableName] = Field([])
    """Names of further environment variables that it gets, such as the address of a chat."""
    timeout_s: float = Field(60.0, gt=0)
    """Time after which it is stopped, in seconds."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if is_secret(self.command):
            raise ValueError(
                "command: it looks as if it holds a secret; set it in your environment and name "
                "the variable in `env_from`"
            )
        return self


class LogTo(Settings):
    """A tracker of experiments that gets the progress and the results of a run."""

    kind: Literal["mlflow", "trackio", "wandb"]
    """Tracker; each needs the extra of the same name. Of mlflow, MLFLOW_TRACKING_URI in your
    environment says where it is."""
    project: str | None = Field(None, min_length=1, max_length=100)
    """Project (experiment) of the tracker. Default: the recipe's name."""
    mode: Literal["online", "offline"] | None = None
    """wandb: offline writes to the run folder and sends nothing. Default: WANDB_MODE."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.mode is not None and self.kind != "wandb":
            raise ValueError(f"mode is a setting of wandb, not of {self.kind}")
        return self


@dataclass(frozen=True, slots=True)
class ReusedRun:
    """Another run, whose outcomes are copied where this one would ask the same.

    Attributes:
        path: Of its directory, absolute.
        said: As it is written in the recipe.
        place: Where it is written; the message is a prefix, `reuse.0: `.
    """

    path: str
    said: str
    place: Fault

    def error(self, message: str) -> RecipeError:
        """A fault of this entry, to be raised."""
        place = self.place
        return RecipeError([Fault(place.file, place.line, f"{place.message}{message}")])


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plug-in and its validated settings, of any family but that of methods."""

    kind: str
    config: Settings

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.config.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class MethodRef:
    """A method of a recipe, with its settings."""

    kind: str
    method: Method[MethodSettings]

    @property
    def name(self) -> str:
        """Its name in tables: the one that the recipe gives it, else its kind."""
        return self.method.name or plugins.label(self.kind)

    def resolved(self) -> dict[str, Any]:
        """Kind and settings as plain data."""
        return {"kind": self.kind, **self.method.config.model_dump(mode="json")}


_Money = Annotated[float, Field(ge=0)]


class Price(Settings):
    """Money per million tokens, in the currency that `budget.money` is in."""

    input: _Money = 0.0
    """Price per million prompt tokens."""
    output: _Money = 0.0
    """Price per million generated tokens."""

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the price of tokens."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6

    def times(self, share: float) -> "Price":
        """Return a share of this price."""
        return Price(input=share * self.input, output=share * self.output)


class Thinking(Settings):
    """The text format of a reasoning model: first its thinking, then the answer."""

    end: str = Field("</think>", min_length=1, max_length=100)
    """Text that ends the thinking. Not needed for servers that separate the thinking themselves."""
