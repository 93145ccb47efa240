import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ask import GenerateAsk, Request
from orchestrator.records import ACCOUNT, UNCLEAR, Failure, Message
from orchestrator.scheduler.core import Core, Limits, Retried, Settled
from tests.core.fakes import BAD, BROKEN, BUSY, REFUSED, SAMPLING, generation

UNSURE = Failure("unauthorised", "HTTP 403", status=403, scope=UNCLEAR)


def request(model="m", position=0):
    ask = GenerateAsk(model, (Message("user", str(position)),), SAMPLING)
    return Request(f"{model}{position}".encode(), ask, 0, position)


def core(**limits):
    return Core({"m": Limits(**{"max_attempts": 3} | limits), "other": Limits()})


def test_no_more_than_the_limit_is_in_flight():
    c = core(max_in_flight=2)
    for position in range(5):
        c.submit(request(position=position), 0.0)
    taken = [c.take("m", 0.0) for _ in range(5)]
    assert [r is not None for r in taken] == [True, True, False, False, False]


def test_the_oldest_unit_goes_first():
    c = core()
    for position in (3, 1, 2):
        c.submit(request(position=position), 0.0)
    assert [c.take("m", 0.0).position for _ in range(3)] == [1, 2, 3]


def test_a_permanent_failure_is_not_tried_again():
    c = core()
    c.submit(request(), 0.0)
    (end,) = c.done(c.take("m", 0.0), BAD, 1.0)
    assert isinstance(end, Settled)


def test_a_failure_of_the_moment_is_tried_again_and_then_given_up():
    c = core()
    c.submit(request(), 0.0)
    now, kinds = 0.0, []
    for _ in range(3):
        taken = c.take("m", now)
        assert taken is not None
        (end,) = c.done(taken, BROKEN, now)
        kinds.append(type(end))
        now += 1000.0
    assert kinds == [Retried, Retried, Settled]


def test_a_retry_waits_as_long_as_the_server_asked():
    c = core()
    c.submit(request(), 0.0)
    failure = msgspec.structs.replace(BUSY, retry_after_s=42.0)
    (end,) = c.done(c.take("m", 10.0), failure, 10.0)
    assert end.at >= 52.0
    assert c.take("m", 51.0) is None
    assert c.take("m", end.at) is not None


def test_a_server_out_of_reach_is_tried_one_request_at_a_time():
    c = core()
    for position in range(4):
        c.submit(request(position=position), 0.0)
    first = c.take("m", 0.0)
    c.done(first, REFUSED, 0.0)
    at = c.wake_at("m")
    assert c.take("m", 0.1) is None
    assert c.take("m", at) is not None
    assert c.take("m", at) is None


def test_a_server_that_comes_back_gets_everything():
    c = core()
    for position in range(4):
        c.submit(request(position=position), 0.0)
    c.done(c.take("m", 0.0), REFUSED, 0.0)
    trial = c.take("m", 1.0)
    c.done(trial, generation("x"), 1.1)
    assert all(c.take("m", 2.0) is not None for _ in range(3))


def test_a_server_out_of_reach_for_too_long_fails_all_its_requests_and_nobody_elses():
    c = core(dead_after_s=5.0)
    for position in range(3):
        c.submit(request(position=position), 0.0)
    c.submit(request("other", 9), 0.0)
    c.done(c.take("m", 0.0), REFUSED, 0.0)
    ends = c.done(c.take("m", 6.0), REFUSED, 6.0)
    assert sorted(end.request.position for end in ends) == [0, 1, 2]
    assert {end.outcome.cause for end in ends} == {"dead_server"}
    assert not ends[0].outcome.permanent
    assert c.submit(request(position=7), 0.0).outcome.cause == "dead_server"
    assert c.take("other", 6.0) is not None


def test_a_wrong_key_ends_the_model_for_this_call_and_is_no_outcome():
    c = core()
    for position in range(3):
        c.submit(request(position=position), 0.0)
    wrong = Failure("unauthorised", "wrong key", status=401, scope=ACCOUNT)
    ends = c.done(c.take("m", 0.0), wrong, 0.0)
    assert len(ends) == 3
    assert not any(end.outcome.permanent for end in ends)
    assert {end.outcome.cause for end in ends} == {"unauthorised"}


def test_where_others_are_answered_one_that_is_too_dear_ends_no_model():
    c = core()
    for position in range(20):
        c.submit(request(position=position), 0.0)
    dear = Failure("no_credit", "needs more credits", status=402, scope=ACCOUNT)
    c.done(c.take("m", 0.0), generation("x"), 0.0)
    (end,) = c.done(c.take("m", 0.0), dear, 0.0)
    assert (end.outcome.cause, c.models["m"].dead) == ("no_credit", None)
    c.done(c.take("m", 0.0), generation("x"), 0.0)
    while c.models["m"].dead is None:
        c.done(c.take("m", 0.0), dear, 0.0)
    assert c.models["m"].dead.cause == "no_credit"


ODD = Failure("bad_request", "HTTP 400", permanent=True, status=400, scope=UNCLEAR)
OWN_ERROR = Failure("server_error", "HTTP 500", status=500)
# Of the model, the request or the moment, and whether it is stored where others are answered.
OF_ALL = {"right": UNSURE, "odd": ODD, "broken": OWN_ERROR}


@pytest.mark.parametrize("of_all", OF_ALL)
@pytest.mark.parametrize("has_answered", [False, True])
@pytest.mark.parametrize("in_flight", [1, 2, 64])
def test_what_every_request_meets_ends_a_model_that_answers_nobody(in_flight, has_answered, of_all):
    c = core(max_in_flight=in_flight, max_attempts=1)
    for position in range(200):
        c.submit(request(position=position), 0.0)
    if has_answered:
        c.done(c.take("m", 0.0), generation("x"), 0.0)
    n_sent = 0
    stored = []
    while (sent := list(iter(lambda: c.take("m", 0.0), None))) and n_sent < 150:
        n_sent += len(sent)
        now = 3.0 * n_sent
        ends = [end for one in sent for end in c.done(one, OF_ALL[of_all], now)]
        stored += [end.outcome.permanent for end in ends]
    if of_all == "broken" and has_answered:
        assert c.models["m"].dead is None  # each is sent as often as it may be
        return
    assert n_sent <= in_flight + 9
    assert c.models["m"].dead.cause == OF_ALL[of_all].cause
    # What ends a model is no fact about its requests.
    assert not any(stored)


@pytest.mark.parametrize("failure", [UNSURE, ODD])
def test_some_that_are_refused_alone_take_no_place_from_others(failure):
    c = core(max_in_flight=8)
    for position in range(80):
        c.submit(request(position=position), 0.0)
    ends = c.done(c.take("m", 0.0), generation("x"), 0.0)
    for turn in range(20):
        sent = [c.take("m", 0.0) for _ in range(3)]
        assert None not in sent
        for number, one in enumerate(sent):
            ends += c.done(one, failure if number == turn % 3 else generation("x"), 0.0)
    ends += c.done(c.take("m", 0.0), generation("x"), 0.0)
    refused = [end.outcome for end in ends if isinstance(end.outcome, Failure)]
    assert [one.permanent for one in refused] == [failure.permanent] * 20


@pytest.mark.parametrize("in_flight", [1, 2, 64])
def test_refusals_that_may_be_the_accounts_end_a_model_after_a_few_trials(in_flight):
    c = core(max_in_flight=in_flight)
    for position in range(200):
        c.submit(request(position=position), 0.0)
    n_sent, sent = 0, []
    while c.models["m"].dead is None:
        while (taken := c.take("m", 0.0)) is not None:
            sent.append(taken)
        n_sent += len(sent)
        for one in sent:
            c.done(one, UNSURE, 0.0)
        sent = []
    assert n_sent <= in_flight + 5
    assert c.submit(request(position=999), 0.0).outcome.cause == "unauthorised"


@given(
    refused=st.sets(st.integers(0, 59), max_size=30),
    in_flight=st.integers(1, 8),
    rng=st.randoms(use_true_random=False),
)
def test_items_that_are_refused_among_others_that_are_answered_cost_nobody_else(
    refused, in_flight, rng
):
    # Never five of one row: that is where a model is given up.
    refused = {at for at in refused if at % 4}
    c = core(max_in_flight=in_flight)
    for position in range(60):
        c.submit(request(position=position), 0.0)
    flying, ends, n_sent = [], [], 0
    while c.busy("m"):
        while (taken := c.take("m", 0.0)) is not None:
            flying.append(taken)
            n_sent += 1
        one = flying.pop(rng.randrange(len(flying)))
        answer = UNSURE if one.position in refused else generation("x")
        ends += c.done(one, answer, 0.0)
    assert n_sent == 60
    assert c.models["m"].dead is None
    failed = {end.request.position for end in ends if isinstance(end.outcome, Failure)}
    assert failed == refused
    assert not any(end.outcome.permanent for end in ends if isinstance(end.outcome, Failure))


def test_refusals_are_no_attempts_of_the_request():
    c = core(dead_after_s=1e9)
    c.submit(request(), 0.0)
    now = 0.0
    for _ in range(20):
        taken = c.take("m", now)
        assert taken is not None
        (end,) = c.done(taken, REFUSED, now)
        assert isinstance(end, Retried)
        now = c.wake_at("m")
    (end,) = c.done(c.take("m", now), generation("late"), now)
    assert isinstance(end, Settled)


def test_what_was_put_back_is_taken_again():
    c = core()
    c.submit(request(), 0.0)
    taken = c.take("m", 0.0)
    c.put_back(taken, 0.0)
    assert c.models["m"].in_flight == 0
    assert c.take("m", 0.0) is taken
    assert taken.attempts == 1


@given(st.lists(st.sampled_from(["ok", "busy", "refused", "bad"]), min_size=1, max_size=60))
def test_every_request_ends_exactly_once(script):
    c = core(max_in_flight=4, dead_after_s=20.0)
    n = 12
    for position in range(n):
        c.submit(request(position=position), 0.0)
    outcome = {"ok": generation("x"), "busy": BUSY, "refused": REFUSED, "bad": BAD}
    ended: list[Settled] = []
    now, step = 0.0, 0
    while len(ended) < n and step < 10_000:
        taken = c.take("m", now)
        if taken is None:
            now = max(now + 0.01, c.wake_at("m") or now)
            step += 1
            continue
        kind = script[step % len(script)] if step < 500 else "ok"
        step += 1
        ended += [e for e in c.done(taken, outcome[kind], now) if isinstance(e, Settled)]
    assert sorted(e.request.position for e in ended) == list(range(n))
    assert not any(map(c.busy, c.models))


def test_trials_of_a_server_out_of_reach_are_no_attempts_of_the_request():
    c = core(dead_after_s=1000.0)
    c.submit(request(), 0.0)
    now = 0.0
    for _ in range(8):
        now += 100.0
        c.done(c.take("m", now), REFUSED, now)
    (end,) = c.done(c.take("m", now + 100.0), BUSY, now + 100.0)
    assert isinstance(end, Retried)


def test_refusals_for_overload_and_deadlines_are_counted():
    c = core()
    late = Failure("timeout", "no reply")
    for position, failure in enumerate((BUSY, BAD, late, generation("x"))):
        c.submit(request(position=position), 0.0)
        c.done(c.take("m", 10.0 * position), failure, 10.0 * position)
    assert c.models["m"].n_overloads == 2


def test_nothing_is_sent_while_the_limit_is_used_up():
    c = core(max_in_flight=1)
    for position in range(3):
        c.submit(request(position=position), 0.0)
    assert c.n_ready("m") == 3
    c.take("m", 0.0)
    assert c.n_ready("m") == 2
    assert c.take("m", 0.0) is None


def test_a_model_has_its_own_number_of_attempts():
    c = core(max_attempts=1)
    c.submit(request(), 0.0)
    (end,) = c.done(c.take("m", 0.0), BROKEN, 0.0)
    assert isinstance(end, Settled)


def test_after_a_rate_cap_the_connection_is_kept():
    c = core()
    c.submit(request(), 0.0)
    (end,) = c.not_connected(c.take("m", 0.0), BUSY, 0.0)
    assert isinstance(end, Retried)
    assert c.models["m"].down_since is not None
    assert not c.models["m"].must_connect


def test_a_paused_core_sends_nothing_and_asks_for_no_timer():
    c = core()
    c.submit(request(position=0), 0.0)
    (end,) = c.done(c.take("m", 0.0), BUSY, 0.0)
    assert isinstance(end, Retried)
    c.submit(request(position=1), 0.0)
    c.paused = True
    assert c.take("m", 1e9) is None
    assert c.wake_at("m") is None
    c.paused = False
    assert c.take("m", 1e9) is not None


def test_a_held_model_is_sent_nothing_and_others_are():
    c = core()
    for model in ("m", "other"):
        c.submit(request(model), 0.0)
    c.models["m"].is_held = True
    assert c.take("m", 1e9) is None
    assert c.n_ready("m") == 0
    assert c.wake_at("m") is None
    assert c.take("other", 0.0) is not None
    c.models["m"].is_held = False
    assert c.take("m", 0.0) is not None


def test_a_lowered_limit_lets_what_is_in_flight_end_first():
    c = core(max_in_flight=3)
    for position in range(5):
        c.submit(request(position=position), 0.0)
    taken = [c.take("m", 0.0) for _ in range(3)]
    c.models["m"].limits = Limits(max_in_flight=1)
    for sent in taken[:2]:
        c.done(sent, generation("x"), 0.0)
        assert c.take("m", 0.0) is None
    c.done(taken[2], generation("x"), 0.0)
    assert c.take("m", 0.0) is not None


@pytest.mark.parametrize("cause", ["refused", "unreachable"])
def test_what_nobody_took_is_no_attempt_although_the_server_has_answered_before(cause):
    c = core()
    for position in range(2):
        c.submit(request(position=position), 0.0)
    c.done(c.take("m", 0.0), generation("x"), 0.0)
    taken = c.take("m", 0.0)
    (end,) = c.done(taken, Failure(cause, "no route to host"), 1.0)
    assert isinstance(end, Retried)
    assert taken.attempts == 0
    assert c.models["m"].down_since is not None


def test_the_time_that_a_restart_takes_is_not_time_out_of_reach():
    c = core(dead_after_s=30.0)
    c.submit(request(), 0.0)
    c.done(c.take("m", 0.0), REFUSED, 0.0)
    trial = c.take("m", 1.0)
    c.restarted("m", 90.0)
    (end,) = c.done(trial, REFUSED, 100.0)
    assert isinstance(end, Retried)
    (end,) = c.done(c.take("m", 119.0), REFUSED, 121.0)
    assert isinstance(end, Settled)


def test_a_model_has_answered_once_a_request_was():
    c = core()
    c.submit(request(), 0.0)
    assert not c.models["m"].n_done
    c.done(c.take("m", 0.0), generation("x"), 0.0)
    assert c.models["m"].n_done


@pytest.mark.parametrize(("was_there", "refusal", "waits_s"), [
    (False, REFUSED, 30.0), (True, REFUSED, 600.0), (False, BUSY, 600.0), (True, BUSY, 600.0),
])  # fmt: skip
def test_a_server_is_waited_for_by_what_is_known_of_it(was_there, refusal, waits_s):
    c = core()
    c.submit(request(), 0.0)
    if was_there:
        c.models["m"].was_there = True
    now = 0.0
    while isinstance(c.done(c.take("m", now), refusal, now)[-1], Retried):
        now = c.wake_at("m")
    assert waits_s <= now <= waits_s + 5.0


GATEWAY = [Failure("server_error", f"HTTP {status}", status=status) for status in (502, 504)]
CUT = Failure("connection", "cut")


def ended(c, answer, took_s=1.0):
    """Send all that may be sent until nothing is left; how often each was sent, and its end."""
    now = 0.0
    flying: list[tuple[float, int, Request]] = []
    sent: dict[int, int] = {}
    ends: dict[int, object] = {}
    while c.busy("m"):
        while (taken := c.take("m", now)) is not None:
            sent[taken.position] = sent.get(taken.position, 0) + 1
            flying.append((now + took_s, taken.position, taken))
        now = min(flying)[0] if flying else max(now, c.wake_at("m"))
        for one in [one for one in flying if one[0] <= now]:
            flying.remove(one)
            for end in c.done(one[2], answer(one[1]), now):
                if isinstance(end, Settled):
                    ends[end.request.position] = end.outcome
    return sent, ends


@pytest.mark.parametrize("failure", [*GATEWAY, CUT, OWN_ERROR, BUSY])
@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_request_that_its_server_does_not_survive_ends_and_takes_no_other_with_it(
    failure, in_flight
):
    c = core(max_in_flight=in_flight)
    c.models["m"].was_there = True
    for position in range(60):
        c.submit(request(position=position), 0.0)
    sent, ends = ended(c, lambda at: generation("x") if at else failure)
    failed = [position for position, end in ends.items() if isinstance(end, Failure)]
    assert failed == [0]
    assert not ends[0].permanent
    if failure is not BUSY:  # that one has to show to be more than load
        assert sent[0] <= 10
        assert c.models["m"].dead is None


@pytest.mark.parametrize("failure", GATEWAY)
@pytest.mark.parametrize("poison", [{59}, {5, 25, 45, 55, 58}])
def test_what_a_gateway_says_of_the_few_that_are_left_is_not_waited_for_as_long(failure, poison):
    c = core(max_in_flight=64)
    c.models["m"].was_there = True
    for position in range(60):
        c.submit(request(position=position), 0.0)
    sent, ends = ended(c, lambda at: failure if at in poison else generation("x"))
    assert {at for at, end in ends.items() if isinstance(end, Failure)} == poison
    assert c.models["m"].dead is None
    assert max(sent.values()) <= 25


def test_who_asks_to_wait_longer_than_anybody_does_is_not_waited_for():
    c = core()
    for position in range(3):
        c.submit(request(position=position), 0.0)
    ends = c.done(c.take("m", 0.0), msgspec.structs.replace(BUSY, retry_after_s=9000.0), 0.0)
    assert len(ends) == 3
    assert {end.outcome.cause for end in ends} == {"rate_limited"}
    assert "asks to wait 2 h 30 min" in ends[0].outcome.message
    patient = core(dead_after_s=86400.0)
    patient.submit(request(), 0.0)
    (end,) = patient.done(
        patient.take("m", 0.0), msgspec.structs.replace(BUSY, retry_after_s=9000.0), 0.0
    )
    assert isinstance(end, Retried)
