"""Opening benchmarks, and content for their files."""

import io
import json

from orchestrator import contracts
from orchestrator.dataset import DatasetKind
from orchestrator.recipe.schema import PluginRef
from orchestrator.runner.planning.prepare import open_dataset


def opened(kind, **settings):
    return open_dataset(PluginRef(kind, contracts.load(DatasetKind, kind).Config(**settings)))


def items(dataset):
    return [dataset.item(index) for index in range(len(dataset))]


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def parquet(frame):
    stream = io.BytesIO()
    frame.write_parquet(stream)
    return stream.getvalue()
