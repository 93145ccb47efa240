"""The weights and tokenizers under `launch/embedded/models`."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

ABSENT = "torch and the bundled models are absent"
torch = pytest.importorskip("torch", reason=ABSENT)
transformers = pytest.importorskip("transformers", reason=ABSENT)

from orchestrator.datasets.demo import DIGITS, LETTERS, generate  # noqa: E402
from orchestrator.prompts import compact  # noqa: E402
from training import measure, reward  # noqa: E402 - needs torch
from training.batches import Encoder  # noqa: E402
from training.corpus import render  # noqa: E402
from training.export import ANSWERERS, MODELS, NAMES, WITH_BOS  # noqa: E402
from training.progress import answers  # noqa: E402
from training.tokenizer import build  # noqa: E402

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(MODELS / "judge")


@pytest.fixture(scope="module")
def encoder():
    return Encoder(build())


def _ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _tokens(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(_ids(tokenizer, text))


def test_files_are_small_and_complete():
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 40_000_000
    for name in NAMES:
        assert {path.name for path in (MODELS / name).iterdir()} == {
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }


def test_the_reward_model_is_small_and_prefers_right_answers():
    folder = MODELS / reward.NAME
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
    model, encoder = reward.load_exported(folder), Encoder(build())
    items = generate(210, seed=31)
    assert reward.accuracy(model, encoder, items) > 0.85
    saved = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert saved == json.loads(build().to_str())


def test_tokenizer_can_be_built_again():
    built = json.loads(build().to_str())
    for name in NAMES:
        saved = json.loads((MODELS / name / "tokenizer.json").read_text(encoding="utf-8"))
        assert saved == built


@settings(max_examples=200, deadline=None)
@given(text=st.text())
@example("\U0001f642\r\n")
@example("e\u0301 o\u0308")
@example("a  b\t c ")
@example(" , .")
@example("don't [[x]]")
@example("\x00\ufffd")
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(_ids(tokenizer, text)) == text


def test_symbols_are_single_tokens(tokenizer):
    for symbol in LETTERS + DIGITS:
        assert len(_ids(tokenizer, symbol)) == 1
        assert len(_ids(tokenizer, f" {symbol}")) == 1
    assert len(_ids(tokenizer, "k d a f 7 0")) == 6


def test_labels_are_paths_of_three_tokens(tokenizer):
    for label in compact.LABELS:
        assert _tokens(tokenizer, label) == ["[[", label[2:-2], "]]"]
        assert _tokens(tokenizer, f"so {label}")[-3:] == ["[[", label[2:-2], "]]"]
    for rating in compact.RATINGS:
        assert len(_ids(tokenizer, rating)) == 1


@settings(max_examples=100, deadline=None)
@given(user=st.text(max_size=20), reply=st.text(max_size=20))
def test_nothing_joins_across_the_start_of_a_reply(tokenizer, user, reply):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": user}], add_generation_prompt=True, tokenize=False
    )
    assert _ids(tokenizer, prompt) + _ids(tokenizer, reply) == _ids(tokenizer, prompt + reply)


@pytest.mark.parametrize("name", NAMES)
def test_templates(name):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / name)
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Sort: b a c"},
        {"role": "assistant", "content": "a b c"},
        {"role": "user", "content": "First: b a c"},
    ]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == ("<s>" if name in WITH_BOS else "") + (
        "<|im_start|>system\nAnswer briefly.<|im_end|>\n"
        "<|im_start|>user\nSort: b a c<|im_end|>\n"
        "<|im_start|>assistant\na b c<|im_end|>\n"
        "<|im_start|>user\nFirst: b a c<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_training_encodes_as_the_tokenizer_does(tokenizer, encoder):
    for item in generate(50, seed=1):
        fields = {"prompt": item.prompt, "reference": item.reference}
        text = render(compact.PAIRWISE, **fields, answer_a="a b", answer_b="")
        assert encoder.text(text) == _ids(tokenizer, text)


def test_transformers_agrees_with_the_training_model(encoder):
    folder = MODELS / "expert"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ours = measure.load_exported(folder)
    ids = torch.tensor([encoder.prompt("Reverse: k d a f")])
    with torch.inference_mode():
        assert torch.allclose(theirs(ids).logits, ours(ids), atol=1e-4)


def test_answerers_differ_in_skill(encoder):
    items = generate(70, seed=99)
    shares = []
    for name in ANSWERERS:
        model = measure.load_exported(MODELS / name)
        texts = answers(model, encoder, items, bos=name in WITH_BOS)
        shares.append(measure.by_category(items, texts)["all"])
    novice, apprentice, expert = shares
    assert 0.15 < novice < apprentice - 0.1 < apprentice < expert - 0.1
    assert expert > 0.9


def test_judge_prefers_right_answers(encoder):
    judge = measure.direct_judge(measure.load_exported(MODELS / "judge"), encoder)
    assert measure.preferences(judge, measure.right_and_wrong(generate(60, seed=98))) >= 0.85


def test_no_machine_paths():
    for path in MODELS.rglob("*.json"):
        assert str(Path.home()) not in path.read_text(encoding="utf-8")
