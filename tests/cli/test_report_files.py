import pytest


@pytest.fixture
def run(command, recipe):
    code, _, said = command("run", recipe(), "--limit", "2", "--display", "none", "--html")
    assert code == 0, said
    return "made"


def test_a_run_writes_its_report_beside_itself_where_asked(run, here):
    text = (here / "runs" / run / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "strong" in text


def test_a_report_goes_where_it_is_wanted_and_says_so(run, command, here):
    code, out, said = command("report", run, "--html", "there/it.html")
    assert (code, out) == (0, "")
    assert "there/it.html" in said
    assert (here / "there" / "it.html").is_file()


def test_charts_are_files_of_their_own(run, command, here):
    code, _, _ = command("report", run, "--charts", "charts")
    assert code == 0
    found = {path.suffix for path in (here / "charts").iterdir()}
    assert found == {".svg", ".png"}
    assert (here / "charts" / "ratings-pairwise-ranking-judge.png").read_bytes()[1:4] == b"PNG"


def test_a_report_that_can_not_be_written_is_refused(run, command, here):
    (here / "taken").write_text("", encoding="utf-8")
    code, _, said = command("report", run, "--html", "taken/it.html")
    assert code == 2
    assert "taken/it.html can't be written" in said
