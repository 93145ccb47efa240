"""Ctrl-C while results are written: kept until nothing is half done."""

import os
import signal

import pytest

from orchestrator.runner.event_loop import DRAINS, DeferredInterrupts, deferred_interrupts


@pytest.fixture(autouse=True)
def _default_handler():
    # A shell's background job, such as this run of the tests, ignores SIGINT from its start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_before_the_end_ctrl_c_raises_where_it_comes():
    with deferred_interrupts(), pytest.raises(KeyboardInterrupt):
        press()


def test_at_the_end_it_raises_only_where_it_is_looked_for(capfd):
    with deferred_interrupts() as late:
        late.begin()
        late.look()
        press()
        press()
        with pytest.raises(KeyboardInterrupt):
            late.look()
    assert capfd.readouterr().err.count("one moment") == 1


def test_a_block_in_another_has_the_same_handler_and_leaves_it():
    with deferred_interrupts() as outer:
        with deferred_interrupts() as inner:
            assert inner is outer
        assert signal.getsignal(signal.SIGINT) is outer
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts() as late:
            late.begin()
            press()
            late.look()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_broken_stderr_is_no_fault(monkeypatch):
    monkeypatch.setattr("orchestrator.runner.event_loop._STDERR", 1_000_000)
    late = DeferredInterrupts()
    late.begin()
    late(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        late.look()


@pytest.mark.parametrize("number", DRAINS)
def test_a_request_to_stop_raises_before_the_end_and_is_ignored_at_the_end(number):
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with deferred_interrupts() as late:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
            late.begin()
            os.kill(os.getpid(), number)
            late.look()
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("own", [signal.SIG_IGN, lambda *_: None])
def test_a_handler_of_the_program_that_calls_us_stays(own):
    before = signal.signal(signal.SIGUSR1, own)
    try:
        with deferred_interrupts():
            assert signal.getsignal(signal.SIGUSR1) == own
    finally:
        signal.signal(signal.SIGUSR1, before)
