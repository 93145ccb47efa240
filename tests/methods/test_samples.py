import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, AskFailed, GenerateAsk
from orchestrator.methods.samples import Config
from orchestrator.methods.samples import Kind as Samples
from orchestrator.records import Generation, Item, Message, Scored, Unit
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),), reference="t1")


class Model:
    def __init__(self, *, raw=True):
        self.raw = raw
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, GenerateAsk):
            ids, logs = np.arange(2, dtype=np.int32), np.array([-1.0, -ask.repeat], np.float32)
            return Generation(f"t{ask.repeat}", "stop", 3, 3, ids, logs, raw=self.raw)
        return Scored(np.arange(2, dtype=np.int32), np.full(2, -9.0, np.float32))


def rows_of(model, **settings):
    return answered(Samples(Config(**settings)).evaluate(Unit(ITEM, ("m",)), Ask()), model)


def test_each_sample_is_a_draw_of_its_own_with_its_mean_log_probability():
    model = Model()
    rows = rows_of(model, n=3)
    assert len({ask.key(b"m", 0) for ask in model.asked}) == 3
    assert [row["ell"] for row in rows] == [-0.5, -1.0, -1.5]
    assert [row["exact_match"] for row in rows] == [False, True, False]


def test_samples_can_be_scored_instead():
    model = Model(raw=False)
    rows = rows_of(model, n=2, logprobs="score")
    assert [row["ell"] for row in rows] == [-9.0, -9.0]
    assert [row["ell_by"] for row in rows] == ["score", "score"]


def test_log_probabilities_that_are_not_raw_are_refused_and_not_compared():
    with pytest.raises(AskFailed, match="logprobs: score"):
        rows_of(Model(raw=False), n=2)


def test_an_empty_sample_has_no_ell():
    def model(ask):
        return Generation("", "stop", 3, 1, np.zeros(0, np.int32), np.zeros(0, np.float32))

    rows = rows_of(model, n=2)
    assert [row["ell"] for row in rows] == [None, None]


def test_greedy_samples_are_refused():
    with pytest.raises(ValidationError, match="identical"):
        Config(answer={"temperature": 0})


def test_the_temperature_is_1_where_only_other_settings_are_given():
    assert Config.model_validate({"answer": {"max_tokens": 3}}).answer.temperature == 1.0
