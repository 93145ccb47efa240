"""What kinds that launch servers of other projects have in common.

Their settings, the process that is started from them, the memory that placement plans with, and the
settings by which a recipe would have this machine run code of its own. A recipe may come from
somebody else. Naming one of our kinds runs a program that the user installed; another program, a
variable that loads code into it, or an argument that does, needs the permission that code beside a
recipe needs (`--allow-code`).
"""

import json
import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

import msgspec
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from launch import _memory, _spec, _weights
from launch._spec import KEY_VARIABLE, ServerSpec
from launch._starting import CARRIED, start_server
from orchestrator.errors import LaunchError
from orchestrator.plugins.base import Settings
from orchestrator.serving import Footprint, LaunchKind, Program, RunningServer, ServedModel

SAFE_VARIABLES: Final = frozenset({
    "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "HF_HUB_OFFLINE",
    "HIP_VISIBLE_DEVICES", "LANG", "LC_ALL", "MKL_NUM_THREADS", "NCCL_DEBUG", "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_OFFLINE", "TZ",
    "VLLM_ATTENTION_BACKEND", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_LOGGING_LEVEL",
    "VLLM_USE_V1", "VLLM_WORKER_MULTIPROC_METHOD",
})  # fmt: skip
"""Environment variables that change how a server runs, but load no code into it."""


_STOP_GRACE_S: Final = 20.0
_COPIES: Final = frozenset({"--data-parallel-size", "-dp", "--dp", "--dp-size"})
"""Arguments by which a server holds several copies of its model."""
_STAGES: Final = re.compile(r"(?:--pipeline-parallel-size|-pp|--pp-size)[ =](\d+)")
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PathSetting = Annotated[str, StringConstraints(min_length=1), AfterValidator(_spec.in_folder)]
"""A path that may start from the recipe's folder."""
ProgramSetting = Annotated[
    str, StringConstraints(min_length=1), AfterValidator(_spec.program_in_folder)
]
"""A program: a name, or such a path."""


class ForeignConfig(Settings):
    """Settings of a server of another project.

    Attributes:
        own_arguments: Names of arguments that this program sets itself.
        own_variables: Names of environment variables that it sets itself.
        spoiling: Patterns of arguments that spoil numbers, each with what it does.
    """

    own_arguments: ClassVar[frozenset[str]]
    own_variables: ClassVar[frozenset[str]]
    spoiling: ClassVar[tuple[tuple[str, str], ...]] = ()

    gpus: tuple[int, ...] | None = Field(None, min_length=1)
    """Indices of the visible GPUs; null: all."""
    extra_args: tuple[str, ...] = ()
    """Further arguments of the server."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables; no secrets."""
    env_from: tuple[_Name, ...] = Field(
        (),
        description="Names of variables of your environment to pass to the server, such as "
        "HF_TOKEN; their values are not stored.",
    )
    start_timeout_s: float = Field(900.0, gt=0)
    """Time from start to ready, including loading and compiling, in seconds."""

    @model_validator(mode="after")
    def _leave_alone_what_is_ours(self) -> Self:
        names = [argument.partition("=")[0] for argument in self.extra_args]
        for name in names:
            if name in self.own_arguments:
                raise ValueError(f"extra_args: {name} is set by this program")
        for setting, given in (("env", self.env), ("env_from", self.env_from)):
            if ours := sorted(self.own_variables & set(given)):
                raise ValueError(f"{setting}: {', '.join(ours)} is set by this program")
        _spec.refuse_secrets(self.env, self.extra_args)
        for name in names:
            for pattern, said in self.spoiling:
                if re.fullmatch(pattern, name):
                    raise ValueError(f"extra_args: {said}")
        return self

    @property
    def names_its_gpus(self) -> bool:
        """True if the recipe names the GPUs of the server, so that placement leaves it alone."""
        return self.gpus is not None or _spec.CUDA in self.env

    def identity(self) -> dict[str, str]:
        """Return what may decide the numbers of every kind: arguments and variables."""
        found = {}
        if self.extra_args:
            found["extra_args"] = json.dumps(self.extra_args)
        if self.env:
            found["env"] = json.dumps(self.env, sort_keys=True)
        return found


class FolderConfig(ForeignConfig):
    """Settings of a server of model folders."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and activations; auto: the model's own."""
    quantization: str | None = Field(None, min_length=1)
    """Quantisation of weights, as the server names it."""
    tensor_parallel_size: int = Field(1, ge=1)
    """Number of GPUs that share one model."""


C = TypeVar("C", bound=ForeignConfig, covariant=True)
F = TypeVar("F", bound=FolderConfig, covariant=True)


class ForeignLaunch(LaunchKind[C]):
    """Starts servers of another project, one process a model.

    Attributes:
        argv: Makes the command line from settings, program, model, port and address.
        own_env: Variables that each server gets, beside its key and those of its settings.
        key_variable: The variable by which the server takes its key.
        program_setting: Name of the setting with the program to run.
        program: The usual one, which needs no permission.
        own_program: Where a set-up of ours puts it, below the project; None for nowhere.
        advice: How to get the program.
        safe_arguments: Names of further arguments that load no code and write no file.
    """

    carried = CARRIED
    argv: ClassVar[Callable[..., tuple[str, ...]]]
    own_env: ClassVar[Mapping[str, str]]
    key_variable: ClassVar[str] = KEY_VARIABLE
    program_setting: ClassVar[str] = "command"
    program: ClassVar[str]
    own_program: ClassVar[Path | None] = None
    advice: ClassVar[str]
    safe_arguments: ClassVar[frozenset[str]]

    async def start(self, models: tuple[ServedModel, ...], log_path: Path) -> RunningServer:
        """A server for the only one of `models` that is ready to answer."""
        model = await self.served(models)
        spec = ServerSpec(
            kind=self.backend,
            names=(model.name,),
            argv=partial(self.argv, self.config, self.find_command(), model),
            env=self.environment(),
            env_from=self.config.env_from,
            key_variable=self.key_variable,
            start_timeout_s=self.config.start_timeout_s,
            stop_grace_s=_STOP_GRACE_S,
        )
        async with self.turn():
            return await start_server(spec, log_path, self.carrier)

    @abstractmethod
    async def served(self, models: tuple[ServedModel, ...]) -> ServedModel:
        """Return the only one of `models`, with the path of its weights.

        Raises:
            LaunchError: If its weights are not there, or no adapter has its name.
        """

    def find_command(self) -> str:
        """Find the program to run.

        What lies in the working directory is never taken: entries of PATH that start from there
        (`.`, or an empty one) are passed over.

        Raises:
            LaunchError: If there is none, with how to get it.
        """
        wanted, own = getattr(self.config, self.program_setting), self.own_program
        entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
        absolute = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117
        found = shutil.which(wanted or self.program, path=absolute)
        if found is None and own is not None and not wanted:
            found = str(_spec.PROJECT / own) if os.access(_spec.PROJECT / own, os.X_OK) else None
        if found is not None:
            return found
        here = ""
        if own is not None and os.access(own, os.X_OK):
            here = f"; there is one in {str(own)!r} here, which runs only if `command` names it"
        raise LaunchError(f"there is no command {wanted or self.program!r}; {self.advice}{here}")

    def environment(self) -> dict[str, str]:
        """Variables that a server gets beside its key."""
        return {**self.own_env, **_spec.visible(self.config.gpus), **self.config.env}

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait around a start until it may begin."""
        return nullcontext()

    def programs(self) -> tuple[Program, ...]:
        """List the settings that have this machine run code of the recipe's choice."""
        program = getattr(self.config, self.program_setting)
        programs: tuple[Program, ...] = ()
        if program not in (None, self.program):
            said = f"{program!r} is a program of the recipe's choice"
            programs = (Program(self.program_setting, said),)
        variables = (
            Program("env", f"{name} may load code into the server")
            for name in sorted(self.config.env.keys() - SAFE_VARIABLES)
        )
        arguments = []
        for name in _names(self.config.extra_args):
            if name not in self.safe_arguments:
                setting = name.lstrip("-").replace("-", "_")
                is_one = setting in type(self.config).model_fields
                said = f" (there is a setting {setting!r})" if is_one else ""
                said = f"{name} is not on the list of safe arguments{said}"
                arguments.append(Program("extra_args", said))
        return (*programs, *variables, *arguments)


class FolderLaunch(ForeignLaunch[F]):
    """Starts servers of model folders that may be split over GPUs.

    Attributes:
        share_setting: Name of the setting with the share of each GPU's memory.
        adapters_setting: Name of the setting with the folders of LoRA adapters by their names.
        memory_settings: Names of the settings that decide its memory, by the arguments of
            `launch._memory.footprint` that they are.
    """

    memory_settings: ClassVar[Mapping[str, str]]
    share_setting: ClassVar[str]
    adapters_setting: ClassVar[str]

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hashes of weights, tokenizer, adapters; formats."""
        config = self.config
        found = {"kind": self.backend, "dtype": config.dtype, **_weights.identity(weights)}
        if config.quantization is not None:
            found["quantization"] = config.quantization
        adapters = _weights.adapters(getattr(config, self.adapters_setting))
        return found | adapters | config.identity()

    def no_split(self, n_nodes: int) -> str:
        """Tell why a model can't be shared by so many machines; empty if it can."""
        stages = _STAGES.search(" ".join(self.config.extra_args))
        n_parts = self.config.tensor_parallel_size * (1 if stages is None else int(stages[1]))
        why = f"tensor_parallel_size, times the stages of a pipeline, is {n_parts}"
        return f"{why}, which they can't share out" if n_parts % n_nodes else ""

    async def served(self, models: tuple[ServedModel, ...]) -> ServedModel:
        """See `ForeignLaunch`."""
        (model,) = models
        adapters = getattr(self.config, self.adapters_setting)
        if adapters and model.name not in adapters:
            raise LaunchError(
                f"model {model.name!r}: {self.adapters_setting} names "
                f"{', '.join(sorted(adapters))}, which would never be used; the adapter to use "
                "must have the name of the model"
            )
        return ServedModel(model.name, str(await _weights.folder(model.weights)))

    def footprint(self, models: tuple[ServedModel, ...]) -> Footprint | None:
        """The GPU memory it needs; None where the recipe names its GPUs, or copies of it.

        Raises:
            LaunchError: If the weights don't say what they need.
        """
        config = self.config
        if config.names_its_gpus or not _COPIES.isdisjoint(_names(config.extra_args)):
            return None
        (model,) = models
        given = {part: getattr(config, name) for part, name in self.memory_settings.items()}
        need = _memory.footprint(
            _weights.resolve(model.weights),
            dtype=config.dtype,
            quantization=config.quantization,
            **{part: value for part, value in given.items() if value is not None},
        )
        if "tensor_parallel_size" in config.model_fields_set:
            need = msgspec.structs.replace(need, splits=(config.tensor_parallel_size,))
        return msgspec.structs.replace(need, fraction=getattr(config, self.share_setting) or 0.0)

    def placed(self, gpus: tuple[str, ...], memory_fraction: float) -> Self:
        """The settings with which it runs on these GPUs and takes this share of their memory."""
        update = {
            self.share_setting: getattr(self.config, self.share_setting) or memory_fraction,
            "tensor_parallel_size": len(gpus),
            "env": self.config.env | _spec.visible(gpus),
        }
        return type(self)(self.config.model_copy(update=update))


def _names(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield the names among arguments; what stands before the first name counts as one."""
    for index, argument in enumerate(arguments):
        if argument.startswith("-") and not _is_number(argument):
            yield argument.partition("=")[0]
        elif index == 0:
            yield argument


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
