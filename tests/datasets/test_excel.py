"""Sheets of Excel files are datasets and answers, and what is no sheet is refused."""

import zipfile
from typing import Any
from xml.sax.saxutils import escape

import pytest

from orchestrator.datasets._files import ExcelConfig, ExcelKind
from orchestrator.errors import DatasetError
from orchestrator.recipe.settings import GivenAnswers
from orchestrator.records import Message
from orchestrator.runner.models.answers import AnswerFile
from tests.datasets.test_answers import item, text

pytest.importorskip("fastexcel", reason="the extra [excel] is not installed")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
NO_EXCEL = r"q\.xlsx: (not readable as|an old or locked).* Excel file"
PACKAGED = "http://schemas.openxmlformats.org/package/2006"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
ROWS: list[list[Any]] = [
    ["id", "prompt", "reference", "n"],
    [1, "What is 2 + 2?", "4", 1.5],
    [2, "Zwei\nZeilen; mit <Ümläuten> 🙂", None, 2],
]


class Day(float):
    """A date as sheets hold it: days since the end of 1899."""


def cell(value):
    if isinstance(value, Day):
        return f'<c s="1"><v>{float(value)}</v></c>'
    if value is None:
        return "<c/>"
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    return f"<c><v>{value}</v></c>"


def write(path, **sheets):
    """An Excel file with some sheets of rows."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(sheets, 1)
    )
    links = "".join(
        f'<Relationship Id="r{n}" Type="{RELATED}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    of_sheets = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{SHEET}.worksheet+xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGED}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{SHEET}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{SHEET}.styles+xml"/>'
        f"{of_sheets}</Types>",
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/>'
        f'<xf numFmtId="22" applyNumberFormat="1"/></cellXfs></styleSheet>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGED}/relationships"><Relationship Id="r1" '
        f'Type="{RELATED}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATED}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGED}/relationships">'
        f'{links}<Relationship Id="styles" Type="{RELATED}/styles" Target="styles.xml"/>'
        "</Relationships>",
    }
    for n, rows in enumerate(sheets.values(), 1):
        lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        text = f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'
        files[f"xl/worksheets/sheet{n}.xml"] = text
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return path


def opened(folder, name="q.xlsx", **settings):
    return ExcelKind(ExcelConfig(path=name, **settings)).open(folder)


def test_a_sheet_is_a_dataset(tmp_path):
    write(tmp_path / "q.xlsx", first=[*ROWS, [None, None, None, None]])
    items = [opened(tmp_path).item(n) for n in range(2)]
    assert [(one.key, one.messages, one.reference) for one in items] == [
        (str(row[0]), (Message("user", row[1]),), row[2]) for row in ROWS[1:]
    ]
    assert items[0].fields["n"] == 1.5


def test_of_several_sheets_the_first_is_said_and_another_named(tmp_path):
    write(tmp_path / "q.xlsx", first=ROWS, second=[*ROWS, [3, "And?", None, 3]])
    assert "the sheet 'first', of 2" in opened(tmp_path).read_as
    assert (len(opened(tmp_path)), len(opened(tmp_path, sheet="second"))) == (2, 3)
    with pytest.raises(DatasetError, match="no sheet 'other'; there are: first, second"):
        opened(tmp_path, sheet="other")


def test_a_row_that_is_not_right_is_named_as_the_sheet_counts_it(tmp_path):
    write(tmp_path / "q.xlsx", first=[*ROWS, [3, None, "x", None]])
    with pytest.raises(DatasetError, match=r"q\.xlsx: row 4: 'prompt', which is the prompt, is"):
        opened(tmp_path)


def test_answers_are_read_from_a_sheet_too(tmp_path):
    write(
        tmp_path / "a.xlsx", first=[["id", "output", "generator"], [1, "So.", "m"], [2, "No.", "m"]]
    )
    answers = AnswerFile(GivenAnswers(path=str(tmp_path / "a.xlsx")), "m")
    assert "text from 'output'" in answers.read_as
    assert [text(answers, item(key)) for key in "12"] == ["So.", "No."]


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"id,prompt\n1,What?\n", b"\xd0\xcf\x11\xe0"]
)
def test_what_is_no_sheet_is_refused(tmp_path, content):
    (tmp_path / "q.xlsx").write_bytes(content)
    with pytest.raises(
        DatasetError, match=r"q\.xlsx: (not readable as|an old or locked).* Excel file"
    ):
        opened(tmp_path)


@pytest.mark.parametrize("gone", ["xl/workbook.xml", "xl/worksheets/sheet1.xml"])
def test_a_file_without_a_part_is_refused(tmp_path, gone):
    write(tmp_path / "whole.xlsx", first=ROWS)
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if name != gone}
    with zipfile.ZipFile(tmp_path / "q.xlsx", "w") as packed:
        for name, text in kept.items():
            packed.writestr(name, text)
    with pytest.raises(DatasetError, match=r"q\.xlsx: "):
        opened(tmp_path)


def test_a_whole_number_is_written_as_the_sheet_shows_it(tmp_path):
    rows = [["id", "prompt", "reference"], [1, "a", 4], [2, 12, 0.5], [3, "c", -7]]
    write(tmp_path / "q.xlsx", first=rows)
    data = opened(tmp_path)
    items = [data.item(n) for n in range(3)]
    assert [one.reference for one in items] == ["4", "0.5", "-7"]
    write(tmp_path / "q.xlsx", first=[["id", "prompt"], [1, 12], [2, 7]])
    assert opened(tmp_path).item(0).prompt == "12"


def test_a_date_is_a_text_without_a_time_that_it_has_not(tmp_path):
    days = [Day(45301), Day(45301.5625)]
    rows = [["id", "prompt", "reference"], *([n, "a", day] for n, day in enumerate(days))]
    write(tmp_path / "q.xlsx", first=rows)
    data = opened(tmp_path)
    assert [data.item(n).reference for n in range(2)] == ["2024-01-10", "2024-01-10 13:30:00"]


def test_rows_behind_an_empty_one_are_named_as_the_sheet_counts_them(tmp_path):
    write(tmp_path / "q.xlsx", first=[*ROWS, [None] * 4, [3, None, "x", None]])
    with pytest.raises(DatasetError, match=r"q\.xlsx: row 5: 'prompt'"):
        opened(tmp_path)


@pytest.mark.parametrize("said", [80 << 20, 1000])
def test_a_bomb_is_refused_before_it_is_unpacked_whatever_its_header_says(tmp_path, said):
    path = write(tmp_path / "q.xlsx", first=ROWS)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/media/image1.png", bytes(80 << 20))
    is_said, says = ((n).to_bytes(4, "little") for n in (80 << 20, said))
    path.write_bytes(path.read_bytes().replace(is_said, says))
    with pytest.raises(DatasetError, match="unpacks to more than 64 MB"):
        opened(tmp_path)


@pytest.mark.parametrize("at", [6, 8])
def test_a_file_with_a_password_or_packed_otherwise_is_refused(tmp_path, at):
    path = write(tmp_path / "q.xlsx", first=ROWS)
    content = path.read_bytes()
    for begin, more in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        parts = content.split(begin)
        parts[1:] = [
            part[: at - 4 + more] + bytes([1 if at == 6 else 99]) + part[at - 3 + more :]
            for part in parts[1:]
        ]
        content = begin.join(parts)
    path.write_bytes(content)
    with pytest.raises(
        DatasetError, match=r"q\.xlsx: (not readable as|an old or locked).* Excel file"
    ):
        opened(tmp_path)
