"""llama.cpp's llama-server as a process: one process a model, from a GGUF file.

The command is `llama-server` on the PATH, else that of `.llamacpp` beside the project or where the
program was started (`python tools/set_up_llamacpp.py` builds it).
"""

import glob
import re
from itertools import chain
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field

from launch import _gguf, _spec, _weights
from launch._foreign import ForeignConfig, ForeignLaunch, PathSetting, ProgramSetting
from launch._spec import HOST
from orchestrator.errors import LaunchError
from orchestrator.serving import Footprint, ServedModel
from orchestrator.weights import PACKAGE_PREFIX

KEY_VARIABLE: Final = "LLAMA_API_KEY"

_OWN: Final = Path(".llamacpp")
_PART: Final = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<n>\d{5})\.gguf")
_DEVICES: Final = frozenset(("-dev", "--device", "-ts", "--tensor-split", "-sm", "--split-mode"))
_ENV: Final = {
    "LLAMA_ARG_OFFLINE": "1",
    # Its cache in main memory is known to bring back the keys and values of other prompts
    # (llama.cpp's issue 27148). Given here, as older builds don't know the argument.
    "LLAMA_ARG_CACHE_RAM": "0",
}


class Config(ForeignConfig):
    """Settings of llama-server."""

    own_arguments = frozenset((
        "-a", "-c", "-m", "-np", "--alias", "--api-key", "--api-key-file", "--chat-template-file",
        "--ctx-size", "--host", "--lora", "--lora-scaled", "--model", "--parallel", "--port",
    ))  # fmt: skip
    own_variables = frozenset((KEY_VARIABLE,))
    spoiling = (
        (
            "-md|-hfd|--model-draft|--hf-repo-draft|--spec-.*",
            "llama-server gives tokens that it guessed ahead the log-probability 0",
        ),
    )

    command: ProgramSetting | None = Field(
        None,
        description="The program `llama-server`, a name or a path (relative to the recipe); null: "
        "on the PATH, else in .llamacpp beside the project.",
    )
    max_model_len: int = Field(
        4096, ge=16, description="Maximum length of prompt and answer in tokens, for each slot."
    )
    slots: int = Field(
        4, ge=1, le=1024, description="Number of requests to compute at the same time."
    )
    threads: int | None = Field(
        None, ge=1, le=1024, description="Number of CPU threads; null leaves it to the server."
    )
    n_gpu_layers: int | None = Field(
        None,
        ge=0,
        description="Layers on the GPU; null: all where the run places it, else as the server "
        "likes; 0 is the CPU.",
    )
    cache_type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] = Field(
        "f16", description="Number format of keys and values; f32 gives the most exact numbers."
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        "auto", description="Compute attention in one kernel; off is most exact."
    )
    chat_template: PathSetting | None = Field(
        None, description="File of a chat template (relative to the recipe); null: the model's own."
    )
    lora: tuple[PathSetting, ...] = Field(
        (), description="GGUF files of LoRA adapters (relative to the recipe), all applied."
    )
    start_timeout_s: float = Field(600.0, gt=0)


def resolve(weights: str) -> Path:
    """Return the GGUF file that `weights` names.

    That is a file, `package:MODULE/FILE.gguf`, a folder with one model, or `bundled:NAME`.

    Raises:
        LaunchError: If there is none.
    """
    if weights.startswith(_weights.BUNDLED_PREFIX):
        name = weights.removeprefix(_weights.BUNDLED_PREFIX)
        made = Path("models") / f"{name}.gguf"
        for folder in (_spec.PROJECT, Path.cwd()):
            if (folder / _OWN / made).is_file():
                return _checked(folder / _OWN / made)
        raise LaunchError(
            f"no GGUF of the bundled model {name!r}; python tools/make_gguf.py --bundled "
            f"writes it to {_OWN / made}"
        )
    if weights.startswith(PACKAGE_PREFIX):
        return _checked(_weights.in_package(weights))
    path = Path(weights).expanduser()
    if path.is_dir():
        found = [
            one
            for one in sorted(path.glob("*.gguf"))
            if _PART.fullmatch(one.name) is None or "-00001-of-" in one.name
        ]
        if len(found) != 1:
            names = ", ".join(one.name for one in found) or "none"
            raise LaunchError(f"{path} holds {len(found)} GGUF models ({names}); name one file")
        path = found[0]
    return _checked(path.resolve())


def parts(file: Path) -> list[Path]:
    """The files of a model that is cut into several, or its only one."""
    cut = _PART.fullmatch(file.name)
    if cut is None:
        return [file]
    return [
        one
        for one in sorted(file.parent.glob(f"{glob.escape(cut['stem'])}-*.gguf"))
        if (part := _PART.fullmatch(one.name)) is not None and part.groupdict() == cut.groupdict()
    ]


def _checked(file: Path) -> Path:
    with _file(str(file)).open("rb") as opened:
        if opened.read(len(_gguf.MAGIC)) != _gguf.MAGIC:
            raise LaunchError(
                f"{file} is no GGUF file; llama.cpp's convert_hf_to_gguf.py makes one of a model "
                f"folder"
            )
    return file


def _file(path: str) -> Path:
    file = Path(path)
    if not file.is_file():
        raise LaunchError(f"no such file: {path}; llama-server needs a GGUF file")
    return file


def argv(
    config: Config, command: str, model: ServedModel, port: int, host: str = HOST
) -> tuple[str, ...]:
    """Command line of a server; `model.weights` is a GGUF file."""
    settings = {
        "--model": model.weights,
        "--alias": model.name,
        "--host": host,
        "--port": port,
        # The context is shared out among the slots.
        "--ctx-size": config.max_model_len * config.slots,
        "--parallel": config.slots,
        "--threads": config.threads,
        "--n-gpu-layers": config.n_gpu_layers,
        "--cache-type-k": config.cache_type,
        "--cache-type-v": config.cache_type,
        "--flash-attn": config.flash_attention,
        "--chat-template-file": config.chat_template,
    }
    adapters = chain.from_iterable(("--lora", path) for path in config.lora)
    # A context that is shifted when it is full gives numbers of another prompt than was sent.
    flags = ("--jinja", "--metrics", "--no-slots", "--no-webui", "--no-context-shift")
    return (command, *_spec.arguments(settings), *adapters, *flags, *config.extra_args)


class Launch(ForeignLaunch[Config]):
    """llama.cpp's llama-server, one process a model."""

    backend = "llamacpp"
    argv = staticmethod(argv)
    own_env = _ENV
    key_variable = KEY_VARIABLE
    program = "llama-server"
    own_program = _OWN / "llama-server"
    advice = (
        "install llama.cpp, name its program by `command`, or run python "
        f"tools/set_up_llamacpp.py, which builds it into {_OWN}"
    )
    safe_arguments = frozenset((
        "-b", "-fa", "-kvo", "-mg", "-ngl", "-nkvo", "-sm", "-t", "-tb", "-ts", "-ub",
        "--batch-size", "--cache-reuse", "--device", "-dev", "--flash-attn", "--gpu-layers",
        "--kv-offload", "--main-gpu", "--mlock", "--n-gpu-layers", "--no-kv-offload", "--no-mmap",
        "--numa", "--poll", "--prio", "--rope-freq-base", "--rope-freq-scale", "--rope-scale",
        "--rope-scaling", "--split-mode", "--tensor-split", "--threads", "--threads-batch",
        "--ubatch-size", "--yarn-attn-factor", "--yarn-beta-fast", "--yarn-beta-slow",
        "--yarn-ext-factor", "--yarn-orig-ctx",
    ))  # fmt: skip

    def identity(self, weights: str) -> dict[str, str]:
        """Return all that decides the numbers: hash of the GGUF, formats, adapters."""
        found = {
            "kind": self.backend,
            "weights": _weights.content_digest(parts(resolve(weights))),
            "cache_type": self.config.cache_type,
        }
        if self.config.chat_template is not None:
            found["chat_template"] = _weights.content_digest([_file(self.config.chat_template)])
        if self.config.lora:
            found["lora"] = _weights.content_digest([_file(path) for path in self.config.lora])
        return found | self.config.identity()

    async def served(self, models: tuple[ServedModel, ...]) -> ServedModel:
        """See `launch._foreign.ForeignLaunch`."""
        (model,) = models
        return ServedModel(model.name, str(resolve(model.weights)))

    def footprint(self, models: tuple[ServedModel, ...]) -> Footprint | None:
        """The GPU memory it needs; None on the CPU, or where the recipe names its GPUs."""
        if self.config.n_gpu_layers == 0 or self.config.names_its_gpus:
            return None
        if _DEVICES & {argument.partition("=")[0] for argument in self.config.extra_args}:
            return None
        (model,) = models
        return _gguf.footprint(
            parts(resolve(model.weights)),
            context=self.config.max_model_len * self.config.slots,
            cache_type=self.config.cache_type,
            n_gpu_layers=self.config.n_gpu_layers,
            flash_attention=self.config.flash_attention != "off",
            adapters=sum(_file(path).stat().st_size for path in self.config.lora),
        )

    def placed(self, gpus: tuple[str, ...], memory_fraction: float) -> Self:  # noqa: ARG002 (it takes what it needs, no fixed share)
        """The settings with which it runs on these GPUs, of which it sees no others."""
        layers = _gguf.ALL_LAYERS if self.config.n_gpu_layers is None else self.config.n_gpu_layers
        spread = {"LLAMA_ARG_SPLIT_MODE": "none", "LLAMA_ARG_MAIN_GPU": "0"}
        if len(gpus) > 1:
            # Else it goes by what is free at the moment, which others may be about to take.
            shares = ",".join("1" for _ in gpus)
            spread = {"LLAMA_ARG_SPLIT_MODE": "layer", "LLAMA_ARG_TENSOR_SPLIT": shares}
        env = self.config.env | spread | _spec.visible(gpus)
        return type(self)(self.config.model_copy(update={"n_gpu_layers": layers, "env": env}))
