import hashlib

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.ask import Ask, GenerateAsk
from orchestrator.methods.probdiff import Config, leaks
from orchestrator.methods.probdiff import Kind as ProbDiff
from orchestrator.prompts.rewriting import PROMPTS
from orchestrator.recipe.load import load
from orchestrator.records import Generation, Item, Message, Scored, Unit
from tests.core.fakes import answered

ITEM = Item(key="k", messages=(Message("user", "q1"),))
TWO_TURNS = Item(key="k", messages=(Message("user", "q1"),), followups=("q2",))
COMPACT = Config(prompt="compact")


def texts_to_ids(text):
    return np.array([ord(c) for c in text], np.int32)


class Model:
    """Answers a question with `answers[question]`, a request to rewrite with `rewritings` in turn.

    The log-probability of a token is -code point / 100, so a score can be worked out by hand.
    """

    def __init__(self, answers, rewritings, finish="stop"):
        self.answers = answers
        self.rewritings = list(rewritings)
        self.finish = finish
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if isinstance(ask, GenerateAsk):
            last = ask.messages[-1].content
            text = self.answers[last] if last in self.answers else self.rewritings.pop(0)
            return Generation(text, self.finish, token_ids=texts_to_ids(text))
        ids = np.array(ask.token_ids, np.int32)
        return Scored(ids, (-ids / 100).astype(np.float32))

    def scores(self):
        return [ask for ask in self.asked if not isinstance(ask, GenerateAsk)]

    def drawn(self):
        return [ask for ask in self.asked if isinstance(ask, GenerateAsk)]


def rows_of(model, item=ITEM, config=COMPACT):
    return answered(ProbDiff(config).evaluate(Unit(item, ("m",)), Ask()), model)


def test_d_is_the_difference_of_mean_log_probabilities():
    (row,) = rows_of(Model({"q1": "ab"}, ["bcd"]))
    first, last = -(97 + 98) / 200, -(98 + 99 + 100) / 300
    assert row["ell_first"] == pytest.approx(first, abs=1e-6)
    assert row["ell_last"] == pytest.approx(last, abs=1e-6)
    assert row["d"] == pytest.approx(last - first, abs=1e-6)
    assert (row["n_tokens_first"], row["n_tokens_last"]) == (2, 3)


def test_both_texts_are_scored_under_the_original_conversation_and_by_their_tokens():
    model = Model({"q1": "ab"}, ["bcd"])
    rows_of(model)
    assert [ask.messages for ask in model.scores()] == [ITEM.messages] * 2
    assert [ask.token_ids for ask in model.scores()] == [(97, 98), (98, 99, 100)]


def test_an_equal_text_with_other_tokens_has_a_d_of_exactly_0():
    def model(ask):
        if isinstance(ask, GenerateAsk):
            n = 3 if "Improve" in ask.messages[-1].content else 2
            return Generation("same", "stop", token_ids=np.arange(n, dtype=np.int32))
        return Scored(np.array(ask.token_ids), np.full(2, -0.1, np.float32))

    (row,) = rows_of(model)
    assert (row["d"], row["unchanged"], row["n_tokens_last"]) == (0.0, True, 2)


def test_each_round_rewrites_the_rewriting_before_it_and_the_last_counts():
    model = Model({"q1": "a"}, ["b", "c", "d"])
    (row,) = rows_of(model, config=Config(prompt="{{ answer }}!", rounds=3))
    assert [ask.messages[-1].content for ask in model.drawn()[1:]] == ["a!", "b!", "c!"]
    assert row["rewriting"] == "d"
    assert len(model.scores()) == 2


def test_rounds_that_change_nothing_are_draws_of_their_own_unless_greedy():
    model = Model({"q1": "a"}, ["a", "a"])
    rows_of(model, config=Config(prompt="compact", rounds=2))
    assert len({ask.key(b"m", 0) for ask in model.drawn()[1:]}) == 2
    model = Model({"q1": "a"}, ["a", "a"])
    rows_of(model, config=Config(prompt="compact", rounds=2, revision={"temperature": 0}))
    assert len({ask.key(b"m", 0) for ask in model.drawn()[1:]}) == 1


@pytest.mark.parametrize(
    ("answer", "rewriting", "why", "n_scores"),
    [("", "b", "empty answer", 1), ("a", " \n", "empty rewriting", 1), ("", "", "empty answer", 0)],
)
def test_d_of_an_empty_text_is_undefined_and_says_why(answer, rewriting, why, n_scores):
    model = Model({"q1": answer}, [rewriting])
    (row,) = rows_of(model)
    assert (row["d"], row["undefined"], row["status"]) == (None, why, "ok")
    assert len(model.scores()) == n_scores


def test_a_token_that_is_impossible_leaves_d_undefined():
    def model(ask):
        if isinstance(ask, GenerateAsk):
            return Generation("x" if ask.turn else "y", "stop")
        return Scored(np.array([1]), np.array([-np.inf], np.float32))

    (row,) = rows_of(model)
    assert (row["d"], row["undefined"]) == (None, "a token has no finite log-probability")


def test_texts_that_were_cut_off_are_marked():
    (row,) = rows_of(Model({"q1": "a"}, ["b"], finish="length"))
    assert (row["truncated_answer"], row["truncated_rewriting"]) == (True, True)


def test_a_conversation_is_shown_as_a_transcript_and_scored_after_its_own_first_answer():
    model = Model({"q1": "a1", "q2": "a2"}, ["r1", "r2"])
    rows = rows_of(model, TWO_TURNS, Config(prompt="{{ prompt }}|{{ answer }}"))
    shown = [ask.messages[-1].content for ask in model.drawn()[2:]]
    assert shown == [
        "USER: q1\n\nASSISTANT: |a1",
        "USER: q1\n\nASSISTANT: a1\n\nUSER: q2\n\nASSISTANT: |a2",
    ]
    contexts = {ask.text: [m.content for m in ask.messages] for ask in model.scores()}
    assert contexts["r1"] == ["q1"]
    assert contexts["r2"] == contexts["a2"] == ["q1", "a1", "q2"]
    assert [row["turn"] for row in rows] == [1, 2]


def test_a_system_prompt_of_the_item_goes_with_the_rewriting_and_is_no_part_of_the_question():
    item = Item(key="k", messages=(Message("system", "s"), Message("user", "q1")))
    model = Model({"q1": "a"}, ["b"])
    rows_of(model, item, Config(prompt="{{ prompt }}|{{ answer }}"))
    assert model.drawn()[1].messages == (Message("system", "s"), Message("user", "q1|a"))


def test_what_a_model_wrote_is_no_template():
    model = Model({"q1": "{{ 1 + 1 }}"}, ["b"])
    rows_of(model, config=Config(prompt="simple"))
    assert "{{ 1 + 1 }}" in model.drawn()[1].messages[-1].content


def test_a_preset_fills_in_what_the_user_leaves_out():
    config = Config.model_validate({"preset": "submission", "answer": {"max_tokens": 7}})
    assert (config.answer.max_tokens, config.answer.temperature, config.answer.top_p) == (
        7,
        0.7,
        0.8,
    )
    assert (config.revision.temperature, config.revision.top_p) == (0.1, 0.9)
    assert config.deltas == (-0.05, 0.0, -0.1, -0.02)


def filled_in(dataset, **settings):
    return Config.model_validate(settings, context={"dataset": dataset})


@pytest.mark.parametrize("preset", ["acl_findings", "submission"])
@pytest.mark.parametrize("benchmark", ["mt_bench", "align_bench"])
def test_a_benchmark_with_settings_of_its_own_is_answered_by_these(preset, benchmark):
    config = filled_in(benchmark, preset=preset, answer={"max_tokens": 7})
    assert (config.answer.temperature_by_category, config.answer.top_p) == (benchmark, 1.0)
    assert (config.answer.max_tokens, config.revision.temperature) == (7, 0.1)
    assert config.deltas[0] == -0.05


@pytest.mark.parametrize(
    ("preset", "dataset", "main"),
    [
        ("submission", "probdiff_texts", -0.02),
        ("submission", "alpaca_eval", -0.05),
        ("acl_findings", "probdiff_texts", -0.05),
    ],
)
def test_the_main_threshold_is_the_one_of_the_task(preset, dataset, main):
    config = filled_in(dataset, preset=preset)
    assert config.deltas[0] == main
    most = 2048 if dataset == "probdiff_texts" else 1024
    assert (config.answer.max_tokens, config.revision.max_tokens) == (most, most)
    assert set(config.deltas) == {0.0, -0.02, -0.05, -0.1}


def test_a_temperature_of_ones_own_goes_over_the_benchmarks():
    config = filled_in("mt_bench", answer={"temperature": 0.3})
    assert config.answer.sampling("writing").temperature == 0.3


def test_a_recipe_gives_the_kind_of_its_dataset_to_the_preset(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "models: {m: {base_url: 'http://127.0.0.1:1'}}\n"
        "methods: [{kind: probdiff, preset: submission}]\n"
        "dataset: {kind: mt_bench}\n"
    )
    (method,) = load(path).methods
    assert isinstance(method.method.config, Config)
    assert method.method.config.answer.temperature_by_category == "mt_bench"
    assert method.method.config.answer.top_p == 1.0


def test_settings_that_were_filled_in_load_to_themselves():
    config = Config.model_validate({"preset": "submission", "answer": {"temperature": 0}})
    assert Config.model_validate(config.model_dump(mode="json")) == config
    config = filled_in("mt_bench", preset="submission")
    for dataset in (None, "mt_bench", "probdiff_texts"):
        assert filled_in(dataset, **config.model_dump(mode="json")) == config


def test_without_any_setting_it_is_that_of_the_acl_findings():
    assert Config() == Config.model_validate({"preset": "acl_findings"})
    assert (Config().answer.temperature, Config().revision.temperature) == (0.7, 0.1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"preset": "x"}, "'acl_findings' or 'submission'"),
        ({"prompt": "x"}, "unknown prompt 'x'"),
        ({"prompt": "{{ prompt }}"}, "does not show answer"),
        ({"prompt": "{{ answer }} {{ reply }}"}, "uses unknown fields reply"),
        ({"prompt": "{{ answer"}, "prompt template"),
        ({"deltas": [float("nan")]}, "finite"),
        ({"deltas": []}, "at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(settings)


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("refinement_code", "dd1c3f4f8f39431db93beb333ac539ce914c2e734fc62ee7542bc2caccba70f4"),
        ("translation_code", "1dd9830fad5dc4c642053f70dd8f16f971c46d32ab64f6702b82fdf761cea550"),
    ],
)
def test_the_prompts_of_the_released_code_are_its_own_byte_for_byte(name, sha256):
    """Digests of the texts in xiatingyu/ProbDiff at 79bb264, generation_task/vllm_modify*.py."""
    template = PROMPTS[name]
    theirs = template.replace("{{ prompt }}", "{instruction}").replace("{{ answer }}", "{response}")
    assert hashlib.sha256(theirs.encode()).hexdigest() == sha256


@pytest.mark.parametrize(
    ("prompt", "answer", "rewriting", "leaked"),
    [
        ("refinement", "x", "#Rewritten Response#: x", True),
        ("refinement", "x", "rewritten response: x", False),
        ("refinement_code", "x", "Here is the rewritten response: x", True),
        ("translation_code", "x", "Given response: x", True),
        ("refinement", "about #Given Prompt#", "on #given prompt#", False),
        ("Give a better one. #MINE#: {{ answer }} #BETTER#:", "x", "#Better#: x", True),
    ],
)
def test_markers_of_the_prompt_that_stand_in_a_rewriting_are_a_leak(
    prompt, answer, rewriting, leaked
):
    assert leaks(Config(prompt=prompt).markers(), answer, rewriting) is leaked


def test_the_prompt_for_translations_does_not_permit_keeping_the_answer():
    # As ../shared/design/methods.md quotes the released code, section 1.3.
    model = Model({"q1": "ab"}, ["b"])
    rows_of(model, config=Config(prompt="translation_code"))
    _, rewriting = model.drawn()
    text = rewriting.messages[-1].content
    for part in (
        "non-text parts such as the table and the code in #Given Prompt#",
        "Also, please do not omit the input in #Given Prompt#.",
        "using the following method:\nPlease make the Response more relevant to #Given Prompt#.",
        "try your best not to make the #Rewritten Response# become verbose",
        "'given response' and 'rewritten response' are not allowed to appear",
        "#Given Prompt#:\nq1\n#Given Response#:\nab\n#Rewritten Response#:\n",
    ):
        assert part in text
    assert not any(word in text for word in ("emoji", "unchanged", "length"))


SEVERAL = Config(prompt="compact", rewritings=3)


def test_d_is_the_mean_over_several_rewritings():
    model = Model({"q1": "ab"}, ["bcd", "c", "ab"])
    (row,) = rows_of(model, config=SEVERAL)
    ell = -(97 + 98) / 200
    each = [-(98 + 99 + 100) / 300 - ell, -99 / 100 - ell, 0.0]
    assert row["d"] == pytest.approx(sum(each) / 3, abs=1e-6)
    assert row["ell_last"] - row["ell_first"] == pytest.approx(row["d"], abs=1e-12)
    assert (row["rewriting"], row["n_tokens_last"], row["unchanged"]) == ("bcd", 3, False)
    # Three draws of one request, of which the first is that of a single rewriting.
    first, *rest = model.drawn()[1:]
    assert [one.repeat for one in (first, *rest)] == [0, 1, 2]
    alone = Model({"q1": "ab"}, ["bcd"])
    rows_of(alone)
    assert alone.drawn()[1] == first
    assert {one.messages for one in rest} == {first.messages}
    assert len(set(model.scores())) == 3


def test_several_rewritings_of_several_rounds_and_turns_are_chains_of_their_own():
    config = Config(prompt="compact", rounds=2, rewritings=2)
    model = Model({"q1": "a", "q2": "b"}, ["c", "d", "e", "f", "g", "h", "i", "j"])
    one, two = rows_of(model, item=TWO_TURNS, config=config)
    # Round 1 writes c, d (first chain) and e, f (second); round 2 writes g, h and i, j.
    shown = [ask.messages[-1].content for ask in model.drawn()[-4:]]
    assert [text.partition("Answer:")[2].strip()[0] for text in shown] == ["c", "d", "e", "f"]
    assert [ask.repeat for ask in model.drawn()[-8:]] == [0, 0, 2, 2, 1, 1, 3, 3]
    assert one["ell_last"] == pytest.approx(-(ord("g") + ord("i")) / 200, abs=1e-6)
    assert two["ell_last"] == pytest.approx(-(ord("h") + ord("j")) / 200, abs=1e-6)


def test_a_mean_over_rewritings_of_which_one_is_empty_is_undefined():
    (row,) = rows_of(Model({"q1": "ab"}, ["c", " ", "d"]), config=SEVERAL)
    assert (row["d"], row["ell_last"], row["undefined"]) == (None, None, "empty rewriting")
    assert row["empty_rewriting"]


def test_one_rewriting_is_what_there_was_and_greedy_ones_are_refused():
    assert "rewritings" not in COMPACT.model_dump()
    assert SEVERAL.model_dump()["rewritings"] == 3
    with pytest.raises(ValidationError, match="several rewritings are identical"):
        Config(rewritings=2, revision={"temperature": 0})


def test_the_plan_has_no_fewer_requests_than_are_sent():
    config = Config(prompt="compact", rounds=2, rewritings=2)
    planned = {stage.ask: stage.per_item for stage in ProbDiff(config).stages(("m",))}
    model = Model({"q1": "a"}, ["b", "c", "d", "e"])
    rows_of(model, config=config)
    assert planned == {"generate": len(model.drawn()) - 1, "score": len(model.scores())}
