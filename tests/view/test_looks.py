"""Layout of the viewer's pages on a desk and on a telephone, and pages with nothing to show."""

import shutil

import pytest

from tests.browser import IN_CHROMIUM, LIKE_ARIAL, assert_no_fault
from tests.layout import broken, colliding, cut_off, ragged, too_wide, unfold
from tests.report import hostile
from tests.view.pages import opened, served
from tests.view.runs import SETTINGS, answers_frame, items_frame, made, make_run

pytestmark = [*IN_CHROMIUM, LIKE_ARIAL]

LONG = "a_run_with_a_name_that_is_much_longer_than_a_telephone_is_wide_2026_11_23"
PLACES = {
    "list": "/",
    "run": "/run/ranked",
    "items": f"/run/{LONG}/items",
    "no_hit": f"/run/{LONG}/items?q=zzzzqq",
    "item": "/run/ranked/item/0",
    "compare": "/compare?a=made&b=other",
    "damaged": "/run/damaged",
    "unknown": "/run/nothing",
    "no_page": "/nowhere",
    "unanswered": "/run/unanswered",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a ranking, a long name, two runs alike, a damaged run and one with no rows."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "ranked", hostile.frames(12), hostile.SETTINGS)
    for name in (LONG, "made", "other", "damaged"):
        made(folder / name, 30)
    frames = {"items": items_frame(3), "answers": answers_frame(0)}
    make_run(folder / "unanswered", frames, SETTINGS, n_left=6)
    (folder / "damaged" / "store.sqlite").write_bytes(b"nothing of a database" * 400)
    return folder


def settled(page):
    page.wait_for_load_state("networkidle")
    unfold(page)
    return page


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_cut_off_and_numbers_are_in_line(browser, links, place):
    with opened(browser, links, PLACES[place]) as (page, _):
        settled(page)
        for width in (1280, 800, 390):
            page.set_viewport_size({"width": width, "height": 844})
            found = cut_off(page), broken(page), ragged(page), colliding(page)
            assert (width, max(0, too_wide(page)), *found) == (width, 0, [], [], [], [])


@pytest.mark.parametrize(
    ("place", "scheme", "width"),
    [
        ("list", "dark", 390),
        ("items", "light", 390),
        ("no_hit", "dark", 1280),
        ("damaged", "light", 390),
        ("compare", "light", 390),
        ("unanswered", "dark", 1280),
    ],
)
def test_axe_finds_no_serious_fault(browser, links, axe, place, scheme, width):
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    with opened(browser, links, PLACES[place], bypass_csp=True, **options) as (page, _):
        settled(page)
        assert_no_fault(page, axe, 5)


def test_a_search_without_a_hit_leads_back_to_all_items(browser, links):
    with opened(browser, links, PLACES["no_hit"]) as (page, said):
        page.locator(".no-hit", has_text="No item matches").wait_for()
        page.get_by_role("button", name="Show all items").click()
        page.locator("#row-5").wait_for()
        assert page.locator(".said").inner_text() == "30 items"
        assert "zzzzqq" not in page.url
        assert said == []


def test_a_damaged_run_says_what_to_do_and_leads_back(browser, links):
    with opened(browser, links, PLACES["damaged"]) as (page, _):
        fault = page.get_by_role("alert")
        assert "the file is damaged or not a store" in fault.inner_text()
        assert "orchestrator runs repair " in fault.locator("code").first.inner_text()
        page.get_by_role("link", name="All runs").click()
        page.locator("h1", has_text="Runs").wait_for()


def test_a_run_without_answers_says_how_to_go_on(browser, links):
    with opened(browser, links, PLACES["unanswered"]) as (page, said):
        shown = page.locator("#glance").inner_text()
        assert "No results yet: " in shown
        assert "Run the same command again to finish 6 units." in shown
        assert said == []


def test_an_empty_folder_says_how_to_begin(browser, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    state = tmp_path_factory.mktemp("state")
    with (
        served(empty, state) as link,
        opened(browser, link, "/", viewport={"width": 390, "height": 844}) as (page, said),
    ):
        assert "No runs found" in page.locator(".none-here").inner_text()
        assert page.locator("button.main").count() == 0
        assert too_wide(page) <= 0
        assert said == []
    shutil.rmtree(empty)


def test_the_list_of_runs_fits_a_telephone_and_keeps_what_a_run_is(browser, links):
    with opened(browser, links, "/", viewport={"width": 390, "height": 844}) as (page, _):
        region = page.locator(".scroll")
        assert region.evaluate("one => one.scrollWidth - one.clientWidth") <= 1
        row = page.locator("tbody tr", has_text="other")
        assert "answers · one, two" in row.inner_text()
