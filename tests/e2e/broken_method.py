"""A method that raises after its first answer, for tests of what a run does then."""

from orchestrator.methods.answers import FRAME, SCHEMA, VERSION, Config, columns, combinations
from orchestrator.methods.answers import companions as companions
from orchestrator.methods.answers import stages as stages

__all__ = ["FRAME", "SCHEMA", "VERSION", "Config", "columns", "combinations"]


async def evaluate(unit, ask, config):
    answer = await ask.generate(unit.models[0], unit.item.messages, config.answer.sampling())
    return [{**columns(unit), "text": answer.text[10_000]}]
