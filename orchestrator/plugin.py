"""The public contract of plug-ins: base classes, and the types that their signatures name."""

import importlib
from typing import TYPE_CHECKING

from orchestrator.ask import (
    Ask,
    AskFailed,
    ChooseAsk,
    GenerateAsk,
    Request,
    RewardAsk,
    ScoreAsk,
    SimilarityAsk,
)
from orchestrator.backend import (
    LOCAL,
    Asked,
    Backend,
    BackendKind,
    Capabilities,
    ComparerKind,
    Endpoint,
    Provenance,
    ServerLoad,
)
from orchestrator.columns import AnswerColumns, PairColumns, RewriteColumns, ScoreColumns
from orchestrator.contracts.method import (
    Analysis,
    Columns,
    Combination,
    Companion,
    Compared,
    Comparer,
    Method,
    MethodSettings,
    ModelName,
    Stage,
    Statistic,
    StatisticSettings,
    Summary,
    typed,
)
from orchestrator.dataset import (
    About,
    Dataset,
    DatasetKind,
    File,
    FileSettings,
    FolderSettings,
    from_items,
)
from orchestrator.errors import DatasetError, LaunchError, PluginError, UsageError
from orchestrator.figures import Figure, Picture, points
from orchestrator.plugins.base import Plugin, Settings
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Item,
    Label,
    Message,
    Messages,
    PairScores,
    Prefix,
    Rewards,
    Row,
    Sampling,
    Scored,
    TopLogprobs,
    Unit,
    labels,
)
from orchestrator.serving import (
    Footprint,
    LaunchKind,
    Program,
    RunningServer,
    ServedModel,
    ServeOptions,
)
from orchestrator.tables import Cell, Column, Measured, Table, make_table, table_columns

if TYPE_CHECKING:
    from orchestrator.contracts.context import Context, Source

__all__ = [
    "LOCAL", "About", "Analysis", "AnswerColumns", "Ask", "AskFailed", "Asked", "Backend",
    "BackendKind", "Capabilities", "Cell", "Choice", "ChooseAsk", "Column", "Columns",
    "Combination", "Companion", "Compared", "Comparer", "ComparerKind", "Context", "Dataset",
    "DatasetError", "DatasetKind", "Endpoint", "Failure", "Figure", "File", "FileSettings",
    "FolderSettings", "Footprint", "GenerateAsk", "Generation", "Item", "Label", "LaunchError",
    "LaunchKind", "Measured", "Message", "Messages", "Method", "MethodSettings", "ModelName",
    "PairColumns", "PairScores", "Picture", "Plugin", "PluginError", "Prefix", "Program",
    "Provenance", "Request", "RewardAsk", "Rewards", "RewriteColumns", "Row", "RunningServer",
    "Sampling", "ScoreAsk", "ScoreColumns", "Scored", "ServeOptions", "ServedModel", "ServerLoad",
    "Settings", "SimilarityAsk", "Source", "Stage", "Statistic", "StatisticSettings", "Summary",
    "Table", "TopLogprobs", "Unit", "UsageError", "from_items", "labels", "make_table", "points",
    "table_columns", "typed",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import what needs polars when it is asked for: most plug-ins do without it."""
    if name in {"Context", "Source"}:
        return getattr(importlib.import_module("orchestrator.contracts.context"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
