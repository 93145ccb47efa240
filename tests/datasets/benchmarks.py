"""Opening benchmarks, and content for their files."""

import io
import json

from orchestrator import plugins
from orchestrator.plugins import DATASETS
from orchestrator.recipe.schema import PluginRef
from orchestrator.runner.planning.prepare import open_dataset


def opened(kind, **settings):
    module = plugins.load(DATASETS, kind)
    return open_dataset(PluginRef(kind, module.Config(**settings)))


def items(dataset):
    return [dataset.item(index) for index in range(len(dataset))]


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def parquet(frame):
    stream = io.BytesIO()
    frame.write_parquet(stream)
    return stream.getvalue()
