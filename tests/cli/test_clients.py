"""Options of `--clients` that are refused before anything is sent."""

import pytest

from orchestrator.errors import EXIT_USAGE
from orchestrator.runner.interface import clients


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"budget": {"requests": 9}}, "a `budget` bounds all clients together"),
        ({"limits": {"max_in_flight": 1}}, "takes 1 request at a time, and each client needs one"),
    ],
)
def test_a_recipe_that_clients_cannot_share_is_refused(command, recipe, changes, why):
    code, _, said = command("run", recipe(**changes), "--clients", "2")
    assert code == EXIT_USAGE
    assert why in " ".join(said.split())


def test_no_client_is_refused(command, recipe):
    code, _, said = command("run", recipe(), "--clients", "0")
    assert code == EXIT_USAGE
    assert "--clients 0: at least 1 is needed" in " ".join(said.split())


def test_a_network_file_system_is_refused(command, recipe, monkeypatch):
    monkeypatch.setattr(clients, "is_network_fs", lambda _: True)
    code, _, said = command("run", recipe(), "--clients", "2")
    assert code == EXIT_USAGE
    assert "processes cannot share a store" in " ".join(said.split())
