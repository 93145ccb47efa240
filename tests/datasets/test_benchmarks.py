"""Benchmarks: from a user's folder, from the cache, from a server; offline one clear error."""

import json

import polars as pl
import pytest

from orchestrator import contracts, plugins
from orchestrator.commands.listing import listed, rows_of
from orchestrator.dataset import About, DatasetKind
from orchestrator.datasets._benchmark import url_of
from orchestrator.errors import DatasetError
from orchestrator.plugins import DATASETS
from tests.conftest import SHARED
from tests.datasets.benchmarks import items, lines, opened, parquet

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
BENCHMARKS = [
    kind
    for kind in plugins.kinds(DATASETS)
    if contracts.load(DatasetKind, kind).about is not None and kind != "huggingface"
]


def about(kind: str) -> About:
    found = contracts.load(DatasetKind, kind).about
    assert found is not None
    return found


# -- every benchmark ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BENCHMARKS)
def test_a_benchmark_states_its_licence_size_and_source(kind):
    found = about(kind)
    assert found.licence
    assert found.size
    assert found.source.startswith("https://")
    assert found.files


@pytest.mark.parametrize("kind", BENCHMARKS)
def test_offline_one_error_says_where_to_put_the_file_and_how_it_is_named(kind):
    with pytest.raises(DatasetError) as caught:
        opened(kind)
    message = str(caught.value)
    assert f"$ORCHESTRATOR_DATA/{kind}/{about(kind).files[0].name}" in message
    assert url_of(about(kind).files[0]) in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", BENCHMARKS)
def test_addresses_are_https(kind):
    assert all(url_of(file).startswith("https://") for file in about(kind).files)


def test_the_listing_says_of_each_what_it_is_its_licence_its_size_and_whether_it_is_here(data):
    data("mt_bench/question.jsonl", "")
    rows = rows_of(listed("datasets"))
    places = {kind: number for number, (kind, _) in enumerate(rows) if kind}
    assert set(places) == set(plugins.kinds(DATASETS))
    below = {kind: [text for _, text in rows[at + 1 : at + 3]] for kind, at in places.items()}
    assert below["mt_bench"] == [
        "licence: Apache-2.0; references are text of GPT-4",
        "size: 49 kB, references 51 kB; here",
    ]
    assert below["nectar"][1].endswith("fetched at first use")


def test_a_licence_is_not_cut_at_80_columns():
    licences = [about(kind).licence for kind in BENCHMARKS]
    assert [text for text in licences if len(text) > 55] == []


# -- where files are found ---------------------------------------------------------------------


def prompts(n=5):
    row = {"chosen": ["Done."], "rejected": ["a", "b", "c"]}
    subsets = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
    return pl.DataFrame(
        [{"id": str(i), "prompt": f"Do {i}.", "subset": subsets[i % 5], **row} for i in range(n)]
    )


def served(web, frame):
    path = "/" + about("reward_bench_2").files[0].path
    web.files[path] = parquet(frame)
    return path


def test_a_benchmark_is_fetched_from_the_hub_once(web, monkeypatch):
    path = served(web, prompts())
    first = opened("reward_bench_2")
    monkeypatch.setenv("ORCHESTRATOR_OFFLINE", "1")
    assert opened("reward_bench_2").fingerprint == first.fingerprint
    assert web.counts[path] == 1


def test_the_key_of_the_hub_is_sent_to_it(web, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_no-key")
    served(web, prompts())
    opened("reward_bench_2")
    assert web.requests[0][1]["Authorization"] == "Bearer hf_no-key"


def test_a_failed_download_says_where_to_put_the_file(web):
    with pytest.raises(
        DatasetError, match=r"404.*\$ORCHESTRATOR_DATA/reward_bench_2/test-00000-of-00001.parquet"
    ):
        opened("reward_bench_2")


def test_the_users_folder_comes_first(web, data):
    served(web, prompts(6))
    data("reward_bench_2/test-00000-of-00001.parquet", prompts(5))
    assert len(opened("reward_bench_2")) == 5
    assert web.requests == []


def test_a_file_of_ones_own_that_was_changed_is_used_and_said(data, caplog):
    data("mt_bench/question.jsonl", lines({"question_id": 1, "category": "a", "turns": ["b"]}))
    assert len(opened("mt_bench")) == 1
    assert "checksum differs from the published file" in caplog.text


# -- MT-Bench and Vicuna-Bench, the published files --------------------------------------------


@pytest.fixture
def published(monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_DATA", str(SHARED / "data"))


@needs_shared
@pytest.mark.usefixtures("published")
def test_mt_bench_has_80_questions_of_two_turns_in_8_categories(caplog):
    found = items(opened("mt_bench"))
    assert len(found) == 80
    assert {len(item.followups) for item in found} == {1}
    counts = dict.fromkeys({item.category for item in found}, 0)
    for item in found:
        counts[item.category] += 1
    assert counts == dict.fromkeys(
        ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"),
        10,
    )
    assert caplog.text == ""


@needs_shared
@pytest.mark.usefixtures("published")
def test_mt_bench_has_references_of_both_turns_where_there_are_any():
    found = items(opened("mt_bench", references=True))
    known = [item for item in found if item.reference is not None]
    assert {item.category for item in known} == {"reasoning", "math", "coding"}
    assert len(known) == 30
    assert all(item.reference_of(2) for item in known)
    assert "second place" in next(item for item in known if item.key == "101").reference


@needs_shared
@pytest.mark.usefixtures("published")
def test_mt_bench_may_be_asked_its_first_turns_only():
    found = items(opened("mt_bench", turns=1, references=True))
    assert {item.followups for item in found} == {()}
    assert {item.references for item in found} == {()}


@needs_shared
@pytest.mark.usefixtures("published")
def test_vicuna_bench_has_80_questions_of_one_turn():
    found = items(opened("vicuna_bench"))
    assert len(found) == 80
    assert {item.followups for item in found} == {()}
    assert found[0].prompt == "How can I improve my time management skills?"


def test_vicuna_bench_takes_references_of_fastchats_form(data):
    data("vicuna_bench/question.jsonl", lines({"question_id": 1, "category": "a", "turns": ["b"]}))
    reference = {"question_id": 1, "choices": [{"index": 0, "turns": ["c"]}]}
    data("vicuna_bench/reference_answer/gpt-4.jsonl", lines(reference))
    assert items(opened("vicuna_bench", references=True))[0].reference == "c"


def test_a_line_that_is_not_as_published_is_named(data):
    data("mt_bench/question.jsonl", lines({"question_id": 1, "turns": ["b"]}))
    with pytest.raises(DatasetError, match=r"question.jsonl\):1: not as published: KeyError"):
        opened("mt_bench")


# -- the others --------------------------------------------------------------------------------


def test_align_bench_has_category_reference_and_the_rest_as_fields(data):
    row = {
        "question_id": 1,
        "category": "专业能力",
        "subcategory": "音乐",
        "question": "问题",
        "reference": "答案",
        "evidences": [{"url": "u", "quote": "q"}],
    }
    data("align_bench/data_v1.1_release.jsonl", lines(row))
    item = items(opened("align_bench"))[0]
    assert (item.key, item.prompt, item.reference, item.category) == (
        "1",
        "问题",
        "答案",
        "专业能力",
    )
    assert set(item.fields) == {"subcategory", "evidences"}


def test_alpaca_eval_has_the_baselines_answers_as_a_column(data):
    row = {"instruction": "Do x.", "output": "Done.", "generator": "gpt4", "dataset": "koala"}
    data("alpaca_eval/alpaca_eval_gpt4_baseline.json", json.dumps([row]))
    item = items(opened("alpaca_eval"))[0]
    assert (item.prompt, item.category, item.reference) == ("Do x.", "koala", None)
    assert item.fields == {"baseline": "Done.", "baseline_model": "gpt4"}


def test_reward_bench_has_both_answers_as_columns_and_its_subset_as_category(data):
    row = {"prompt": "Do x.", "chosen": "Done.", "chosen_model": "m", "rejected": "No.",
           "rejected_model": "n", "subset": "donotanswer", "id": 7}  # fmt: skip
    other = {**row, "id": 8, "subset": "hep-go"}
    data("reward_bench/filtered-00000-of-00001.parquet", pl.DataFrame([row, other]))
    item = items(opened("reward_bench"))[0]
    assert (item.key, item.prompt, item.category) == ("7", "Do x.", "donotanswer")
    assert (item.fields["chosen"], item.fields["rejected"]) == ("Done.", "No.")
    assert [item.key for item in items(opened("reward_bench", subsets=("hep-go",)))] == ["8"]
    with pytest.raises(DatasetError, match="no subset 'hep'; available: donotanswer, hep-go"):
        opened("reward_bench", subsets=("hep",))


def test_judge_bench_turns_its_label_into_the_chosen_answer(data):
    row = {"pair_id": "p1", "source": "mmlu-pro-law", "question": "Q?", "response_model": "m",
           "response_A": "one", "response_B": "two", "label": "B>A"}  # fmt: skip
    data("judge_bench/claude.jsonl", lines(row, {**row, "pair_id": "p2", "label": "A>B"}))
    first, second = items(opened("judge_bench", answers="claude"))
    assert (first.key, first.prompt, first.category) == ("p1", "Q?", "mmlu-pro-law")
    assert (first.fields["chosen"], first.fields["rejected"]) == ("two", "one")
    assert (second.fields["chosen"], second.fields["rejected"]) == ("one", "two")


def test_judge_bench_says_where_a_label_is_not_as_published(data):
    row = {"pair_id": "p1", "source": "s", "question": "Q?", "response_A": "one",
           "response_B": "two", "label": "A=B"}  # fmt: skip
    data("judge_bench/gpt.jsonl", lines(row))
    with pytest.raises(DatasetError, match=r"gpt\.jsonl.:1: not as published.*A=B"):
        opened("judge_bench")


def test_llm_bar_joins_its_subsets(data):
    row = {"input": "Do x.", "output_1": "one", "output_2": "two", "label": 2}
    names = ("Natural", "Neighbor", "GPTInst", "GPTOut", "Manual")
    for name in names:
        data(f"llm_bar/{name}.json", json.dumps([{**row, "input": f"{name}?"}]))
    found = items(opened("llm_bar"))
    assert [(item.prompt, item.category) for item in found] == [(f"{n}?", n) for n in names]
    assert found[0].fields == {"chosen": "two", "rejected": "one"}
    (manual,) = items(opened("llm_bar", subsets=("Manual",)))
    assert manual.category == "Manual"


def test_reward_bench_2_has_three_wrong_answers_and_no_ties(data):
    row = {"id": "1", "prompt": "Do x.", "chosen": ["Done."], "rejected": ["a", "b", "c"],
           "subset": "Math"}  # fmt: skip
    tied = {**row, "id": "2", "subset": "Ties", "chosen": ["Done.", "Did."], "rejected": ["a"]}
    others = [{**row, "id": name, "subset": name}
              for name in ("Factuality", "Precise IF", "Safety", "Focus")]  # fmt: skip
    data("reward_bench_2/test-00000-of-00001.parquet", pl.DataFrame([row, tied, *others]))
    found = items(opened("reward_bench_2"))
    assert {item.category for item in found} == {
        "Math", "Factuality", "Precise IF", "Safety", "Focus"
    }  # fmt: skip
    (math,) = items(opened("reward_bench_2", subsets=("Math",)))
    assert math.fields == {
        "chosen": "Done.", "rejected_1": "a", "rejected_2": "b", "rejected_3": "c"
    }  # fmt: skip


def test_nectar_has_its_answers_by_rank_and_prompts_without_marks(data):
    rows = [
        {
            "prompt": f"\n\nHuman: Say {number}.\n\nAssistant: ",
            "answers": [
                {"answer": f"{number}-{rank}", "model": "m", "rank": float(rank)}
                for rank in (3, 1, 2, 7, 6, 5, 4)
            ],
        }
        for number in range(9)
    ]
    data("nectar/train-0.parquet", pl.DataFrame(rows))
    found = items(opened("nectar", n=4))
    assert len({item.prompt for item in found}) == 4
    assert opened("nectar", n=4, seed=0).fingerprint != opened("nectar", n=4, seed=1).fingerprint
    with pytest.raises(DatasetError, match="10 requested, only 9 available"):
        opened("nectar", n=10)
    for item in found:
        number = item.prompt.removeprefix("Say ").removesuffix(".")
        assert [item.fields[f"rank_{rank}"] for rank in (1, 7)] == [f"{number}-1", f"{number}-7"]


def test_a_prompt_of_nectar_with_fewer_answers_is_not_as_published(data):
    answers = [{"answer": "a", "model": "m", "rank": 1.0}]
    data("nectar/train-0.parquet", pl.DataFrame([{"prompt": "Say it.", "answers": answers}]))
    with pytest.raises(DatasetError, match="not as published"):
        items(opened("nectar", n=1))


def test_mt_bench_human_has_the_votes_on_first_turns(data):
    def talk(*texts):
        roles = ("user", "assistant") * 2
        return [{"content": text, "role": role} for text, role in zip(texts, roles, strict=False)]

    row = {"question_id": 95, "model_a": "x", "model_b": "y", "winner": "model_b", "judge": "p",
           "conversation_a": talk("Q?", "one", "R?", "three"),
           "conversation_b": talk("Q?", "two", "R?", "four"), "turn": 1}  # fmt: skip
    second = {**row, "turn": 2, "winner": "model_a"}
    tie = {**row, "question_id": 160, "winner": "tie"}
    data("mt_bench_human/human.parquet", pl.DataFrame([row, second, tie]))
    vote, other = items(opened("mt_bench_human"))
    assert (vote.prompt, vote.category, vote.cluster) == ("Q?", "roleplay", "95")
    assert [vote.fields[name] for name in ("first", "second", "better")] == ["one", "two", "second"]
    assert (other.category, other.fields["better"]) == ("humanities", "tie")


def test_help_steer_2_pairs_the_answers_of_a_prompt_that_are_not_rated_alike(data):
    ratings = {"p": (1, 4), "q": (3, 3), "r": (4, 0)}
    rows = [
        {"prompt": prompt, "response": f"{prompt}{place}", "helpfulness": rating}
        for prompt, pair in ratings.items()
        for place, rating in enumerate(pair)
    ]
    lone = {"prompt": "o", "response": "o0", "helpfulness": 2}
    data("help_steer_2/validation.parquet", pl.DataFrame([lone, *rows]))
    found = items(opened("help_steer_2"))
    pairs = [(item.prompt, item.fields["chosen"], item.fields["rejected"]) for item in found]
    assert pairs == [("p", "p1", "p0"), ("r", "r0", "r1")]
    assert found[0].fields["chosen_helpfulness"] == 4


def probdiff(folder, part, n, **columns):
    """The items of a clone whose file of a part has n lines."""
    place = folder / "clone" / part / "test.json"
    place.parent.mkdir(parents=True)
    rows = ({name: text.format(i) for name, text in columns.items()} for i in range(n))
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return items(opened("probdiff_texts", part=part, path=str(folder / "clone")))


def test_probdiffs_sentences_are_translated_half_each_way_in_its_words(tmp_path):
    found = probdiff(tmp_path, "cs-en", 1000, cs="věta {}", en="sentence {}")
    assert [item.category for item in found] == ["cs-en"] * 500 + ["en-cs"] * 500
    assert found[7].prompt == "Translate the sentence into English:\nvěta 7"
    assert found[7].reference == "sentence 7"
    assert found[700].prompt == "Translate the sentence into Czech:\nsentence 700"
    assert found[700].reference == "věta 700"
    assert len({item.key for item in found}) == 1000


@pytest.mark.parametrize(
    ("part", "text", "reference"),
    [("xsum", "document", "summary"), ("cnn", "article", "highlights")],
)
def test_probdiffs_articles_are_summarised_in_its_words(tmp_path, part, text, reference):
    columns = {text: "{{content}} {{0}} {}", reference: "short {}"}
    item = probdiff(tmp_path, part, 2, **columns)[1]
    assert item.prompt.startswith("I want you to act as a Summarization Writer.\n")
    # Braces in an article are text.
    assert item.prompt.endswith("Here is the content:\n{content} {0} 1\nYour answer: ")
    assert item.reference == "short 1"


def test_requests_for_posts_are_prompts_themselves(tmp_path):
    found = probdiff(tmp_path, "redbook", 2, user="写 {}", assistant="好 {}")
    assert [(item.prompt, item.reference) for item in found] == [("写 0", "好 0"), ("写 1", "好 1")]
    with pytest.raises(DatasetError, match=r"xsum/test\.json: there is no such file"):
        opened("probdiff_texts", part="xsum", path=str(tmp_path / "clone"))


@needs_shared
@pytest.mark.parametrize("part", ["cs-en", "de-en", "ru-en", "zh-en", "xsum", "redbook"])
def test_what_the_authors_published_is_read_whole(part):
    folder = str(SHARED / "data" / "published" / "probdiff")
    found = items(opened("probdiff_texts", part=part, path=folder))
    assert len(found) == (100 if part == "redbook" else 1000)
    assert all(item.prompt and item.reference for item in found)
