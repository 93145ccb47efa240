"""A limit that is found, with the real command and a server that grows in the middle of the run."""

import json

import pytest

from tests.e2e.runs import fake_server, run, stats, write_recipe


@pytest.mark.slow
@pytest.mark.long
def test_a_server_that_grows_gets_more_and_the_log_says_why(tmp_path):
    # At first 20 requests a second: what waits then waits for seconds.
    rules = {"rules": [{"latency_s": 0.2}], "capacity": [[0, 4], [250, 100]]}
    with fake_server(rules) as url:
        recipe = write_recipe(tmp_path / "grows.json", url, n=700, limits={})
        run_dir = tmp_path / "run"
        done = run(recipe, run_dir)
        assert done.returncode == 0, done.stderr
        assert stats(url)["max_in_flight"] > 64
    lines = (run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()
    reasons = [line["why"] for line in map(json.loads, lines) if "why" in line]
    assert any("wait in the server" in why for why in reasons)
    assert "no requests wait in the server" in reasons
