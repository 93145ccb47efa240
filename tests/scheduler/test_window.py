import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts.method import Combination
from orchestrator.scheduler.window import Window
from orchestrator.units import Plan
from tests.core.fakes import Items, digest, generation, make_part, method, nothing

NAMES = ("a", "b", "c", "judge")
NOBODY = dict.fromkeys(NAMES, 0)


def make(max_open=8, n_items=4, given_names=()):
    """Each item: answers of a, b and c (0, 1, 2), then the judge on ab and bc (3, 4)."""
    singles = method(nothing, [Combination((name,)) for name in "abc"], feeds_others=True)
    pairs = method(nothing, [Combination(("a", "b"), "judge"), Combination(("b", "c"), "judge")])
    parts = [
        make_part(kind, module, NAMES[:3])
        for kind, module in (("answers", singles), ("pairs", pairs))
    ]
    identities = {name: digest(name) for name in NAMES}
    finders = dict.fromkeys(given_names, lambda item, ask: generation("4"))
    plan = Plan(parts, Items(n_items), identities, seed=0, given=finders)
    return plan, Window(plan, iter(range(len(plan))), max_open)


def drain(window, waiting, n=50, n_open=0):
    found = []
    for _ in range(n):
        position = window.next_position(n_open, waiting)
        if position is None:
            break
        found.append(position)
    return found


def test_answers_come_in_order_and_judgments_wait_for_theirs():
    _, window = make(n_items=2)
    assert drain(window, NOBODY) == [0, 1, 2, 5, 6, 7]


def test_a_judgment_is_opened_as_soon_as_its_answers_have_ended():
    _, window = make(n_items=2)
    assert drain(window, NOBODY) == [0, 1, 2, 5, 6, 7]
    window.end(0)
    assert drain(window, NOBODY) == []
    window.end(1)
    assert drain(window, NOBODY) == [3]


def test_no_more_units_than_the_window_holds_are_opened():
    _, window = make(max_open=3)
    assert window.next_position(3, NOBODY) is None


def test_a_full_model_holds_up_its_own_units_only():
    _, window = make(n_items=2)
    assert drain(window, NOBODY | {"a": 2}) == [1, 2, 6, 7]
    assert window.next_position(0, NOBODY) == 0


def test_a_full_judge_holds_up_no_answers():
    _, window = make(n_items=2)
    for position in (0, 1, 2):
        assert window.next_position(0, NOBODY) == position
        window.end(position)
    assert drain(window, NOBODY | {"judge": 2}) == [5, 6, 7]
    assert drain(window, NOBODY) == [3, 4]


def test_texts_of_open_units_are_bounded_but_one_is_always_open():
    plan, _ = make()
    window = Window(plan, iter(range(len(plan))), 8, max_bytes=100)
    assert window.next_position(1, NOBODY, n_bytes=100) is None
    assert window.next_position(0, NOBODY, n_bytes=100) == 0


def test_memory_of_open_units_counts_whatever_their_texts_are():
    plan, _ = make()
    window = Window(plan, iter(range(len(plan))), 10**6, max_bytes=100 * 2_000)
    assert window.next_position(99, NOBODY) == 0
    assert window.next_position(100, NOBODY) is None


def test_the_window_grows_with_what_servers_take():
    plan, _ = make(n_items=400)
    limits = dict.fromkeys(NAMES, 1)
    window = Window(plan, iter(range(len(plan))), 8, limit=limits.__getitem__)
    # The share of eight units among four models is more than one request at a time needs.
    assert len(drain(window, NOBODY | {"a": 2, "b": 2, "c": 2})) == 0
    assert window.next_position(8, NOBODY) is None
    limits["a"] = 64
    busy = {"a": 127, "b": 2, "c": 2, "judge": 0}
    assert window.next_position(131, busy) is not None
    assert window.next_position(132, busy | {"a": 128}) is None


def test_what_earlier_calls_ended_counts_as_ended():
    plan, _ = make(n_items=1)
    done = bytearray([1, 1, 0, 0, 0])
    window = Window(plan, iter([2, 3, 4]), 8, ended=done)
    assert drain(window, NOBODY) == [2, 3]


@given(st.data())
def test_every_position_is_handed_out_exactly_once(data):
    given_names = data.draw(st.sampled_from([(), ("a",), ("a", "b", "c"), NAMES]))
    plan, _ = make(n_items=5, given_names=given_names)
    items = data.draw(st.permutations(range(5)))
    positions = (5 * item + which for item in items for which in range(5))
    window = Window(plan, positions, 8)
    got: list[int] = []
    unfinished: list[int] = []
    step = 0
    while not (window.empty and not unfinished):
        busy = {name: data.draw(st.integers(0, 3)) for name in NAMES} if step < 60 else NOBODY
        position = window.next_position(0, busy)
        step += 1
        if position is not None:
            got.append(position)
            unfinished.append(position)
        elif unfinished:
            window.end(unfinished.pop(data.draw(st.integers(0, len(unfinished) - 1))))
        else:
            # With room for all and nothing open there is nothing that it could wait for.
            assert step <= 60 or window.scanning or window.empty, (got, window.n_aside)
        # Set aside is what was met, is not open yet and has not been handed out.
        assert 0 <= window.n_aside <= len(plan) - len(got)
    assert window.n_aside == 0
    assert sorted(got) == list(range(len(plan)))


@pytest.mark.parametrize(("given_names", "found"), [((), []), (("a", "b", "c"), [3, 4])])
def test_models_whose_answers_are_given_take_no_share(given_names, found):
    plan, _ = make(n_items=1, given_names=given_names)
    window = Window(plan, iter([3, 4]), 8, ended=bytearray([1, 1, 1, 0, 0]))
    assert drain(window, NOBODY | {"judge": 7}) == found


def met(window, n_judging):
    """Positions of given answers, which end at once, while so many judgments wait for the judge."""
    found = []
    while (position := window.next_position(0, NOBODY | {"judge": n_judging})) is not None:
        found.append(position)
        if position % 5 < 3:
            window.end(position)
    return found


def test_given_answers_are_not_met_far_ahead_of_the_judge_that_reads_them():
    # The judge's share is 8.
    _, window = make(given_names=("a", "b", "c"))
    assert met(window, n_judging=8) == []
    _, window = make(given_names=("a", "b", "c"))
    assert met(window, n_judging=7) == list(range(20))


def test_given_answers_without_a_judge_are_all_met():
    singles = method(nothing, [Combination((name,)) for name in "ab"])
    finders = dict.fromkeys("ab", lambda item, ask: generation("4"))
    part = make_part("answers", singles, ("a", "b"))
    identities = {name: digest(name) for name in "ab"}
    plan = Plan([part], Items(3), identities, seed=0, given=finders)
    assert drain(Window(plan, iter(range(6)), 8), dict.fromkeys("ab", 0)) == list(range(6))
