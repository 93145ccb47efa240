"""Identity of a model, found without any server; part of the key of every ask."""

import json
from collections.abc import Mapping
from typing import Final

from orchestrator.ask import digest
from orchestrator.backend import Provenance
from orchestrator.recipe.schema import ModelSpec
from orchestrator.runner.models.launch_kinds import launch_of
from orchestrator.store import StoredServer

# Stands for the address of a server we launched: its port is another one each time.
LAUNCHED: Final = "launched"
# Settings of back-ends that change how requests travel, not what they say.
_HOW_IT_IS_SENT = frozenset({"transport", "keepalive_s"})


def model_identity(spec: ModelSpec, *, allow_code: bool = False) -> dict[str, str]:
    """Return all that decides a model's numbers, found without any server.

    Raises:
        LaunchError: If weights are missing.
    """
    if spec.server is None:
        found = {
            "base_url": address(spec),
            "model": spec.model or spec.name,
            "backend": spec.backend,
        }
        if spec.backend_config is not None:
            # Settings that change what a request says, where they differ from the defaults.
            settings = spec.backend_config.model_dump(mode="json", exclude_defaults=True)
            found |= {
                f"backend.{name}": json.dumps(value, sort_keys=True)
                for name, value in settings.items()
                if name not in _HOW_IT_IS_SENT
            }
    else:
        found = dict(launch_of(spec, allow_code=allow_code).identity(spec.weights or ""))
    said = {
        "system": spec.system,
        "template": "none" if spec.plain else None,
        "thinking": spec.thinking_end,
    }
    return found | {name: value for name, value in said.items() if value}


def address(spec: ModelSpec) -> str:
    """Return the address of a model; of several addresses the order plays no part."""
    return " ".join(sorted(spec.base_urls)) or spec.base_url or ""


def addresses(spec: ModelSpec) -> tuple[str, ...]:
    """Return the addresses of a model's servers; none if they are launched."""
    return spec.base_urls or ((spec.base_url,) if spec.base_url else ())


def identity_key(identity: Mapping[str, str]) -> bytes:
    """The identity as it enters the keys of asks."""
    return digest(sorted(identity.items()))


def server_label(model: str, identity: bytes) -> str:
    """Return the label of a model's servers: a changed model has another, whatever its name."""
    return f"{model} {identity.hex()[:12]}"


def same_identity(label: str, other: str) -> bool:
    """Return True if two labels are of one identity, whatever the models are called."""
    return label.rpartition(" ")[2] == other.rpartition(" ")[2]


def provenance_words(provenance: Provenance) -> str:
    """A server in a few words."""
    version = f" {provenance.version}" if provenance.version else ""
    fingerprint = f" ({provenance.fingerprint})" if provenance.fingerprint else ""
    return f"{provenance.backend}{version}{fingerprint} as {provenance.model!r}"


def answered_words(earlier: StoredServer) -> str:
    """A server that answered before, for messages."""
    words = provenance_words(earlier.provenance)
    if earlier.run:
        return f"answers by {words} were copied from {earlier.run}"
    return f"this run was answered by {words}"
