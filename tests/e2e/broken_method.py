"""A method that raises after its first answer, for tests of what a run does then."""

from orchestrator.methods.answers import Kind as Answers


class Broken(Answers):
    """It raises."""

    async def evaluate(self, unit, ask):
        sampling = self.config.answer.sampling()
        answer = await ask.generate(unit.models[0], unit.item.messages, sampling)
        return {"text": answer.text[10_000]}
