"""The page's table is written by columns, so that one server may be measured at a time."""

from tests.conformance import table
from tests.conformance.measure import QUANTITIES

COLUMNS = {"a": dict.fromkeys(QUANTITIES, "1.0e-06"), "b": dict.fromkeys(QUANTITIES, "2.0e-06")}


def test_a_table_is_read_as_it_was_written():
    assert table.parse(table.table(COLUMNS)) == COLUMNS


def test_only_the_table_of_a_page_is_replaced():
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    text = table.replaced(page, COLUMNS)
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert table.parse(table.between(text)) == COLUMNS


def test_the_page_has_a_column_of_every_measured_server_within_its_tolerance():
    columns = table.parse(table.between(table.PAGE.read_text(encoding="utf-8")))
    assert columns.keys() == table.MEASURED.keys()
    for name, kind in table.MEASURED.items():
        assert columns[name].keys() == set(QUANTITIES)
        assert max(map(float, columns[name].values())) <= (kind.tolerance or 0)
