"""Labels of several tokens from a real vocabulary of 49,152 tokens.

Our client's distributions are held to a float32 pass over each label's own tokens, and the cutting
of labels, in the embedded server and in the client of others, to the tokenizer of the published
`tokenizer.json` alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from backends._tokens import Contexts, Ids, TokenizerRoutes
from launch.embedded.tokens import Tokens
from orchestrator.ask import ChooseAsk
from orchestrator.records import Choice, Label, Message, Messages, Prefix, labels
from tests.conformance.measure import NUMBERS, SYMBOLS, known
from tests.conformance.reference import Reference, reference
from tests.conformance.servers import REAL_KINDS, Running, running

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.smollm2, pytest.mark.timeout(600)]
CHAT = (Message("system", "Be brief."), Message("user", "Is 3 + 4 = 8 a good answer?"))
OPENING = "<|im_start|>assistant\n"
END_OF_TURN = 2
"""<|im_end|>"""


@dataclass(frozen=True)
class Case:
    """Labels after a begun answer.

    Attributes:
        labels: The labels.
        begun: The begun answer.
        boundary: How the labels meet it: "separate", or "merged" where its last token would merge
            with each of them.
        nested: Spellings that begin another one, or begin with another one, as tokens.
    """

    labels: tuple[Label, ...]
    begun: str = ""
    boundary: str = "separate"
    nested: frozenset[str] = frozenset()


CASES = {
    "verdicts": Case(SYMBOLS),
    "numbers, one of which begins another": Case(NUMBERS, nested=frozenset({"1", "10"})),
    "words of one to three tokens": Case(
        labels("yes", "no", "worse", "not sure", "certainly not", "uncertain")
    ),
    "spellings": Case(
        (
            Label("better", ("better", " better", "Better")),
            Label("worse", ("worse", " worse", "Worse")),
            Label("same", ("the same", " the same", "same")),
        )
    ),
    "shared beginnings": Case(labels("very good", "very bad", "very, very bad", "not very good")),
    "each the beginning of the next": Case(
        labels("good", "good enough", "good enough for me", "bad"),
        nested=frozenset({"good", "good enough", "good enough for me"}),
    ),
    # "inter" begins the text of the other, but not its tokens.
    "texts that begin others": Case(labels("inter", "international", "internationally")),
    "parts of characters": Case(labels("👍", "👎", "👌", "不", "好")),
    "verdicts that are begun": Case(labels(">>]]", ">]]", "=]]", "<]]", "<<]]"), "My verdict: [["),
    "numbers that are begun": Case(labels("/10", "0/10", "5/10"), "My grade is 1"),
    "brackets that would merge": Case(
        labels("[>>]]", "[>]]", "[=]]", "[<]]", "[<<]]"), "My verdict: [", "merged"
    ),
    "spaces that would merge": Case(labels("A", "B", "neither of them"), "My verdict: ", "merged"),
    "words that would merge": Case(
        labels("ain", "ainly not"), "I am cert", "merged", frozenset({"ain", "ainly not"})
    ),
}


@pytest.fixture(scope="module")
def alone(folder: Path) -> Tokenizer:
    """The published tokenizer, without transformers and without our code."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=REAL_KINDS[name].marks) for name in ("embedded", "vllm", "llamacpp")
])  # fmt: skip
def real_server(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("servers") / "server.log"
    with running(REAL_KINDS[request.param], log) as found:
        yield found


def chosen(run: Running, wanted: Sequence[Label], begun: str) -> Choice:
    async def choose() -> Choice:
        async with run.connected() as backend:
            return known(await backend.choose(ChooseAsk("m", CHAT, tuple(wanted), Prefix(begun))))

    return asyncio.run(choose())


def ids_of(tokenizer: Tokenizer, text: str) -> Ids:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def cut(tokenizer: Tokenizer, begun: str, text: str) -> tuple[Ids, str]:
    """A text's tokens after a begun answer, as the documentation of `/v1/choose` has them."""
    before, own = ids_of(tokenizer, OPENING + begun), ids_of(tokenizer, text)
    joint = ids_of(tokenizer, OPENING + begun + text)
    if joint[: len(before)] != before:
        return own, "merged"
    rest = joint[len(before) :]
    return rest, "separate" if rest == own else "joint"


def is_nested(path: Ids, paths: Sequence[Ids]) -> bool:
    return any(
        one != path and (one[: len(path)] == path or path[: len(one)] == one) for one in paths
    )


def expected(
    truth: Reference, before: Sequence[int], groups: Sequence[Sequence[Ids]]
) -> list[float]:
    """ln p of labels: each path by a pass of its own, those of a label summed once each."""
    flat = [path for group in groups for path in group]
    closed = {path: (*path, END_OF_TURN) if is_nested(path, flat) else path for path in flat}
    return [
        float(
            np.logaddexp.reduce([truth.scores(before, closed[path]).sum() for path in set(group)])
        )
        for group in groups
    ]


def tolerance(run: Running, groups: Sequence[Sequence[Ids]]) -> float:
    """The largest error of a label: for others' servers that of each token, as rounding adds up."""
    allowed = {"llamacpp": 1e-3}.get(run.kind.name, 1e-4)
    if run.kind.name == "embedded":
        return allowed
    return allowed * max(len(path) + 1 for group in groups for path in group)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_labels_have_the_product_of_their_tokens(real_server, folder, alone, case: Case) -> None:
    truth = reference(folder)
    spelled = {text: cut(alone, case.begun, text) for one in case.labels for text in one.spellings}
    assert {boundary for _, boundary in spelled.values()} == {case.boundary}
    paths = [path for path, _ in spelled.values()]
    assert max(map(len, paths)) > 1
    assert {text for text, (path, _) in spelled.items() if is_nested(path, paths)} == case.nested
    before = [*truth.prompt(CHAT), *ids_of(alone, case.begun)]
    groups = [[spelled[text][0] for text in label.spellings] for label in case.labels]
    found = chosen(real_server, case.labels, case.begun)
    assert found.exact
    assert found.n_prompt_tokens == len(before)
    np.testing.assert_allclose(
        found.logprobs, expected(truth, before, groups), rtol=0, atol=tolerance(real_server, groups)
    )
    # Labels exclude each other, so that what they have together is at most everything.
    assert np.exp(found.logprobs).sum() <= 1 + 1e-6


def test_random_labels_with_common_beginnings(real_server, folder, alone) -> None:
    truth, rng = reference(folder), np.random.default_rng(16)
    before = truth.prompt(CHAT)
    wanted: list[Label] = []
    while len(wanted) < 8:
        # Up to three tokens of the whole vocabulary; every other label begins like one before.
        text = alone.decode(rng.integers(300, 49_152, rng.integers(1, 4)).tolist())
        if wanted and rng.random() < 0.5:
            text = wanted[rng.integers(len(wanted))].name[: rng.integers(1, 6)] + text
        if "\ufffd" not in text and text not in {one.name for one in wanted}:
            wanted.append(Label(text, (text,)))
    groups = [[cut(alone, "", one.name)[0]] for one in wanted]
    found = chosen(real_server, wanted, "")
    np.testing.assert_allclose(
        found.logprobs, expected(truth, before, groups), rtol=0, atol=tolerance(real_server, groups)
    )


class Routes(TokenizerRoutes):
    """The tokenizer routes of a server, answered on this machine."""

    def __init__(self, alone: Tokenizer) -> None:
        self._alone = alone

    async def chat(self, messages: Messages, *, opens: bool, goes_on: bool) -> Ids:
        turns = [f"<|im_start|>{one.role}\n{one.content}<|im_end|>\n" for one in messages]
        text = "".join(turns).removesuffix("<|im_end|>\n" * goes_on)
        return ids_of(self._alone, text + OPENING * opens)

    async def plain(self, text: str, *, special: bool) -> Ids:
        return ids_of(self._alone, text)

    async def text(self, ids: Ids) -> str:
        return self._alone.decode(list(ids), skip_special_tokens=False)

    async def spells_spaces(self) -> bool:
        return False

    async def ends_turn(self, ids: Ids, token: int) -> bool:
        return token == END_OF_TURN


@pytest.fixture(scope="module")
def of_server(folder: Path) -> Tokens:
    return Tokens(AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def texts(alone: Tokenizer) -> list[str]:
    """The texts of all tokens that are whole characters."""
    found = [alone.decode([token]) for token in range(17, alone.get_vocab_size())]
    return [text for text in found if "\ufffd" not in text]


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_client_and_server_cut_labels_as_the_tokenizer_does(
    alone, of_server, texts, data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from(texts), max_size=3).map("".join)
    odd = st.text("[]<>=:. \n\t'10aVé日👍", max_size=12)
    begun = data.draw(st.just("") | odd | some, label="begun")
    text = data.draw((odd | some).filter(bool), label="label")
    prompt = ids_of(alone, f"<|im_start|>user\nGood?<|im_end|>\n{OPENING}")
    opened = ids_of(alone, OPENING)
    answer, _ = cut(alone, "", begun)
    before = opened + answer
    joint, own = ids_of(alone, OPENING + begun + text), ids_of(alone, text)
    if joint[: len(before)] == before:
        wanted = joint[len(before) :]
        boundary = "separate" if wanted == own else "joint"
    else:
        is_usual = ids_of(alone, OPENING + begun) == before
        wanted, boundary = own, "merged" if is_usual else "separate"
    whole = (*prompt, *answer)
    rendered = f"<|im_start|>user\nGood?<|im_end|>\n{OPENING}{begun}"
    by_server = of_server.continuation(of_server.context(rendered, whole), text)
    assert (tuple(by_server.ids), by_server.boundary) == (wanted, boundary)
    by_client = asyncio.run(
        Contexts(Routes(alone), plain=False).continuation(whole, text, len(answer))
    )
    assert by_client.ids == wanted
    # The client sees the end of the context only, which may be cut as usual where the whole is not.
    is_cut_otherwise = joint[: len(before)] != before
    assert by_client.boundary in ({boundary, "merged"} if is_cut_otherwise else {boundary})
