"""The pages in a real browser, served by the real command."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.columns import pack_row
from orchestrator.contracts.method import schema_of
from orchestrator.methods import answers
from orchestrator.store import RunDirectory, Store
from tests.browser import IN_CHROMIUM, assert_no_fault
from tests.e2e.runs import fake_server, run, write_recipe
from tests.report import hostile
from tests.view.pages import opened, served, texts
from tests.view.runs import SETTINGS, items_frame, made, make_run

BIG = 100_000

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with runs of several methods, of two turns, a large one, one of hostile texts."""
    folder = tmp_path_factory.mktemp("runs")
    judging = {"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}
    with fake_server() as url:
        methods = [
            {**judging, "answer": {"max_tokens": 8}},
            {"kind": "answers", "top_logprobs": 3, "answer": {"max_tokens": 8}},
        ]
        recipe = write_recipe(folder / "recipe.json", url, n=12, methods=methods)
        done = run(recipe, folder / "demo")
        assert done.returncode == 0, done.stderr
        twice = [{**judging, "name": name, "answer": {"max_tokens": 8}} for name in ("one", "two")]
        recipe = write_recipe(folder / "twice.json", url, n=4, methods=twice, name="twice")
        done = run(recipe, folder / "twice")
        assert done.returncode == 0, done.stderr
        turns = [
            {
                "id": f"t{k}",
                "turns": [f"Name {k} things.", "Now only one."],
                "reference": ["a", "b"],
            }
            for k in range(2)
        ]
        (folder / "turns.jsonl").write_text("\n".join(map(json.dumps, turns)), encoding="utf-8")
        methods = [
            {**judging, "answer": {"max_tokens": 8}},
            {"kind": "probdiff", "candidates": ["weak"], "rounds": 2, "answer": {"max_tokens": 8}},
        ]
        dataset = {"path": "turns.jsonl", "fields": {"turns": "turns"}}
        recipe = write_recipe(
            folder / "turns.json", url, dataset=dataset, methods=methods, name="turns"
        )
        done = run(recipe, folder / "turns")
        assert done.returncode == 0, done.stderr
    made(folder / "big", BIG)
    make_run(folder / "hostile", hostile.frames(20), hostile.SETTINGS)
    return folder


def test_the_link_lets_in_and_its_token_is_gone_from_the_address(browser, links):
    with opened(browser, links, "/") as (page, said):
        assert "token" not in page.url
        assert set(texts(page.locator("tbody th a"))) == {
            "demo",
            "big",
            "hostile",
            "twice",
            "turns",
        }
        assert page.evaluate("document.cookie") == ""
        assert said == []


def test_the_leaderboard_is_sorted_by_a_click(browser, links):
    with opened(browser, links, "/run/demo") as (page, said):
        page.wait_for_selector("[data-figure] svg")
        table = page.locator("#part-ranking figure").first.locator("table.data").first
        heading = table.locator("th button", has_text="model")
        heading.click()
        down = texts(table.locator("tbody td:nth-child(2)"))
        assert down == sorted(down, reverse=True)
        heading.click()
        assert texts(table.locator("tbody td:nth-child(2)")) == sorted(down)
        assert said == []


def test_numbers_of_the_report_lead_to_the_items_behind_them(browser, links):
    with opened(browser, links, "/run/demo") as (page, said):
        wins = page.locator("a.behind-it[href*='to=']").first
        wins.wait_for(state="attached")
        to = wins.get_attribute("href")
        page.goto(page.url.split("/run/")[0] + to)
        page.wait_for_selector(".list .row.tall, .none-here:not([hidden])")
        assert page.get_by_label("Who lost").count() == 1
        assert said == []


def test_an_item_is_opened_by_keys_and_its_neighbours_too(browser, links):
    with opened(browser, links, "/run/demo/items") as (page, said):
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/demo/item/2")
        page.wait_for_selector(".answers")
        page.keyboard.press("k")
        page.wait_for_url("**/run/demo/item/1")
        page.keyboard.press("u")
        page.wait_for_url("**/run/demo/items*")
        assert page.locator(".row.at").get_attribute("id") == "row-1"
        assert said == []


def test_keys_are_told_and_left_alone_while_typing(browser, links):
    with opened(browser, links, "/run/demo/items") as (page, _):
        page.keyboard.press("?")
        page.locator("dialog button", has_text="Close").click()
        assert not page.locator("dialog").is_visible()
        page.keyboard.press("?")
        assert page.locator("dialog").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("jk?")
        assert page.locator("#search").input_value() == "jk?"
        assert not page.locator("dialog").is_visible()


def test_a_token_tells_its_probability_and_its_alternatives(browser, links):
    with opened(browser, links, "/run/demo/item/0?view=tokens") as (page, said):
        token = page.locator(".answer .tok").first
        token.hover()
        told = page.locator("#tip").inner_text()
        assert "log-probability" in told
        assert re.search(r"(the most likely|number [23]) of the alternatives", told)
        page.mouse.move(0, 0)
        assert page.locator("#tip").is_hidden()
        token.focus()
        page.keyboard.press("ArrowRight")
        assert "token 2" in page.locator("#tip").inner_text()
        assert said == []


def test_orders_are_swapped_and_the_address_says_so(browser, links):
    with opened(browser, links, "/run/demo/item/0") as (page, said):
        page.wait_for_selector(".judgment details")
        case = page.locator(".judgment").first
        before = texts(case.locator(".order h4"))
        assert before == ["A shown first", "B shown first"]
        page.keyboard.press("s")
        assert texts(page.locator(".judgment").first.locator(".order h4")) == before[::-1]
        assert "order=ba" in page.url
        case.locator("summary").first.click()
        read = case.locator(".message pre").first.inner_text()
        assert "Answer A:" in read
        assert said == []


def test_judgments_of_several_methods_say_whose_they_are_and_votes_are_not_mixed(browser, links):
    with opened(browser, links, "/run/twice/item/0") as (page, said):
        titles = texts(page.locator("article.judgment h3"))
        assert [title.split()[0] for title in titles] == ["one"] * 3 + ["two"] * 3
        votes = texts(page.locator("p.votes"))
        assert [vote.split()[0] for vote in votes] == ["one", "two"]
        assert said == []


ROUNDS = """async () => {
  const { roundsOf, unitOf } = await import("/static/asked.js");
  const [found, trace] = await Promise.all(
    ["", "/trace"].map(async (end) => (await fetch(`/api/runs/turns/items/0${end}`)).json()));
  return found.rewritings.map((row) =>
    [row.rewriting, roundsOf(trace, unitOf(trace, row), row.turn)]);
}"""


def test_turns_stand_one_after_the_other_each_with_its_votes_prompts_and_rounds(browser, links):
    with opened(browser, links, "/run/turns/item/0?view=tokens") as (page, said):
        page.wait_for_selector(".answer .tok")
        assert texts(page.locator("h3.turn")) == ["To turn 1", "To turn 2"]
        assert [grid.locator("article").count() for grid in page.locator(".answers").all()] == [
            4,
            4,
        ]
        assert [vote[:6] for vote in texts(page.locator("p.votes"))] == ["Turn 1", "Turn 2"]
        for number, case in enumerate(page.locator("article.judgment").all()[:2]):
            case.locator("summary").first.click()
            read = case.locator(".message pre").first.inner_text()
            assert ("Now only one." in read) == (number == 1)
        found = page.evaluate(ROUNDS)
        assert len(found) == 2
        for rewriting, rounds in found:
            assert len(rounds) == 3
            assert rounds[-1]["text"] == rewriting
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert said == []


def test_a_link_holds_what_is_shown(browser, links):
    path = "/run/demo/item/3?view=differences&order=ba&sort=-item&category="
    with opened(browser, links, path) as (page, _):
        assert page.locator(".segments button[aria-pressed=true]").first.inner_text() == (
            "Differences"
        )
        before = page.locator(".kind").inner_text()
        address = page.url
        page.goto(address)
        page.wait_for_selector(".answers")
        assert page.url == address
        assert page.locator(".kind").inner_text() == before


def test_a_link_is_followed_and_the_way_back_leads_back(browser, links):
    with opened(browser, links, "/") as (page, _):
        page.locator("tbody th a", has_text="demo").click()
        page.locator("a.button").click()
        page.wait_for_url("**/run/demo/items")
        page.go_back()
        page.wait_for_url("**/run/demo")
        page.locator("h1", has_text="demo").wait_for()


def test_a_page_left_while_it_was_read_does_not_write_over_the_one_gone_to(browser, links):
    with opened(browser, links, "/run/demo") as (page, said):
        page.route("**/api/runs/demo/items*", lambda route: None)  # never answered
        page.locator("a.button").click()
        page.wait_for_url("**/run/demo/items")
        page.go_back()
        page.locator("#state").wait_for(state="attached")
        page.wait_for_timeout(600)  # more than a page may take before it says that it is read
        assert texts(page.locator("h1")) == ["demo"]
        assert said == []


def test_a_hundred_thousand_items_are_searched_while_typing(browser, links):
    with opened(browser, links, "/run/big/items") as (page, said):
        page.locator(".said", has_text="100,000 items").wait_for()
        assert page.locator(".spacer .row").count() < 60
        page.keyboard.press("/")
        page.keyboard.type('"says 309969 because', delay=30)
        page.locator(".said", has_text="1 of 100,000 items").wait_for()
        assert texts(page.locator(".spacer .row a")) == ["i9999"]
        page.locator("#search").fill("")
        page.locator(".said", has_text=re.compile("^100,000 items")).wait_for()
        page.locator(".list").focus()
        page.keyboard.press("Shift+G")
        page.locator(".row.at a", has_text="i99999").wait_for()
        assert said == []


def test_a_condition_and_an_order_narrow_the_list(browser, links):
    with opened(browser, links, "/run/big/items") as (page, _):
        page.select_option("[aria-label='Measure of the condition']", "failed")
        page.locator("form.where button").click()
        page.locator(".said", has_text="2,000 of 100,000").wait_for()
        assert "where=failed" in page.url
        page.locator(".heads button", has_text="#").click()
        page.locator(".spacer .row").first.locator("a", has_text="i99999").wait_for()
        page.locator(".condition").click()
        page.locator(".said", has_text=re.compile("^100,000 items")).wait_for()


def test_what_is_seen_is_saved(browser, links):
    with opened(browser, links, "/run/big/items?category=c1&where=failed>0") as (page, _):
        with page.expect_download() as waiting:
            page.locator(".save-link", has_text="CSV").click()
        lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
        assert len(lines) == 1 + 667


@pytest.mark.parametrize("view", ["text", "markdown", "differences", "tokens"])
def test_hostile_answers_do_nothing(browser, links, view):
    with opened(browser, links, f"/run/hostile/item/0?view={view}") as (page, said):
        for number in range(10):
            page.wait_for_url(f"**/run/hostile/item/{number}*")
            page.wait_for_selector(".answers")
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            assert (
                page.locator("#main").locator("script, iframe, img, a[href^='java']").count() == 0
            )
            page.keyboard.press("j")
        assert page.evaluate("window.hacked") is None
        assert said == []


def test_hostile_names_do_nothing_in_lists_and_reports(browser, links):
    with opened(browser, links, "/run/hostile/items?q=%3Cscript%3E") as (page, said):
        page.wait_for_selector(".spacer .row")
        page.goto(page.url.split("/run/")[0] + "/run/hostile")
        page.wait_for_selector("[data-figure] svg")
        page.goto(page.url.split("/run/")[0] + "/compare?a=hostile&b=demo")
        page.wait_for_selector("h1")
        assert page.evaluate("window.hacked") is None
        assert said == []


def test_text_can_not_become_markup(browser, links):
    with opened(browser, links, "/run/demo") as (page, said):
        refused = page.evaluate(
            "() => { try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); }"
            " catch (error) { return error.name; } return null; }"
        )
        assert refused == "TypeError"
        said.clear()


def test_two_runs_are_compared(browser, links):
    with opened(browser, links, "/") as (page, said):
        for name in ("demo", "twice"):
            page.get_by_label(f"Compare {name}").check()
        page.get_by_text("Compare two runs").click()
        page.wait_for_url("**/compare?a=demo&b=twice")
        page.locator("summary", has_text="Settings that differ").wait_for()
        assert said == []


def test_a_running_run_is_brought_up_to_date(browser, tmp_path):
    path = make_run(tmp_path / "runs" / "made", {"items": items_frame(4)}, SETTINGS)
    (path / "results" / ".exported").unlink()
    columns = {"method": "str", **schema_of(answers.Kind)}

    def row(k: int) -> tuple[Any, ...]:
        known = {"method": "answers", "item": f"i{k}", "model": "one", "status": "ok"}
        return pack_row(columns, {**known, "text": f"said {k}"})

    with RunDirectory.lock(path) as directory, Store.open(directory.store_path) as store:
        directory.write_status({"units_total": 4})
        store.set_meta("frames", json.dumps({"answers": columns}))
        store.set_meta("units", "4")
        plan = store.open_plan(b"1" * 16, 4)
        store.put_unit(b"a" * 16, plan, 0, 0, "answers", [row(0)])
        store.flush()
        with (
            served(tmp_path / "runs", tmp_path / "state") as link,
            opened(browser, link, "/run/made/items?q=said") as (page, said),
        ):
            page.locator(".said", has_text="1 of 4").wait_for()
            page.locator("#state.live", has_text="running").wait_for()
            store.put_unit(b"b" * 16, plan, 1, 0, "answers", [row(1)])
            store.flush()
            page.locator(".said", has_text="2 of 4").wait_for()
            assert said == []


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("/", "light"),
        ("/run/demo", "light"),
        ("/run/demo", "dark"),
        ("/run/demo/items", "dark"),
        ("/run/demo/item/0?view=tokens", "light"),
        ("/run/demo/item/0?view=differences", "dark"),
        ("/compare?a=demo&b=big", "dark"),
    ],
)
def test_axe_finds_no_serious_fault(browser, links, axe, path, scheme):
    # axe-core itself is put into the page, which the page's own policy would refuse.
    with opened(browser, links, path, color_scheme=scheme, bypass_csp=True) as (page, _):
        page.wait_for_timeout(500)
        assert_no_fault(page, axe, 10)


@pytest.mark.parametrize("path", ["/", "/run/demo", "/run/demo/items", "/run/demo/item/0"])
def test_it_is_no_wider_than_a_telephone(browser, links, path):
    with opened(browser, links, path, viewport={"width": 390, "height": 800}) as (page, _):
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


DIFFERENCES = """async ([before, after]) => {
  const { difference } = await import("/static/text.js");
  return difference(before, after);
}"""


def test_differences_of_words_give_both_texts_back(browser, links):
    rng = np.random.default_rng(3)
    with opened(browser, links, "/") as (page, _):
        for _ in range(150):
            before, after = (" ".join(rng.choice([*"abcd"], rng.integers(0, 25))) for _ in "ab")
            found = page.evaluate(DIFFERENCES, [before, after])
            assert "".join(text for kind, text in found if kind != "new") == before
            assert "".join(text for kind, text in found if kind != "gone") == after
        # The shortest: one word for another costs two stretches.
        assert page.evaluate(DIFFERENCES, ["a b c", "a x c"]) == [
            ["same", "a "],
            ["gone", "b"],
            ["new", "x"],
            ["same", " c"],
        ]


def test_differences_of_texts_that_share_nothing_are_given_up(browser, links):
    long = [" ".join(f"{side}{k}" for k in range(5000)) for side in "ab"]
    with opened(browser, links, "/") as (page, _):
        assert page.evaluate(DIFFERENCES, long) is None


def test_the_answer_is_on_the_first_screen_of_a_telephone(browser, links):
    with opened(browser, links, "/run/demo", viewport={"width": 390, "height": 844}) as (
        page,
        said,
    ):
        page.wait_for_selector("h2.answer")
        answer = page.locator("h2.answer").bounding_box()
        first = page.locator(".forest tbody tr").first.bounding_box()
        assert answer["y"] + answer["height"] < 844
        assert first["y"] + first["height"] < 844
        assert page.locator(".forest circle").count() == page.locator(".forest tbody tr").count()
        assert page.locator(".first h3", has_text="How far to trust it").count() == 1
        assert said == []
