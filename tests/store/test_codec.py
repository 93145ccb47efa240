"""Outcomes and rows round-trip bit for bit; damage is a StoreError."""

import math
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orchestrator.errors import StoreError
from orchestrator.records import (
    Choice,
    Failure,
    Generation,
    Outcome,
    PairScores,
    Rewards,
    Scored,
    TopLogprobs,
)
from orchestrator.store import blobs, codec, values

# Every code point, lone surrogates included: model output is untrusted.
texts = st.text(st.characters(), max_size=400)
counts = st.integers(0, 2**31)
doubles = st.floats(width=64)


def ints(shape: Any) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.int32, shape)


def floats(shape: Any) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.float32, shape, elements=st.floats(width=32))


lengths = st.integers(0, 200)
shapes = st.tuples(st.integers(0, 12), st.integers(0, 12))
tops = shapes.flatmap(lambda shape: st.builds(TopLogprobs, ints(shape), floats(shape)))
generations = st.builds(
    Generation,
    text=texts,
    finish_reason=texts,
    n_prompt_tokens=counts,
    n_completion_tokens=counts,
    token_ids=st.none() | lengths.flatmap(ints),
    logprobs=st.none() | lengths.flatmap(floats),
    top=st.none() | tops,
    raw=st.booleans(),
    n_cached_tokens=counts,
    offsets=st.none() | lengths.flatmap(ints),
)


def answer(seed: int, n_tokens: int, width: int, n_distinct: int) -> Generation:
    """Alternatives with any bits as log-probabilities, and ids that repeat or do not."""
    rng = np.random.default_rng(seed)
    shape = (n_tokens, width)
    bits_of_any = rng.integers(0, 2**32, shape, np.uint32)
    ids = rng.integers(-1, n_distinct, shape, np.int32)
    own = rng.integers(-(2**31), 2**31, n_tokens, np.int32)
    top = TopLogprobs(ids, bits_of_any.view(np.float32))
    return Generation("", "stop", token_ids=own, top=top, offsets=own[::-1].copy())


alternatives = st.builds(
    answer,
    st.integers(0, 2**32),
    st.integers(1, 90),
    st.integers(1, 25),
    st.sampled_from([1, 30, 300, 150_000, 2**31 - 1]),
)
scores = st.builds(
    Scored,
    lengths.flatmap(ints),
    lengths.flatmap(floats),
    counts,
    texts,
    texts,
    counts,
    st.none() | tops,
    st.none() | st.dictionaries(texts, lengths.flatmap(floats) | shapes.flatmap(floats)),
)
choices = st.builds(
    Choice,
    st.lists(doubles, max_size=9).map(tuple),
    st.lists(doubles, max_size=9).map(tuple),
    texts,
    counts,
    counts,
    counts,
)
pair_scores = st.builds(
    PairScores, shapes.flatmap(floats), shapes.flatmap(floats), texts, st.integers(-40, 40)
)
failures = st.builds(
    Failure, texts, texts, st.booleans(), st.integers(0, 599), st.none() | st.floats(0, 1e9)
)
rewards = st.builds(Rewards, shapes.flatmap(floats), st.booleans(), texts, counts, counts)
outcomes = generations | scores | choices | pair_scores | failures | rewards


def bits(value: object) -> object:
    """Return a value that is equal for records equal bit for bit, nan and -0.0 included."""
    match value:
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case float():
            return struct.pack("<d", value)
        case tuple():
            return tuple(bits(inner) for inner in value)
        case dict():
            return tuple((name, bits(inner)) for name, inner in value.items())
        case (
            TopLogprobs()
            | Generation()
            | Scored()
            | Choice()
            | PairScores()
            | Rewards()
            | Failure()
        ):
            fields = (bits(getattr(value, name)) for name in value.__struct_fields__)
            return type(value).__name__, *fields
        case _:
            return value


def shortened(arrays: bytes) -> bytes:
    """Arrays as they were stored before alternatives had a form of their own."""
    if len(arrays) < blobs.COMPRESS_FROM_BYTES:
        return arrays
    return min(arrays, blobs.compressed([blobs.content_of(arrays, None)[1]])[0], key=len)


def encoded_rows(content: list[tuple[Any, ...]]) -> bytes:
    return blobs.checked(blobs.shorten([values.encode(content)])[0])


@given(outcomes)
def test_stored_outcome_comes_back_bit_for_bit(outcome: Outcome | Failure) -> None:
    assert bits(codec.decode(*codec.encode(outcome))) == bits(outcome)


@given(outcomes)
def test_uncompressed_blobs_decode_to_the_same(outcome: Outcome | Failure) -> None:
    assert bits(codec.decode(*codec.pack(outcome))) == bits(outcome)


@given(st.lists(outcomes | alternatives, max_size=4))
def test_outcomes_that_are_compressed_together_are_stored_as_each_alone(
    several: list[Outcome | Failure],
) -> None:
    packed = [codec.pack(outcome) for outcome in several]
    together = [(one, codec.compressible(one), b"%d" % n) for n, one in enumerate(packed)]
    alone = [codec.encode(outcome, b"%d" % n) for n, outcome in enumerate(several)]
    assert codec.compress(together) == alone
    # What is stored already, as by another run, stays byte for byte.
    assert codec.compress([(one, None, b"") for one in alone] + together) == alone * 2


@given(alternatives)
def test_alternatives_come_back_bit_for_bit(made: Generation) -> None:
    assert bits(codec.decode(*codec.encode(made))) == bits(made)


@given(alternatives)
def test_alternatives_stored_before_they_had_a_form_of_their_own_are_read(made: Generation) -> None:
    head, arrays = codec.pack(made)
    assert bits(codec.decode(head, shortened(arrays))) == bits(made)


def test_alternatives_of_a_16_bit_softmax_take_little_space() -> None:
    rng = np.random.default_rng(0)
    logits = np.sort(rng.integers(0, 512, (256, 20)) / np.float32(64))[:, ::-1]
    logprobs = (logits - rng.uniform(9, 10, (256, 1))).astype(np.float32)
    ids = np.minimum(rng.zipf(1.2, (256, 20)), 150_000).astype(np.int32)
    made = Generation("", "stop", top=TopLogprobs(ids, logprobs))
    packed = codec.pack(made)
    assert len(b"".join(codec.encode(made))) < 0.8 * len(shortened(packed.arrays))


def test_an_index_without_an_id_is_damage() -> None:
    top = TopLogprobs(
        np.arange(400, dtype=np.int32).reshape(20, 20) % 4, np.zeros((20, 20), np.float32)
    )
    # As an earlier version stored it: a checksum would see it before.
    head = codec.pack(Generation("", "stop", top=top)).head
    arrays = codec.encode(Generation("", "stop", top=top)).arrays
    body = bytearray(blobs.decompressed(arrays[3:], 4 * 4 + 400 + 4 * 400))
    body[4 * 4 + 7] = 200
    with pytest.raises(StoreError, match="an index has no id"):
        codec.decode(head, arrays[:3] + blobs.compressed([bytes(body)])[0])


def test_arrays_that_were_not_observed_differ_from_empty_ones() -> None:
    empty = Generation("", "stop", token_ids=np.zeros(0, np.int32))
    back = codec.decode(*codec.encode(empty))
    assert isinstance(back, Generation)
    assert back.token_ids is not None
    assert back.logprobs is None


def test_a_score_stored_before_there_were_features_has_none() -> None:
    scored = Scored(np.zeros(2, np.int32), np.zeros(2, np.float32))
    head, arrays = codec.pack(scored)
    fields = msgspec.msgpack.decode(head[2:])
    older = head[:2] + msgspec.msgpack.encode(fields[:-1])
    back = codec.decode(older, arrays)
    assert isinstance(back, Scored)
    assert back.features is None
    np.testing.assert_array_equal(back.logprobs, scored.logprobs)


def test_a_feature_of_another_type_is_refused() -> None:
    wide: Any = {"entropy": np.zeros(2)}
    with pytest.raises(StoreError, match="float64"):
        codec.encode(Scored(np.zeros(2, np.int32), np.zeros(2, np.float32), features=wide))


def test_nan_payload_of_a_logprob_survives() -> None:
    payload = np.array([0x7FC12345, 0xFF800000], np.uint32).view(np.float32)
    back = codec.decode(*codec.encode(Scored(np.zeros(2, np.int32), payload)))
    assert isinstance(back, Scored)
    assert back.logprobs.tobytes() == payload.tobytes()


def test_huge_text_survives_and_shrinks() -> None:
    text = "a long answer \ud83d\n" * 400_000
    packed = codec.encode(Generation(text, "length"))
    assert len(b"".join(packed)) < len(text) / 50
    back = codec.decode(*packed)
    assert isinstance(back, Generation)
    assert back.text == text


def test_array_that_is_a_view_is_stored_as_it_reads() -> None:
    logprobs = np.arange(40, dtype=np.float32)[::-2]
    back = codec.decode(*codec.encode(Scored(np.zeros(20, np.int32), logprobs)))
    assert isinstance(back, Scored)
    np.testing.assert_array_equal(back.logprobs, logprobs)


def test_decoded_arrays_can_not_be_written() -> None:
    back = codec.decode(*codec.encode(Scored(np.zeros(2, np.int32), np.zeros(2, np.float32))))
    assert isinstance(back, Scored)
    with pytest.raises(ValueError, match="read-only"):
        back.logprobs[0] = 1.0


def test_wrong_array_type_is_refused_with_its_name() -> None:
    wide: Any = np.zeros(3, np.int64)
    with pytest.raises(StoreError, match="int64"):
        codec.encode(Generation("", "stop", token_ids=wide))


def test_top_logprobs_of_different_shapes_are_refused() -> None:
    top = TopLogprobs(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))
    with pytest.raises(StoreError, match="top"):
        codec.encode(Generation("", "stop", top=top))


def test_unknown_version_is_refused() -> None:
    head, arrays = codec.encode(Choice((0.0,), (0.0,), "m"))
    with pytest.raises(StoreError, match="format 9"):
        codec.decode(bytes((9,)) + head[1:], arrays)


@given(outcomes, st.data())
def test_cut_or_flipped_bytes_are_a_store_error(
    outcome: Outcome | Failure, data: st.DataObject
) -> None:
    head, arrays = codec.encode(outcome)
    place = data.draw(st.integers(0, len(head) + len(arrays) - 1))
    damaged = bytearray(head + arrays)
    damaged[place] ^= data.draw(st.integers(1, 255))
    if place >= len(head) and data.draw(st.booleans()):
        del damaged[place:]
    with pytest.raises(StoreError):
        codec.decode(bytes(damaged[: len(head)]), bytes(damaged[len(head) :]))


@given(outcomes)
def test_outcomes_that_earlier_versions_stored_without_checksums_are_read(
    outcome: Outcome | Failure,
) -> None:
    packed = codec.pack(outcome)
    head, arrays = blobs.shorten([packed.head])[0], shortened(packed.arrays)
    assert codec.encode(codec.decode(head, arrays)) == codec.encode(outcome)


def test_a_judges_choice_takes_little_space() -> None:
    logprobs = (-0.1, -2.5, -math.inf)
    assert len(b"".join(codec.encode(Choice(logprobs, logprobs, "top_logprobs", 900, 800)))) < 64


cells = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | doubles | texts
table = st.lists(st.lists(cells | st.binary(), max_size=8).map(tuple), max_size=8)


@given(table)
def test_rows_come_back_bit_for_bit(content: list[tuple[Any, ...]]) -> None:
    back = values.decode(encoded_rows(content))
    assert bits(tuple(back)) == bits(tuple(content))


def test_lone_surrogates_inside_nested_cells_survive() -> None:
    content = [({"cause": "\udc00"}, ["\ud800", 1])]
    assert values.decode(encoded_rows(content)) == content


def test_numpy_scalars_become_plain_values() -> None:
    back = values.decode(encoded_rows([(np.float32(0.5), np.int64(3), np.bool_(1))]))
    assert back == [(0.5, 3, True)]


@pytest.mark.parametrize("value", [object(), 2**70, {"\ud800": 1}])
def test_cell_that_can_not_be_stored_is_a_store_error(value: object) -> None:
    with pytest.raises(StoreError, match="row"):
        encoded_rows([(value,)])


def test_flipped_bits_of_rows_are_a_store_error() -> None:
    blob = encoded_rows([(1, 0.5, "x")])
    for place in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(StoreError):
            values.decode(bytes(damaged))


def test_rows_of_an_unknown_version_are_refused() -> None:
    with pytest.raises(StoreError, match="format 9"):
        values.decode(b"\x09" + encoded_rows([(1,)])[1:])


@pytest.mark.parametrize("said", [4_999, 5_001])
def test_arrays_of_another_length_than_their_head_says_are_damage(said):
    frame = blobs.compressed([b"x" * 5_000])[0]
    assert blobs.decompressed(frame, 5_000) == b"x" * 5_000
    with pytest.raises(StoreError, match="damaged"):
        blobs.decompressed(frame, said)
