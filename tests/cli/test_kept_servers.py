"""`orchestrator servers stop`: which of the servers that runs have kept it ends."""

from types import SimpleNamespace

import pytest

from orchestrator.commands import servers
from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE

# Two of them are one process.
KEPT = [
    SimpleNamespace(name=name, job="", host="here", watchdog=number)
    for name, number in (("a", 1), ("b", 1), ("c", 2))
]


@pytest.mark.parametrize(
    ("named", "stopped"),
    [
        (("a",), "ab"), (("b",), "ab"), (("c",), "c"), (("a", "c"), "abc"), (("--all",), "abc"),
        ((), ""), (("x",), ""), (("a", "x"), ""),
    ],
)  # fmt: skip
def test_those_that_are_named_end_with_those_of_their_process(command, monkeypatch, named, stopped):
    ended: list[str] = []

    class Registry:
        def all(self):
            return KEPT

        def stop(self, kept):
            ended.append(kept.name)

    monkeypatch.setattr(servers, "ServerRegistry", Registry)
    code, out, err = command("servers", "stop", *named)
    assert "".join(ended) == stopped
    assert [line.split()[0] for line in out.splitlines()] == [*stopped]
    assert code == (EXIT_COMPLETE if stopped else EXIT_USAGE)
    if "x" in named:
        assert "no kept server x; available: a, b, c" in err
