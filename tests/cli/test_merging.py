"""`orchestrator runs merge`: what it says of runs, and which runs it refuses."""

import shutil

import msgspec

import orchestrator
from orchestrator.errors import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from orchestrator.store import RunDirectory

ROWS = [
    {"key": f"q{at}", "prompt": f"What is {at} + 1?", "reference": str(at + 1)} for at in range(6)
]


def shards(command, recipe, lines):
    """Runs `a` and `b` of three items each, and the recipe of all."""
    for name, rows in (("a", ROWS[:3]), ("b", ROWS[3:])):
        assert run(command, recipe(name="made", dataset=lines(f"{name}.jsonl", *rows)), name) == 0
    return recipe(name="made", dataset=lines("all.jsonl", *ROWS))


def run(command, path, folder, *more):
    return command("run", path, "--run-dir", folder, "--display", "none", *more)[0]


def spent(run):
    """Requests, tokens and money, without the time, which differs."""
    found = orchestrator.load(run).spent
    assert found is not None
    return msgspec.structs.replace(found, hours=0.0)


def test_shards_of_a_recipe_become_its_run(command, recipe, lines, here):
    whole = shards(command, recipe, lines)
    code, out, _ = command("runs", "merge", "a", "b", "--into", "all")
    assert code == EXIT_COMPLETE
    assert "b: 12 outcomes copied" in out
    assert "orchestrator run RECIPE --run-dir all" in out
    assert run(command, whole, "all") == EXIT_COMPLETE
    assert run(command, whole, "alone") == EXIT_COMPLETE
    assert spent("all") == spent("alone")
    for frame in (here / "alone" / "results").glob("*.parquet"):
        assert (here / "all" / "results" / frame.name).read_bytes() == frame.read_bytes()


def test_parts_of_one_plan_are_complete_at_once(command, recipe, lines, here):
    path = recipe(name="made", dataset=lines("all.jsonl", *ROWS))
    assert run(command, path, "alone") == EXIT_COMPLETE
    shutil.copytree("alone", "copy")
    code, out, _ = command("runs", "merge", "alone", "copy", "--into", "all")
    assert code == EXIT_COMPLETE
    assert "copy: 0 outcomes copied, 24 held already" in out
    merged, alone = orchestrator.load("all"), orchestrator.load("alone")
    assert merged.to_markdown() == alone.to_markdown()
    assert spent("all") == spent("alone")
    assert command("status", "all")[0] == EXIT_COMPLETE
    for frame in (here / "alone" / "results").glob("*.parquet"):
        assert (here / "all" / "results" / frame.name).read_bytes() == frame.read_bytes()
    # The same command again changes nothing.
    before = {frame: merged.frames[frame] for frame in merged.frames}
    assert command("runs", "merge", "alone", "copy", "--into", "all")[0] == EXIT_COMPLETE
    again = orchestrator.load("all")
    assert spent("all") == spent("alone")
    assert all(again.frames[name].equals(frame) for name, frame in before.items())


def test_what_was_left_of_a_merge_that_was_cut_off_is_replaced(command, recipe, lines, here):
    shards(command, recipe, lines)
    with RunDirectory.lock(here / "all"):
        (here / "all" / ".merging").mkdir()
        (here / "all" / ".merging" / "store.sqlite").write_bytes(b"part")
    assert command("runs", "merge", "a", "b", "--into", "all")[0] == EXIT_COMPLETE
    assert not (here / "all" / ".merging").exists()


def test_runs_of_other_recipes_are_refused_with_what_differs(command, recipe, lines):
    data = lines("all.jsonl", *ROWS)
    assert run(command, recipe(name="made", dataset=data), "a") == EXIT_COMPLETE
    assert run(command, recipe(name="made", dataset=data, seed=7), "b") == EXIT_COMPLETE
    code, _, said = command("runs", "merge", "a", "b", "--into", "all")
    assert code == EXIT_USAGE
    assert "b differs from a: seed (0 and 7)" in " ".join(said.split())


def test_a_run_that_is_in_use_is_refused(command, recipe, lines, here):
    shards(command, recipe, lines)
    with RunDirectory.lock(here / "b"):
        code, _, said = command("runs", "merge", "a", "b", "--into", "all")
    assert code == EXIT_USAGE
    assert "b is in use by process" in " ".join(said.split())


def test_names_that_make_no_sense_are_refused(command, recipe, lines):
    shards(command, recipe, lines)
    assert "named twice" in command("runs", "merge", "a", "a", "--into", "all")[2]
    assert "merged into itself" in command("runs", "merge", "a", "--into", "a")[2]
    assert "no run found at nothing" in command("runs", "merge", "nothing", "--into", "all")[2]


def test_a_damaged_run_is_refused_and_nothing_is_made(command, recipe, lines, here):
    shards(command, recipe, lines)
    store = here / "b" / "store.sqlite"
    store.write_bytes(store.read_bytes()[:20_000])
    code, _, said = command("runs", "merge", "a", "b", "--into", "all")
    assert code == EXIT_FAILED
    assert "b/store.sqlite" in said
    assert "orchestrator runs repair" in said
    assert not (here / "all" / "store.sqlite").exists()
