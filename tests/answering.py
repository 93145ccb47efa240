"""A base of made-up back-ends, which only answer."""

from orchestrator.backend import Backend, Provenance


class Answering(Backend):
    """A connection to a server that is what its class is called."""

    async def provenance(self):
        name = type(self).__name__
        return Provenance(backend="fake", base_url="http://127.0.0.1:1", model=name)
