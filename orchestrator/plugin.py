"""The public contract of plug-ins: base classes, and the types that their signatures name."""

from orchestrator.ask import ChooseAsk, GenerateAsk, ScoreAsk, SimilarityAsk
from orchestrator.backend import (
    LOCAL,
    Asked,
    Backend,
    BackendKind,
    Capabilities,
    ComparerKind,
    ComparesTexts,
    Endpoint,
    Provenance,
    ServerLoad,
)
from orchestrator.errors import LaunchError, PluginError, UsageError
from orchestrator.plugin_base import Plugin
from orchestrator.records import Choice, Failure, Generation, PairScores, Scored
from orchestrator.serving import Footprint, LaunchKind, Program, RunningServer, ServedModel
from orchestrator.settings import Settings

__all__ = [
    "LOCAL",
    "Asked",
    "Backend",
    "BackendKind",
    "Capabilities",
    "Choice",
    "ChooseAsk",
    "ComparerKind",
    "ComparesTexts",
    "Endpoint",
    "Failure",
    "Footprint",
    "GenerateAsk",
    "Generation",
    "LaunchError",
    "LaunchKind",
    "PairScores",
    "Plugin",
    "PluginError",
    "Program",
    "Provenance",
    "RunningServer",
    "ScoreAsk",
    "Scored",
    "ServedModel",
    "ServerLoad",
    "Settings",
    "SimilarityAsk",
    "UsageError",
]
