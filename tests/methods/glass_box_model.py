"""A model whose distributions are known, for tests of the glass-box method."""

import numpy as np
import pytest

from orchestrator.ask import Ask, GenerateAsk, ScoreAsk
from orchestrator.methods.glass_box import Config
from orchestrator.methods.glass_box import Kind as GlassBox
from orchestrator.records import Generation, Item, Message, Scored, TopLogprobs, Unit
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),), reference="right")
UNIT = Unit(ITEM, ("m",))


def ids_of(text):
    return np.array([ord(c) for c in text], np.int32)


def values_of(name, messages, n):
    """Numbers that differ by feature, prompt and place."""
    start = len(name) + sum(len(message.content) for message in messages) / 100
    return (start + np.arange(n) / 10).astype(np.float32)


class Model:
    """Answers with `texts` in turn; log-probabilities are -code point / 100."""

    def __init__(self, *texts, finish="stop", **drawn):
        self.texts = list(texts)
        self.finish = finish
        self.drawn = drawn
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, GenerateAsk):
            return self.draw()
        assert isinstance(ask, ScoreAsk)
        return self.score(ask)

    def draw(self):
        text = self.texts.pop(0)
        ids = ids_of(text)
        given = {"logprobs": (-ids / 100).astype(np.float32), **self.drawn}
        return Generation(text, self.finish, token_ids=ids, **given)

    def score(self, ask):
        ids = np.array(ask.token_ids or ids_of(ask.text), np.int32)
        if ask.end_of_turn:
            ids = np.append(ids, np.int32(3))
        n = len(ids)
        features = {name: values_of(name, ask.messages, n) for name in ask.features}
        if "attention_entropy" in features:
            features["attention_entropy"] = np.array([[0.5, 1.5], [2.5, 3.5]], np.float32)
        top = None
        if ask.top_logprobs:
            listed = np.log(np.full((n, ask.top_logprobs), 0.25)).astype(np.float32)
            top = TopLogprobs(np.zeros((n, ask.top_logprobs), np.int32), listed)
        logprobs = (-ids / 100).astype(np.float32)
        return Scored(ids, logprobs, top=top, features=features or None)

    def scored(self):
        return [ask for ask in self.asked if isinstance(ask, ScoreAsk)]

    def generated(self):
        return [ask for ask in self.asked if isinstance(ask, GenerateAsk)]


def rows_of(model, config=None, unit=UNIT):
    return answered(GlassBox(Config() if config is None else config).evaluate(unit, Ask()), model)


def close(expected):
    return pytest.approx(expected, abs=1e-6)
