"""Tables of the summary of a context's method."""

from orchestrator import contracts


def summarise(context):
    (source,) = context.sources
    summary = contracts.summary(source.kind, type(source.method))
    assert summary is not None
    return summary(source.method.config).summarise(context)
