from orchestrator.ask import digest, item_digest
from orchestrator.units import Plan, make_part
from tests.core.fakes import Items, method, nothing


def part(name="", **schema):
    made = method(nothing, columns={"value": "str", **schema})
    return make_part("fake", made, ("m",), name)


def test_another_column_makes_other_rows_though_no_version_was_raised():
    assert part().fingerprint != part(more="str").fingerprint
    assert part(more="str").fingerprint != part(more="f64").fingerprint


def test_another_name_makes_other_rows():
    assert part().fingerprint == part("fake").fingerprint
    assert part().fingerprint != part("other").fingerprint


class Known(Items):
    """Items whose content is known without reading them."""

    def content(self, index):
        return item_digest(self.item(index))


def test_a_unit_has_the_same_fingerprint_however_the_content_of_its_item_is_known():
    read, known = (Plan([part()], items(5), {"m": digest("m")}, seed=0) for items in (Items, Known))
    hashes = [read.unit_hash(position) for position in range(5)]
    assert hashes == [known.unit_hash(position) for position in range(5)]
    assert len(set(hashes)) == 5
