"""Tables of the summary of a context's method."""

import json

import msgspec

from orchestrator import contracts
from orchestrator.tables import Table


def summarise(context):
    (source,) = context.sources
    summary = contracts.summary(source.kind, type(source.method))
    assert summary is not None
    found = summary(source.method.config).summarise(context)
    # A run keeps tables as JSON; repr, for nan is not equal to itself.
    kept = json.loads(json.dumps(msgspec.to_builtins(found)))
    assert repr(msgspec.convert(kept, list[Table])) == repr(found)
    return found
