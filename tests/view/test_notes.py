"""Notes on items and answers: a file beside the rows, which the run never sees."""

import json
import multiprocessing

import polars as pl
import pytest

from orchestrator.cli import main
from orchestrator.errors import UsageError
from orchestrator.interface import exporting
from orchestrator.interface.loading import load
from orchestrator.runner.results.notes import FILE, add_note, read_notes
from tests.view.conftest import HERE, Viewer
from tests.view.runs import made

OURS = {"origin": HERE, "content-type": "application/json"}


def note(item="i0", model="", thumb=0, tag="", text="", at="2026-11-27T00:00:00+00:00"):
    return {"item": item, "model": model, "thumb": thumb, "tag": tag, "text": text, "at": at}


def test_the_last_note_of_an_item_and_model_holds_and_an_empty_one_takes_it_away(tmp_path):
    for one in (note(thumb=1), note(model="one", tag="wrong"), note(thumb=-1, text="why?\n=1+1")):
        add_note(tmp_path, one)
    assert read_notes(tmp_path).rows() == [
        ("i0", "one", 0, "wrong", "", note()["at"]),
        ("i0", "", -1, "", "why?\n=1+1", note()["at"]),
    ]
    add_note(tmp_path, note(model="one"))
    assert read_notes(tmp_path)["model"].to_list() == [""]


@pytest.mark.parametrize("left", [b'{"item": "i1", "mod', b"\xff\x00", b'{"thumb": 7}\n', b"\n\n"])
def test_what_a_killed_process_left_of_a_line_costs_no_other_note(tmp_path, left):
    add_note(tmp_path, note("i0", thumb=1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(left)
    add_note(tmp_path, note("i2", thumb=-1))
    assert read_notes(tmp_path)["item"].to_list() == ["i0", "i2"]


@pytest.mark.parametrize("wrong", [{"thumb": 2}, {"tag": "x" * 61}, {"text": "x" * 4001}])
def test_a_note_has_bounds(tmp_path, wrong):
    with pytest.raises(UsageError, match="at most"):
        add_note(tmp_path, note(**wrong))
    assert not (tmp_path / FILE).exists()


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="cannot be written"):
        add_note(tmp_path, note(thumb=1))
    assert not (tmp_path / "elsewhere").exists()


def _add(folder, k):
    for n in range(20):
        add_note(folder, note(f"i{k}-{n}", text="x" * 300))


def test_several_viewers_write_at_once(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    all_of_them = [spawn.Process(target=_add, args=(tmp_path, k)) for k in range(3)]
    for one in all_of_them:
        one.start()
    for one in all_of_them:
        one.join()
        assert one.exitcode == 0
    assert len(read_notes(tmp_path)) == 60


def test_a_note_is_written_shown_found_and_exported_and_the_run_stays_as_it_is(tmp_path, capsys):
    run = made(tmp_path / "runs" / "a", 5)
    before = {one: one.read_bytes() for one in run.rglob("*") if one.is_file()}
    viewer = Viewer([tmp_path / "runs"], tmp_path / "side").enter()

    def post(index, **said):
        path = f"/api/runs/a/items/{index}/notes"
        return viewer.client.post(path, content=json.dumps(said), headers=OURS)

    reply = post(1, model="two", thumb=-1, tag="<b>wrong</b>", text="\u202ehidden")
    assert reply.status_code == 200, reply.text
    (shown,) = reply.json()["notes"]
    assert (shown["item"], shown["model"], shown["thumb"]) == ("i1", "two", -1)
    assert "\u202e" not in shown["text"]
    assert post(3, model="", thumb=1, tag="", text="").status_code == 200

    found = viewer.json("/api/runs/a/items?show=noted")
    assert [row["item"] for row in found["rows"]] == ["i1", "i3"]
    assert found["tags"] == ["<b>wrong</b>"]
    tagged = viewer.client.get(
        "/api/runs/a/items", params={"show": "noted", "than": "<b>wrong</b>"}
    )
    assert [row["item"] for row in tagged.json()["rows"]] == ["i1"]
    assert viewer.json("/api/runs/a/items/1")["notes"] == [shown]

    frames = exporting.readers(load(run), {}, ())
    assert pl.concat(frames["notes"]())["item"].to_list() == ["i1", "i3"]
    assert main(["export", str(run), "--list"]) == 0
    assert "notes" in capsys.readouterr().out.partition("frames")[2]
    assert {one: one.read_bytes() for one in before} == before
    with pytest.raises(UsageError):
        exporting.readers(load(run), {}, ("note",))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[]", 400), (b"{", 400), (b'{"model": "", "thumb": "up", "tag": "", "text": ""}', 400),
        (b'{"thumb": 1}', 400), (b'"' + b"x" * 30_000 + b'"', 413),
    ],
)  # fmt: skip
def test_what_is_no_note_is_refused(tmp_path, body, status):
    run = made(tmp_path / "runs" / "a", 2)
    viewer = Viewer([tmp_path / "runs"], tmp_path / "side").enter()
    reply = viewer.client.post("/api/runs/a/items/0/notes", content=body, headers=OURS)
    assert reply.status_code == status
    assert not (run / FILE).exists()


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://evil.example"}, {"content-type": "text/plain"},
     {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_notes_of_other_pages_are_refused(tmp_path, headers):
    run = made(tmp_path / "runs" / "a", 2)
    viewer = Viewer([tmp_path / "runs"], tmp_path / "side").enter()
    sent = {**OURS, **headers} if headers else {}
    body = json.dumps({"model": "", "thumb": 1, "tag": "", "text": ""})
    path = "/api/runs/a/items/0/notes"
    assert viewer.client.post(path, content=body, headers=sent).status_code == 403
    assert viewer.client.post("/api/runs/a/items/0", content=body, headers=OURS).status_code == 405
    assert not (run / FILE).exists()
