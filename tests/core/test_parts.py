from orchestrator.plan import make_part
from tests.core.fakes import Config, method


async def evaluate(unit, ask, config):
    return []


def part(name="", **schema):
    made = method(evaluate)
    made.SCHEMA = {**made.SCHEMA, **schema}
    return make_part("fake", made, Config(), ("m",), name)


def test_another_column_makes_other_rows_though_no_version_was_raised():
    assert part().fingerprint != part(more="str").fingerprint
    assert part(more="str").fingerprint != part(more="f64").fingerprint


def test_another_name_makes_other_rows():
    assert part().fingerprint == part("fake").fingerprint
    assert part().fingerprint != part("other").fingerprint
