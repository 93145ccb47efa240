"""Every method over a run whose server says odd log-probabilities, or lists too few of them.

Whatever a server says, no method is at fault, and no row holds NaN or infinity.
"""

import json
import math
import re
from typing import Any

import pytest

from orchestrator.interface import api
from tests.fuzz.mangled import mangling
from tests.matrix.test_methods_on_servers import METHODS, MODELS, REFUSED, SERVERS, recipe

LITERALS = {"nan": "NaN", "null": "null", "sentinel": "-9999.0"}
FAULTS = (*LITERALS, "fewer")
ITEM = re.compile(rb"Zanzarim in (\w+) of (everyone|judges)")
QUICK = "native"


def odd(body: bytes, fault: str) -> bytes:
    """A reply whose numbers of the model are all odd, or whose lists of them are too short."""
    if fault == "fewer":
        return json.dumps(shorter(json.loads(body))).encode()
    # A server's other numbers are whole ones.
    mark = json.loads(body, parse_float=lambda _: "@number@")
    return json.dumps(mark).replace('"@number@"', LITERALS[fault]).encode()


def shorter(reply: Any, name: str = "") -> Any:
    """The lists of alternatives, and those of bare numbers, without their last member."""
    if isinstance(reply, dict):
        numbered = len(reply) > 1 and all(key.isdigit() for key in reply)
        members = list(reply.items())[: -1 if numbered else None]
        return {key: shorter(one, key) for key, one in members}
    if not isinstance(reply, list):
        return reply
    if "top_" in name and all(
        isinstance(one, list) and one and isinstance(one[0], list) for one in reply
    ):
        return [shorter(one, name) for one in reply]
    is_listed = "top_" in name or any(isinstance(one, float) for one in reply)
    return [shorter(one, name) for one in (reply[:-1] if is_listed else reply)]


@pytest.mark.parametrize(
    ("on", "name"),
    [
        pytest.param(on, name, marks=() if on == QUICK else (pytest.mark.slow, pytest.mark.long))
        for on in SERVERS
        for name in METHODS
        if (on, name) not in REFUSED
    ],
)
def test_odd_numbers_of_a_server_are_no_fault_of_a_method(on, name, tmp_path):
    rules, backend = SERVERS[on]
    dialect = rules["dialect"] if isinstance(rules, dict) else ""
    struck = set()

    def change(request, body):
        found = ITEM.search(request.body)
        if found is None or (found[2] == b"judges" and MODELS[2].encode() not in request.body):
            return body
        struck.add(found[1].decode())
        return odd(body, found[1].decode())

    with mangling(dialect, list(MODELS)) as (url, server):
        server.change = change
        path = recipe(tmp_path, url, backend, [name])
        items = [
            {"key": f"{fault} {whose}", "prompt": f"Tell me of Zanzarim in {fault} of {whose}.",
             "reference": "It lies by the sea."}
            for fault in FAULTS for whose in ("everyone", "judges")
        ]  # fmt: skip
        (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
        result = api.run(path, run_dir=tmp_path / "run", display="none")
        assert struck == set(FAULTS)
        assert result.n_left == 0
        for of, frame in result.frames.items():
            if "cause" in frame.columns:
                at_fault = frame.filter(frame["cause"] == "method")
                assert at_fault.is_empty(), (of, at_fault["message"].unique().to_list())
            for row in frame.iter_rows():
                assert_finite(row, of)


def assert_finite(value, where):
    if isinstance(value, float):
        assert math.isfinite(value), where
    elif isinstance(value, (list, tuple)):
        for one in value:
            assert_finite(one, where)
