"""The page that fills in a sheet of labels: what it writes, and for whom."""

import csv
import io
import json

import pytest
from starlette.testclient import TestClient

from orchestrator.errors import DatasetError, UsageError
from orchestrator.view.app import make_app
from orchestrator.view.labelling import Sheet
from orchestrator.view.library import Library
from orchestrator.view.serve import Guard
from tests.view.conftest import HERE
from tests.view.pages import values_of_sheet as values

OURS = {"origin": HERE, "content-type": "application/json"}
ANSWERS = ("=SUM(1,2)", 'said "no", then\nleft', "<script>alert(1)</script>", "Grüße 你好")


def write_sheet(folder, *, pairs=True, n=4):
    """A sheet of some rows, as `orchestrator labels` writes it."""
    path = folder / "labels.csv"
    titles = ("answer_1", "answer_2") if pairs else ("answer",)
    models = {"model_a": "good", "model_b": "poor"} if pairs else {"model": "good"}
    out = io.StringIO(newline="")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["code", "prompt", *titles, "label"])
    for i in range(n):
        texts = [ANSWERS[(i + side) % 4] for side in range(len(titles))]
        rows.writerow([f"r{i + 1}", f"prompt {i + 1}", *texts, ""])
    path.write_text("\ufeff" + out.getvalue(), encoding="utf-8")
    key = [{"code": f"r{i + 1}", "item": f"i{i}", "turn": 1, **models} for i in range(n)]
    text = "".join(json.dumps(one) + "\n" for one in key)
    (folder / "labels.key.jsonl").write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def desk(tmp_path):
    """A client that was let in, and the sheet."""

    def make(**options):
        path = write_sheet(tmp_path, **options)
        app = make_app(Library([], tmp_path / "side"), Sheet(path))
        guard = Guard(app, lambda _: None, writes=True)
        guard.begin()
        client = TestClient(guard, base_url=HERE)
        assert client.get(f"/?token={guard.token}").status_code == 200
        return client, path

    return make


def post(client, code, label, **headers):
    return client.post(f"/api/labels/{code}", json={"label": label}, headers={**OURS, **headers})


def test_labels_reach_the_sheet_and_all_else_stays(desk):
    client, path = desk()
    before = path.read_bytes()
    for code, label in (("r1", "1"), ("r3", "tie"), ("r2", "2"), ("r3", "2")):
        assert post(client, code, label).status_code == 200
    assert values(path) == {"r1": 1.0, "r2": 0.0, "r3": 0.0}
    listed = client.get("/api/labels").json()
    assert listed["rows"] == [["r1", "1"], ["r2", "2"], ["r3", "2"], ["r4", ""]]
    for code in ("r1", "r2", "r3"):
        assert post(client, code, "").status_code == 200
    assert path.read_bytes() == before


def test_a_sheet_of_long_texts_is_filled_in(desk):
    client, path = desk()
    sheet, longer = path.read_text(encoding="utf-8"), "word " * 100_000
    path.write_text(sheet.replace("prompt 1", longer), encoding="utf-8")
    assert client.get("/api/labels/r1").status_code == 200
    assert post(client, "r1", "2").status_code == 200
    assert longer in path.read_text(encoding="utf-8")


def test_a_row_is_shown_without_names(desk):
    client, _ = desk()
    everything = client.get("/api/labels").text + client.get("/api/labels/r1").text
    assert client.get("/api/labels/r1").json() == {
        "code": "r1", "prompt": "prompt 1", "texts": list(ANSWERS[:2]), "label": "",
    }  # fmt: skip
    assert "good" not in everything
    assert "i0" not in everything
    assert client.get("/api/runs").json() == {"runs": [], "single": None, "labels": True}


def test_a_change_made_by_a_spreadsheet_meanwhile_is_kept(desk):
    client, path = desk()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Grüße 你好,\n", "Grüße 你好,1\n", 1), encoding="utf-8")
    assert post(client, "r1", "2").status_code == 200
    assert len(values(path)) == 2


def test_numbers_label_single_answers(desk):
    client, path = desk(pairs=False)
    assert post(client, "r2", " 7.5 ").status_code == 200
    assert values(path) == {"r2": 7.5}
    assert client.get("/api/labels").json()["is_pairs"] is False
    for wrong in ("tie", "nan", "1" * 31):
        assert post(client, "r2", wrong).status_code == 400
    assert values(path) == {"r2": 7.5}
    assert post(client, "r2", "1" * 30).status_code == 200


@pytest.mark.parametrize("label", ["3", "a", "=1+1", "1\n2", "good"])
def test_a_label_that_is_none_is_refused(desk, label):
    client, path = desk()
    before = path.read_bytes()
    reply = post(client, "r1", label)
    assert reply.status_code == 400
    assert "the label of a pair is 1, 2 or tie" in reply.json()["error"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"[]", 400), (b'{"label": 1}', 400), (b'{"label": null}', 400),
        (b'{"label": "1", "path": "/etc/passwd"}', 400), (b"\xff", 400),
        (b'{"label": "' + b"1" * 2000 + b'"}', 413),
    ],
)  # fmt: skip
def test_a_body_of_another_form_is_refused(desk, body, status):
    client, path = desk()
    before = path.read_bytes()
    assert client.post("/api/labels/r1", content=body, headers=OURS).status_code == status
    assert path.read_bytes() == before


def test_an_unknown_row_is_refused(desk):
    client, _ = desk()
    assert post(client, "r9", "1").status_code == 400
    assert client.get("/api/labels/r9").status_code == 400
    assert post(client, "..%2f..%2fx", "1").status_code in {400, 404, 405}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_no_other_page_can_write(desk, headers):
    client, path = desk()
    before = path.read_bytes()
    assert post(client, "r1", "1", **headers).status_code == 403
    assert path.read_bytes() == before


def test_a_write_needs_an_origin_and_the_cookie(desk):
    client, path = desk()
    before = path.read_bytes()
    content = {"content-type": "application/json"}
    reply = client.post("/api/labels/r1", content=b'{"label": "1"}', headers=content)
    assert reply.status_code == 403
    client.cookies.clear()
    assert post(client, "r1", "1").status_code == 401
    assert path.read_bytes() == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_other_method_is_let_in(desk, method):
    client, _ = desk()
    assert client.request(method, "/api/labels/r1", headers=OURS).status_code == 405


@pytest.mark.parametrize("path", ["/api/labels", "/api/runs", "/", "/static/app.js", "/label"])
def test_nothing_else_can_be_written(desk, path):
    client, _ = desk()
    assert client.post(path, json={"label": "1"}, headers=OURS).status_code == 405


def test_without_a_sheet_the_viewer_stays_read_only(viewer, tmp_path):
    opened = viewer(tmp_path).enter()
    reply = opened.client.post("/api/labels/r1", json={"label": "1"}, headers=OURS)
    assert reply.status_code == 405
    assert "orchestrator view --labels FILE.csv" in opened.get("/api/labels").json()["error"]


def test_what_is_no_sheet_is_refused_at_the_start(tmp_path):
    with pytest.raises(UsageError, match="no such file; write it with: orchestrator labels"):
        Sheet(tmp_path / "nothing.csv")
    path = tmp_path / "labels.csv"
    path.write_text("item,model,label\ni1,m,1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no sheet that orchestrator labels wrote"):
        Sheet(path)
    path = write_sheet(tmp_path)
    (tmp_path / "labels.key.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"needs the key file labels\.key\.jsonl"):
        Sheet(path)
    path = write_sheet(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write("r1,again,x,y,\n")
    with pytest.raises(UsageError, match="several rows of a code; each person labels a copy"):
        Sheet(path)


def test_a_sheet_that_is_damaged_later_is_not_overwritten(desk):
    client, path = desk()
    path.write_text("something else", encoding="utf-8")
    assert post(client, "r1", "1").status_code == 400
    assert path.read_text(encoding="utf-8") == "something else"
