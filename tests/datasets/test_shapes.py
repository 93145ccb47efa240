"""Files as other programs write them: each form is told by content, and no other is taken."""

import bz2
import functools
import gzip
import json
import lzma
import re

import polars as pl
import pytest
import yaml
import zstandard

from orchestrator.ask import GenerateAsk
from orchestrator.cli import main
from orchestrator.dataset.files import open_rows
from orchestrator.dataset.shapes import at
from orchestrator.errors import DatasetError
from orchestrator.recipe.load import load
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import Failure, Generation, Item, Message, Sampling
from orchestrator.runner.models.answers import AnswerFile
from orchestrator.runner.planning.prepare import prepare
from tests.datasets.test_open import opened

ASKED = ("Why is it so?", "How many?", "And then?")


def chat(number, answer):
    return [
        {"role": "user", "content": ASKED[number]},
        {"role": "assistant", "content": answer},
    ]


def completion(answer):
    return {"model": "m", "choices": [{"index": 0, "message": {"content": answer}}]}


def inspect_log(rows):
    samples = [{"id": n, "epoch": 1, "input": ASKED[n], "output": completion(a)} for n, a in rows]
    return {"version": 2, "eval": {"model": "m"}, "plan": {"steps": [{}]}, "samples": samples}


def helm(rows):
    states = [
        {
            "instance": {"id": f"id{n}", "input": {"text": ASKED[n]}},
            "request": {"model": "m", "prompt": f"Q: {ASKED[n]}"},
            "result": {"completions": [{"text": a}] if a else []},
        }
        for n, a in rows
    ]
    return {"adapter_spec": {}, "request_states": states}


def promptfoo(rows):
    results = [
        {
            "provider": {"id": "m"},
            "prompt": {"raw": f"Q: {ASKED[n]}"},
            "vars": {"question": ASKED[n]},
            "response": {"output": a} if a else {"error": "500"},
        }
        for n, a in rows
    ]
    return {"evalId": "e", "results": {"prompts": [{"raw": "Q"}], "results": results}}


# Each gives the content of a file with these answers to ASKED, None for one that failed.
FORMS = {
    "arena_hard_v01.jsonl": lambda rows: [
        {"question_id": str(n), "model_id": "m", "choices": [{"turns": [{"content": a}]}]}
        for n, a in rows
    ],
    "arena_hard_v2.jsonl": lambda rows: [
        {"uid": f"u{n}", "model": "m",
         "messages": [chat(n, a)[0], {"role": "assistant", "content": {"answer": a}}]}
        for n, a in rows
    ],
    "alpaca_eval.json": lambda rows: [
        {"instruction": ASKED[n], "output": a, "generator": "m"} for n, a in rows
    ],
    "batch.jsonl": lambda rows: [
        {"custom_id": str(n), "error": None,
         "response": {"status_code": 200, "body": completion(a)} if a else None}
        for n, a in rows
    ],
    "responses_batch.jsonl": lambda rows: [
        {"custom_id": str(n), "response": {"body": {"model": "m", "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": a}]},
        ]}}}
        for n, a in rows
    ],
    "anthropic_batch.jsonl": lambda rows: [
        {"custom_id": str(n), "result": {"type": "succeeded", "message": {
            "model": "m", "content": [{"type": "text", "text": a}]}} if a else
            {"type": "errored", "error": {}}}
        for n, a in rows
    ],
    "chats.jsonl": lambda rows: [{"id": n, "messages": chat(n, a)} for n, a in rows],
    "sharegpt.json": lambda rows: [
        {"conversations": [{"from": "human", "value": ASKED[n]}, {"from": "gpt", "value": a}]}
        for n, a in rows
    ],
    "inspect.json": inspect_log,
    "helm.json": helm,
    "promptfoo.json": promptfoo,
    "deepeval.json": lambda rows: {
        "testCases": [{"input": ASKED[n], "actualOutput": a} for n, a in rows],
        "metricsScores": [{"metric": "x"}],
    },
    "lm_eval.jsonl": lambda rows: [
        {"doc_id": n, "doc": {"question": ASKED[n]}, "resps": [[a]]} for n, a in rows
    ],
    "wandb.table.json": lambda rows: {
        "columns": ["id", "output"], "data": [[n, a] for n, a in rows], "nrows": len(rows)
    },
    "gemini_batch.jsonl": lambda rows: [
        {"request": {"contents": [{"role": "user", "parts": [{"text": ASKED[n]}]}]},
         "response": {"candidates": [{"content": {"parts": [{"text": a}]}}]} if a else {
             "error": {"code": 8}}}
        for n, a in rows
    ],
    "bedrock_batch.jsonl": lambda rows: [
        {"recordId": str(n), "modelInput": {"messages": chat(n, a)[:1]},
         "modelOutput": {"content": [{"type": "text", "text": a}]} if a else None}
        for n, a in rows
    ],
    "vllm_outputs.jsonl": lambda rows: [
        {"request_id": str(n), "prompt": ASKED[n], "outputs": [{"index": 0, "text": a}]}
        for n, a in rows
    ],
    "langsmith.jsonl": lambda rows: [
        {"id": f"u{n}", "inputs": {"question": ASKED[n]}, "outputs": {"output": a}}
        for n, a in rows
    ],
    "langfuse.jsonl": lambda rows: [
        {"id": f"u{n}", "input": {"query": ASKED[n]}, "output": {"answer": a}} for n, a in rows
    ],
    "ragas.jsonl": lambda rows: [{"user_input": ASKED[n], "response": a} for n, a in rows],
    "opencompass.json": lambda rows: {
        str(n): {"origin_prompt": [{"role": "HUMAN", "prompt": ASKED[n]}], "prediction": a}
        for n, a in rows
    },
    "float_ids.jsonl": lambda rows: [{"id": float(n), "text": a} for n, a in rows],
}  # fmt: skip


def write(path, content):
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in content)
    else:
        text = json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def found(answers, n):
    item = Item(key=str(n), messages=(Message("user", ASKED[n]),))
    return answers.find(item, GenerateAsk("m", item.messages, Sampling(), item.key, turn=1))


@pytest.mark.parametrize("form", FORMS)
def test_answers_of_each_form_are_found_and_one_that_failed_costs_that_item_only(tmp_path, form):
    rows = [(0, "So."), (1, None), (2, "Later.")]
    answers = AnswerFile(GivenAnswers(path=str(write(tmp_path / form, FORMS[form](rows)))), "m")
    got = [found(answers, n) for n in range(3)]
    assert [one.text for one in got if isinstance(one, Generation)] == ["So.", "Later."]
    assert isinstance(got[1], Failure)
    assert got[1].cause == "no_answer"
    assert f"{form} read as " in answers.read_as
    assert answers.read_as.endswith("; 1 of 3 rows without text")


# Each gives a row whose answer ended for this reason.
ENDED = {
    "openai": lambda why: {"custom_id": "0", "response": {"body": {
        "choices": [{"message": {"content": "So"}, "finish_reason": why}]}}},
    "anthropic": lambda why: {"custom_id": "0", "result": {"message": {
        "content": [{"type": "text", "text": "So"}], "stop_reason": why}}},
    "gemini": lambda why: {"request": {"contents": chat(0, "")[:1]}, "response": {
        "candidates": [{"content": {"parts": [{"text": "So"}]}, "finishReason": why}]}},
    "helm": lambda why: {"instance": {"id": "0"}, "request": {}, "result": {
        "completions": [{"text": "So", "finish_reason": {"reason": why}}]}},
    "inspect": lambda why: {"id": 0, "epoch": 1, "input": ASKED[0], "output": {
        "choices": [{"message": {"content": "So"}, "stop_reason": why}]}},
    "vllm": lambda why: {"request_id": "0", "outputs": [{"text": "So", "finish_reason": why}]},
    "flat": lambda why: {"id": 0, "text": "So", "finish_reason": why},
}  # fmt: skip


@pytest.mark.parametrize("form", ENDED)
def test_an_answer_that_was_cut_says_so_and_one_that_was_withheld_is_none(tmp_path, form):
    def ended(why):
        path = write(tmp_path / "a.jsonl", [ENDED[form](why)])
        return found(AnswerFile(GivenAnswers(path=str(path)), "m"), 0)

    assert [ended(why).finish_reason for why in ("length", "MAX_TOKENS")] == ["length"] * 2
    assert [ended(why).finish_reason for why in ("stop", "end_turn", "", None)] == ["given"] * 4
    for why, said in (("content_filter", "withheld"), ("SAFETY", "withheld"), ("error", "broken")):
        assert f"its finish_reason says that it was {said}" in ended(why).message


def test_a_chat_and_a_text_that_could_each_be_the_answer_are_refused(tmp_path):
    row = {"id": 0, "messages": chat(0, "gold"), "response": "said"}
    path = write(tmp_path / "a.jsonl", [row])
    with pytest.raises(DatasetError, match="'response' and 'messages' could each be the answer"):
        AnswerFile(GivenAnswers(path=str(path)), "m")
    named = AnswerFile(GivenAnswers(path=str(path), text="response"), "m")
    assert getattr(found(named, 0), "text", None) == "said"


def test_a_chat_that_ends_with_a_question_is_the_prompt_of_the_text_beside_it(tmp_path):
    row = {"messages": chat(0, "")[:1], "response": "said"}
    answers = AnswerFile(GivenAnswers(path=str(write(tmp_path / "a.jsonl", [row]))), "m")
    assert getattr(found(answers, 0), "text", None) == "said"


ITEMS = {
    "alpaca.jsonl": [{"instruction": "Add.", "input": "1 2", "output": "3"}],
    "sharegpt.jsonl": [{"conversations": [
        {"from": "human", "value": "Add.\n\n1 2"}, {"from": "gpt", "value": "3"}]}],
    "parts.jsonl": [{"messages": [{"role": "user", "content": [
        {"type": "text", "text": "Add.\n"}, {"type": "input_text", "text": "1 2"}]}]}],
    "turns.jsonl": [{"turns": [{"content": "Add.\n\n1 2"}]}],
    "nested.json": {"version": "1", "data": [{"question": "Add.\n\n1 2"}]},
    "user_input.jsonl": [{"user_input": "Add.\n\n1 2", "response": "3"}],
    "problem.jsonl": [{"problem": "Add.\n\n1 2", "solution": "3"}],
    "chosen.jsonl": [{"chosen": [
        {"role": "user", "content": "Add.\n\n1 2"}, {"role": "assistant", "content": "3"}]}],
    "index.json": {"a": {"question": "Add.\n\n1 2"}, "b": {"question": "More."}},
    "split.json": {"columns": ["question"], "data": [["Add.\n\n1 2"]]},
}  # fmt: skip


@pytest.mark.parametrize("form", ITEMS)
def test_items_of_each_form_ask_the_same(tmp_path, form):
    item = opened(write(tmp_path / form, ITEMS[form])).item(0)
    assert item.messages == (Message("user", "Add.\n\n1 2"),)


# As programs write them, though the standard has it otherwise.
LOOSE = {
    "nan.jsonl": '{"prompt": "a", "score": NaN}\n{"prompt": "b", "score": Infinity}\n',
    "nan.json": '[{"prompt": "a", "score": NaN}, {"prompt": "b"}]',
    "commas.jsonl": '{"prompt": "a"},\n{"prompt": "b"},\n',
    "blank.csv": "id,prompt\n1,a\n,\n2,b\n,\n,\n",
}


@pytest.mark.parametrize("name", LOOSE)
def test_what_programs_write_loosely_is_read(tmp_path, name):
    (tmp_path / name).write_text(LOOSE[name], encoding="utf-8")
    dataset = opened(tmp_path / name)
    assert [dataset.item(n).prompt for n in range(len(dataset))] == ["a", "b"]


# Rows with what is needed, under no usual name.
UNUSUAL = {
    "capitals": ({"ID": 1, "Question": "a", "Answer": "b"},
                 "prompt: Question, reference: Answer, key: ID"),
    "blanks": ({" prompt": "a"}, 'prompt: " prompt"'),
    "lm-eval": ({"doc_id": 1, "doc": {"question": "a"}}, "prompt: doc.question"),
    "a batch": ({"custom_id": 1, "body": {"messages": []}}, "messages: body.messages"),
    "dots": ({"meta.id": 1, "data.query": "a"}, "prompt: data.query, key: meta.id"),
    "nothing": ({"x": {"y": 1}}, "prompt: COLUMN"),
}  # fmt: skip


@pytest.mark.parametrize("form", UNUSUAL)
def test_columns_of_unusual_names_are_proposed_and_then_read(tmp_path, form):
    row, proposed = UNUSUAL[form]
    path = write(tmp_path / "x.jsonl", [row])
    with pytest.raises(DatasetError) as raised:
        opened(path)
    assert str(raised.value).endswith(f"set dataset: {{fields: {{{proposed}}}}}")
    if form not in {"a batch", "nothing"}:
        fields = yaml.safe_load(f"{{{proposed}}}")
        assert opened(path, fields=fields).item(0).prompt == "a"
    with pytest.raises(DatasetError, match="available: ") as raised:
        AnswerFile(GivenAnswers(path=str(path)), "m")
    assert f"text: {'Answer' if form == 'capitals' else 'COLUMN'}}}" in str(raised.value)


OTHERWISE = {
    "zip": (b"PK\x03\x04....", "name it .xlsx"),
    "parquet": (b"PAR1....", "name it .parquet"),
    "utf-16": ('{"prompt": "a"}\n'.encode("utf-16"), "save the file as UTF-8"),
    "a list": (b'[{"prompt": "a"}]', "name the file .json"),
    "spread": (b'{\n"prompt": "a"\n}\n', "one object per line"),
    "half": (b'{"prompt": "\\ud83d is"}\n', "half a character"),
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_another_kind_of_file_is_named_once_with_what_to_do(tmp_path, kind):
    content, said = OTHERWISE[kind]
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(DatasetError, match=said) as raised:
        opened(tmp_path / "x.jsonl")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("pack", [gzip, bz2, lzma, zstandard], ids=lambda module: module.__name__)
def test_a_packed_file_can_be_read_by_the_name_that_it_is_told(tmp_path, pack):
    file = tmp_path / "x.jsonl"
    file.write_bytes(pack.compress(b'{"prompt": "a"}\n'))
    with pytest.raises(DatasetError, match="to its name") as raised:
        opened(file)
    (ending,) = re.findall(r"add (\.\w+) to its name", str(raised.value))
    assert opened(file.rename(f"{file}{ending}"), "jsonl").item(0).prompt == "a"


@pytest.mark.parametrize(
    "beside",
    ["context", "contexts", "retrieved_contexts", "passage", "article", "choices", "Options",
     "endings", "A", "option_b", "choice1", "sol2", "premise", "system", "system_prompt"],
)  # fmt: skip
def test_what_a_question_needs_and_no_model_is_shown_is_said(tmp_path, beside):
    path = write(tmp_path / "x.jsonl", [{"question": "Which?", beside: "a or b"}])
    assert f"'{beside}' shown to no model" in opened(path).read_as


@pytest.mark.parametrize("beside", ["answer_a", "n", "source", "id2", "contextual", "difficulty"])
def test_other_columns_are_not_missed(tmp_path, beside):
    path = write(tmp_path / "x.jsonl", [{"question": "Which?", beside: "a or b"}])
    assert "shown to no model" not in opened(path).read_as


@functools.cache
def bomb(pack):
    return pack.compress(bytes(70 << 20))


@pytest.mark.parametrize("pack", [gzip, bz2, lzma, zstandard], ids=lambda module: module.__name__)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
def test_a_compressed_file_is_read_and_one_that_is_damaged_or_a_bomb_refused(
    tmp_path, pack, suffix
):
    ending = {gzip: ".gz", bz2: ".bz2", lzma: ".xz", zstandard: ".zst"}[pack]
    path = tmp_path / f"x{suffix}{ending}"
    text = {".csv": b"id,prompt\n1,hi\n", ".json": b'[{"id": 1, "prompt": "hi"}]'}
    whole = pack.compress(text.get(suffix, b'{"id": 1, "prompt": "hi"}\n'))

    def read():
        AnswerFile(GivenAnswers(path=str(path), text="prompt"), "m")
        return len(opened(path, suffix[1:]))

    path.write_bytes(whole)
    assert read() == 1
    if suffix == ".jsonl":  # as `cat` joins them
        path.write_bytes(whole + pack.compress(b'{"id": 2, "prompt": "ho"}\n'))
        assert read() == 2
    path.write_bytes(whole[:-6])
    with pytest.raises(DatasetError, match="cannot be unpacked"):
        read()
    path.write_bytes(bomb(pack))
    with pytest.raises(DatasetError, match="unpacks to more than"):
        read()


def test_rows_on_a_path_keep_what_stands_beside_them(tmp_path):
    squad = {"data": [{"title": "t", "paragraphs": [
        {"context": "c", "qas": [{"id": 1, "question": "Why?", "answers": {"text": ["a", "a"]}}]}
    ]}], "other": [{"x": 1}]}  # fmt: skip
    path = write(tmp_path / "squad.json", squad)
    with pytest.raises(
        DatasetError, match=r"could be any of data, other; set dataset: {rows: data}"
    ):
        opened(path)
    fields = {"reference": "answers", "cluster": "context"}
    item = opened(path, rows="data.paragraphs.qas", fields=fields).item(0)
    assert (item.key, item.reference, item.cluster, item.fields["title"]) == ("1", "a", "c", "t")


def test_excel_says_in_a_line_before_the_header_by_what_values_are_separated(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbfsep=|\r\nid|prompt\r\n1|a;b,c\r\n")
    assert opened(path).item(0).prompt == "a;b,c"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "'image_url'"),
        ([{"role": "tool", "content": "42"}, {"role": "user", "content": "x"}], "tools are not"),
    ],
)
def test_what_a_message_of_text_cannot_hold_is_refused_by_name(tmp_path, content, said):
    with pytest.raises(DatasetError, match=said):
        opened(write(tmp_path / "x.jsonl", [{"messages": content}]))


def test_a_developer_is_the_system(tmp_path):
    talk = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "x"}]
    item = opened(write(tmp_path / "x.jsonl", [{"messages": talk}])).item(0)
    assert item.messages[0] == Message("system", "Be brief.")


ROWS = [{"id": "1", "prompt": "a, b; c"}, {"id": "2", "prompt": "d, e; f"}]
CONTENTS = {
    "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "json": json.dumps({"data": ROWS}).encode(),
    "csv": b'id,prompt\n1,"a, b; c"\n2,"d, e; f"\n',
    "tsv": b"id\tprompt\n1\ta, b; c\n2\td, e; f\n",
}


def planned(folder, name):
    (folder / "r.json").write_text(
        json.dumps(
            {
                "models": {"m": {"server": "fake", "weights": "m:1"}},
                "dataset": {"path": name},
                "methods": [{"kind": "answers"}],
            }
        )
    )
    return prepare(load(folder / "r.json"))


@pytest.mark.parametrize("pack", [gzip, bz2, lzma, zstandard], ids=lambda module: module.__name__)
@pytest.mark.parametrize("kind", [*CONTENTS, "parquet"])
def test_a_compressed_dataset_is_that_which_it_holds(tmp_path, kind, pack):
    if kind == "parquet":
        pl.DataFrame(ROWS).write_parquet(tmp_path / "plain.parquet")
        content = (tmp_path / "plain.parquet").read_bytes()
    else:
        content = CONTENTS[kind]
    ending = {gzip: ".gz", bz2: ".bz2", lzma: ".XZ", zstandard: ".zst"}[pack]
    name = f"q.{kind}{ending}"
    (tmp_path / name).write_bytes(pack.compress(content))
    dataset = planned(tmp_path, name).dataset
    found = [dataset.item(index) for index in range(len(dataset))]
    assert [(one.key, one.prompt) for one in found] == [("1", "a, b; c"), ("2", "d, e; f")]


@pytest.mark.parametrize("name", ["q.jsonl.gz.gz", "q.gz", "q.xz.gz"])
def test_what_is_packed_twice_or_of_no_kind_is_refused(tmp_path, name):
    packed = gzip.compress(gzip.compress(CONTENTS["jsonl"]))
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(DatasetError, match="unknown file type; save it as another"):
        open_rows(tmp_path / name, name)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_says_of_its_files_what_it_says_when_it_is_read_again(tmp_path, capsys, form):
    """What a file was taken for is said before anything is sent, and is no doubt about results."""
    rows = [(0, "So."), (1, None), (2, "Later.")]
    write(tmp_path / form, FORMS[form](rows))
    items = {
        "data": {"rows": [{"id": n, "q": text, "answer": "So."} for n, text in enumerate(ASKED)]}
    }
    (tmp_path / "q.json").write_text(json.dumps(items), encoding="utf-8")
    recipe = {
        "name": "read",
        "models": {"given": {"answers": form}},
        "dataset": {"path": "q.json", "fields": {"key": "id", "prompt": "q"}},
        "methods": [{"kind": "answers", "candidates": ["given"]}],
        "statistics": {"n_resamples": 100},
    }
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe), encoding="utf-8")
    kept = str(tmp_path / "run")
    main(["run", str(path), "--run-dir", kept, "--display", "plain", "--format", "json"])
    ran = capsys.readouterr()
    main(["report", kept, "--format", "json"])
    assert json.loads(capsys.readouterr().out) == json.loads(ran.out)
    assert main(["check", str(path)]) == 0
    checked = " ".join(capsys.readouterr().err.split())
    for said in (f"{form} read as ", "q.json"):
        assert said in " ".join(ran.err.split())
        assert said in checked


@pytest.mark.parametrize("values", [[], ["a"], ["a", "b"], ("a", "b", "c")])
def test_a_place_in_a_list_is_read_where_there_is_one(values):
    found = [at({"doc": {"answers": values}}, f"doc.answers.{n}") for n in range(5)]
    assert found == [*values, *[None] * (5 - len(values))]
