"""Refusals before anything is sent: exit code 2, in words, and nothing left behind."""

import ast
import re
import socket
from collections import defaultdict
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator import commands as of_commands
from orchestrator.cli import main
from orchestrator.errors import EXIT_USAGE
from orchestrator.interface.run import Call
from tests.cli.test_start_up import commands
from tests.report.samples import Stream

COMMANDS = tuple(commands())
MOVED = {
    "merge": "runs merge", "repair": "runs repair", "gc": "runs gc", "serve": "servers serve",
    "probe": "servers probe", "methods": "list methods", "analyses": "list analyses",
    "statistics": "list statistics", "backends": "list backends", "datasets": "list datasets",
    "plugins": "list plugins", "recipes": "list recipes", "recipes copy": "get recipe",
    "weights": "list weights", "weights get": "get weights", "completion": "--completion",
}  # fmt: skip


@pytest.mark.parametrize("name", [*COMMANDS, "runs", "servers", "get"])
def test_every_command_has_help(command, name):
    code, out, _ = command(*name.split(), "--help")
    assert code == 0
    assert out.startswith(f"usage: orchestrator {name} ")


@pytest.mark.parametrize(("old", "new"), MOVED.items())
@pytest.mark.parametrize("more", [(), ("x", "--some")])
def test_an_old_name_answers_with_the_new_one(command, old, new, more):
    said = f"orchestrator {old} is now: orchestrator {new}\n"
    assert command(*old.split(), *more) == (EXIT_USAGE, "", said)
    assert new.startswith("-") or command(*new.split(), "--help")[0] == 0


def test_items_are_those_of_one_run(command, here):
    for name in ("one", "two"):
        (here / name).mkdir()
    code, _, err = command("view", "one", "two", "--items", "sort=worth")
    assert (code, err) == (EXIT_USAGE, "--items shows those of one run; name it\n")


@pytest.mark.parametrize("name", ["runs", "servers"])
def test_without_an_action_they_list(command, name):
    for options in ((), ("--json",), ("-q",)):
        assert command(name, *options) == command(name, "list", *options)


def test_a_folder_in_place_of_an_action_is_listed(command, here):
    for name in ("of mine", "list", "lists"):
        (here / name).mkdir()
    for name in ("of mine", "./list", "lists"):
        assert command("runs", name) == command("runs", "list", name)
    assert command("runs", "no folder")[0] == EXIT_USAGE


def test_every_option_says_what_it_does(command):
    for name in COMMANDS:
        _, out, _ = command(*name.split(), "--help")
        options = out.partition("options:")[2].splitlines()
        for line, following in zip(options, [*options[1:], ""], strict=True):
            if line.startswith("  -"):
                said = "  " in line.strip() or following.startswith("      ")
                assert said, (name, line)


def test_every_option_is_read_by_its_command():
    """Each name stands in what the command calls among the modules of commands, or in `cli`."""
    called, read = defaultdict(set), defaultdict(set, Call=set(Call.__struct_fields__))
    for file in (*Path(of_commands.__file__).parent.glob("*.py"), Path(cli.__file__)):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            for one in ast.walk(node):
                if isinstance(one, ast.Name):
                    called[node.name].add(one.id)
                elif isinstance(one, ast.Attribute):
                    called[node.name].add(one.attr)
                    if "options" in ast.unparse(one.value):
                        read[node.name].add(one.attr)
                elif isinstance(one, ast.Constant) and isinstance(one.value, str):
                    read[node.name].add(one.value)
    for name in COMMANDS:
        parser = cli._parser()
        for word in name.split():
            (sub,) = (one for one in parser._actions if hasattr(one, "_choices_actions"))
            parser = vars(sub)["choices"][word]
        reached = {parser.get_default("handler").partition(":")[2], "main", "run_path"}
        while more := set().union(*(called[one] for one in reached)) - reached:
            reached |= more
        known = set().union(*(read[one] for one in reached))
        assert not {one.dest for one in parser._actions} - known - {"help"}, name


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_value_may_be_empty(command, name, empty):
    """As of a shell's variable that is not set: `--retry "$CAUSE"` would retry nothing."""
    for action in commands()[name]._actions:
        if action.nargs == 0:
            continue
        words = [f"{action.option_strings[-1]}={empty}"] if action.option_strings else [empty]
        code, out, err = command(*name.split(), *words)
        assert (code, out) == (EXIT_USAGE, "")
        assert re.search("the value is empty|invalid choice", err) or action.type, words


def test_every_command_stands_beside_what_it_does(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = command("--help")
    shown = out.partition("\nrecipes:\n")[2].partition("\nexit codes:")[0].splitlines()
    listed = [line for line in shown if line.startswith("  ")]
    assert {line.split()[0] for line in listed} == {name.split()[0] for name in COMMANDS}
    assert len(listed) <= 22
    assert all(len(line.split(maxsplit=1)) == 2 for line in listed), listed
    assert len({line.index(line.split(maxsplit=1)[1]) for line in listed}) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run", "run code and programs that the recipe names"),
        ("servers probe", "run code and programs that the recipe names"),
        ("check", "import code that the recipe names, without starting programs"),
        ("plan", "import code that the recipe names, without starting programs"),
        ("report", "import code that the recipe names"),
        ("view", "import code that the recipe names"),
        ("runs gc", "import code that the recipe names"),
    ],
)
def test_help_says_what_allow_code_permits(command, name, said):
    words = " ".join(command(*name.split(), "--help")[1].split())
    after = words.rpartition("--allow-code ")[2]
    assert after.startswith(said)
    assert ("program" in after[:80]) == ("program" in said)


def test_help_gives_the_exit_codes(command):
    assert "130 interrupted" in command("--help")[1]


@pytest.mark.parametrize(
    "arguments",
    [(), ("runn",), ("run",), ("run", "x", "--display", "fancy"), ("export", "x"),
     ("report", "x", "--format", "html")],
)  # fmt: skip
def test_wrong_arguments_exit_with_2(command, arguments):
    assert command(*arguments)[0] == 2


@pytest.mark.parametrize("name", ["run", "plan"])
@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "1e3", "", "٣"])
def test_a_limit_is_a_whole_number_from_1_up(command, recipe, here, name, limit):
    code, _, err = command(name, recipe(), f"--limit={limit}")
    assert code == 2
    assert "argument --limit: expected a whole number of at least 1" in err
    assert not (here / "runs").exists()


@pytest.mark.parametrize("name", ["compare", "gate"])
@pytest.mark.parametrize("level", ["0", "1", "95", "-0.5", "nan", "inf", "x", ""])
def test_a_confidence_level_is_between_0_and_1(command, name, level):
    code, _, err = command(name, "somewhere", f"--confidence={level}")
    assert code == 2
    assert "argument --confidence: expected a level between 0 and 1 such as 0.95" in err


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_is_a_port(command, port):
    code, _, err = command("servers", "serve", "--fake", "a", f"--port={port}")
    assert code == 2
    assert "expected a port from 0 (any free port) to 65535" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.yaml",), "nowhere.yaml: no such recipe"),
        (("pairwise_rankng",), "did you mean 'pairwise_ranking'?"),
        (("folder",), "folder: is a folder, not a recipe file"),
        (("empty.yaml",), "empty.yaml:1: the file is empty"),
        (("binary.yaml",), "binary.yaml:2: not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("name", ["check", "plan", "run"])
def test_what_is_no_recipe_is_refused(command, here, name, arguments, said):
    (here / "folder").mkdir()
    (here / "empty.yaml").touch()
    (here / "binary.yaml").write_bytes(bytes(range(256)))
    code, out, err = command(name, *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_check_names_all_faults_of_all_recipes_one_on_a_line(command, recipe, here):
    (here / "five.yaml").write_text(
        "name: 'bad name'\n"
        "modles: {}\n"
        "models:\n"
        "  a: {server: fak, weights: x}\n"
        "dataset: {kind: demo, n: many}\n"
        "methods:\n"
        "  - {kind: pairwise_ranking, judges: [c]}\n",
        encoding="utf-8",
    )
    code, out, err = command("check", "five.yaml", recipe())
    assert code == 2
    assert out == "made.yaml: no faults\n"
    assert [line.partition(": ")[0] for line in err.splitlines()] == [
        f"five.yaml:{line}" for line in (1, 2, 4, 5, 7)
    ]


def test_check_opens_the_dataset(command, recipe, lines):
    path = recipe(dataset=lines("twice.jsonl", *({"id": 1, "prompt": "x"} for _ in range(2))))
    code, _, err = command("check", path)
    assert code == 2
    assert err.startswith("twice.jsonl:2: the id '1' was already given at twice.jsonl:1")
    assert len(err.splitlines()) == 1


def test_check_does_not_ask_for_weights_of_another_machine(command, recipe):
    path = recipe(
        models={
            "a": {"server": "embedded", "weights": "no-one/nobody"},
            "b": {"server": "fake", "weights": "x"},
        },
        methods=[{"kind": "answers"}],
    )
    code, out, err = command("check", path)
    assert (code, out) == (0, "made.yaml: no faults\n")
    assert "not on this machine" in err


def test_a_misspelt_bundled_model_is_a_fault_on_every_machine(command, recipe):
    path = recipe(
        models={"a": {"server": "embedded", "weights": "bundled:novise"}},
        methods=[{"kind": "answers"}],
    )
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path)
        assert code == 2
        assert "no bundled model 'bundled:novise'; did you mean 'bundled:novice'?" in err


@pytest.mark.parametrize("name", ["check", "plan", "run"])
def test_a_prompt_with_reference_needs_a_dataset_with_references(
    command, recipe, lines, here, name
):
    path = recipe(
        dataset=lines("none.jsonl", {"prompt": "x"}, {"prompt": "y"}),
        methods=[{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}],
    )
    code, _, err = command(name, path)
    assert code == 2
    assert "its prompt shows the reference of each item, and no item has one" in err
    assert "fields: {reference: COLUMN}" in err
    assert not (here / "runs").exists()


def test_one_item_with_a_reference_is_enough_to_begin(command, recipe, lines):
    path = recipe(
        dataset=lines("half.jsonl", {"prompt": "x"}, {"prompt": "y", "reference": "z"}),
        methods=[{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": "compact"}],
    )
    assert command("plan", path)[0] == 0


def test_a_template_may_do_without_the_reference(command, recipe, lines):
    prompt = (
        "{{ prompt }} {% if reference is defined %}{{ reference }}{% endif %}"
        "{{ answer_a }} {{ answer_b }} [[>]] or [[<]]?"
    )
    path = recipe(
        dataset=lines("none.jsonl", {"prompt": "x"}),
        methods=[{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": prompt}],
    )
    assert command("plan", path)[0] == 0


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (
            "{{ question }} {{ answer_a }} {{ answer_b }}",
            "the template uses unknown fields question",
        ),
        ("{{ prompt }} {{ answer_a }}", "the template does not show answer_b"),
        ("{{ prompt", "prompt template: unexpected end of template"),
    ],
)
def test_a_template_that_can_not_work_is_a_fault_of_the_recipe(command, recipe, prompt, said):
    methods = [{"kind": "pairwise_ranking", "judges": ["judge"], "prompt": prompt}]
    code, _, err = command("check", recipe(methods=methods))
    assert code == 2
    assert f"made.yaml:1: methods.0.prompt: {said}" in err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("foo", "--set foo: expected name.of.setting=value"),
        ("=", "--set =: expected"),
        ("a.b=1", "unknown setting 'a'"),
        ("dataset.n=many", "must be a whole number, got 'many'"),
        ("dataset.nn=1", "did you mean 'n'?"),
        ("methods.7.judges=x", "methods is a list of 1"),
        ("dataset={", "that is not closed"),
        ("models.judge.weigths=x", "did you mean 'weights'?"),
        ("dataset.n=999999999999999999999999", "more than 64 bits"),
        ("seed=1e400", "must be a finite number"),
        ("limits.max_in_flight=-1", "greater than or equal to 1"),
    ],
)
def test_a_wrong_override_is_named(command, recipe, setting, said):
    code, _, err = command("plan", recipe(), "--set", setting)
    assert code == 2
    assert said in err
    assert ":0:" not in err


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([{"kind": "pairwise_ranking", "judges": ["judge", "judge"]}], "duplicate model"),
        (
            [{"kind": "pairwise_ranking", "judges": ["judge"], "candidates": ["weak"]}],
            "must have at least 2 entries",
        ),
        ([{"kind": "pairwise_ranking", "judges": ["nobody"]}], "unknown model 'nobody'"),
        ([{"kind": "pairwise_ranking", "judges": ["judge", "weak"]}], "at least 2 entries, got 1"),
    ],
)
def test_who_takes_part_is_checked(command, recipe, methods, said):
    code, _, err = command("check", recipe(methods=methods))
    assert code == 2
    assert said in err


def test_a_judge_may_be_a_candidate(command, recipe):
    methods = [{"kind": "pairwise_ranking", "judges": ["judge"], "candidates": ["weak", "judge"]}]
    assert command("check", recipe(methods=methods))[0] == 0


@pytest.mark.parametrize("bad", ["a\x1b[31m", "a\u202eb", "a\x9bb", "a\ufeffb", "a b", "a/b", ""])
def test_a_model_has_a_name_that_a_terminal_shows(command, recipe, bad):
    models = {bad: {"server": "fake", "weights": "x"}, "b": {"server": "fake", "weights": "y"}}
    code, _, err = command("check", recipe(models=models, methods=[{"kind": "answers"}]))
    assert code == 2
    assert not set(err) & {"\x1b", "\u202e", "\x9b", "\ufeff"}


def test_faults_show_no_escape_sequences(command, recipe):
    path = recipe(methods=[{"kind": "answers", "x\x1b[2J": 1}], dataset={"kind": "\x1b]0;x\x07"})
    for name in ("check", "plan"):
        code, _, err = command(name, path)
        assert code == 2
        assert "\x1b" not in err


@pytest.mark.parametrize("name", ["report", "status"])
def test_there_is_no_run(command, here, name):
    (here / "file").touch()
    (here / "folder").mkdir()
    for run in ("nowhere", "file", "folder"):
        code, _, err = command(name, run)
        assert code == 2
        assert "no run" in err


def test_runs_of_a_folder_that_is_not_there(command, here):
    assert command("runs")[:2] == (0, "no runs found\n")
    code, _, err = command("runs", "list", "nowhere")
    assert code == 2
    assert err == "nowhere: there is no such folder\n"


def test_serving_what_is_not_there_is_a_wrong_command(command, here):
    for model in ("nowhere", f"x={here}", "bundled:nobody"):
        assert command("servers", "serve", model)[0] == 2


@pytest.mark.parametrize("arguments", [("--fake", "a"), ("bundled:judge",)], ids=["fake", "real"])
def test_a_port_that_another_program_has_is_named(command, arguments):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = command("servers", "serve", *arguments, "--port", str(port))
    assert code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: " in err
    assert "use --port 0" in err


@pytest.mark.parametrize("family", ["methods", "statistics", "backends", "datasets", "recipes"])
def test_lists_have_one_line_each(command, family):
    code, out, _ = command("list", family)
    assert code == 0
    assert all("  " in line for line in out.splitlines())
    assert out == "\n".join(line.rstrip() for line in out.splitlines()) + "\n"


def test_recipes_that_come_with_the_project_have_no_faults(command):
    _, out, _ = command("list", "recipes")
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert "pairwise_ranking" in names
    for name in names:
        assert command("check", name)[0] == 0, name


@pytest.mark.parametrize("name", ["plan", "run"])
@pytest.mark.parametrize("taken", ["file", "file/x", "full"])
def test_a_run_directory_that_is_something_else_is_refused(command, recipe, here, name, taken):
    (here / "file").touch()
    (here / "full").mkdir()
    (here / "full" / "thesis.tex").touch()
    code, _, err = command(name, recipe(), "--run-dir", taken)
    assert code == 2
    assert "--run-dir" in err
    assert sorted(path.name for path in here.iterdir()) == ["file", "full", "made.yaml"]


def test_a_run_directory_that_can_not_be_made_is_refused(command, recipe):
    # sysfs takes no folders, also from the superuser.
    code, _, err = command("run", recipe(), "--run-dir", "/sys/orchestrator-run")
    assert code == 2
    assert err.startswith("/sys/orchestrator-run: ")
    assert err.endswith(": use another --run-dir\n")


@pytest.mark.parametrize("name", ["check", "plan", "run"])
def test_a_folder_that_is_no_run_can_t_be_reused(command, recipe, here, name):
    (here / "other").mkdir()
    path = recipe(reuse=["other"])
    code, _, err = command(name, path)
    assert code == 2
    assert "reuse.0: no run found at 'other'" in err
    (here / "other" / "store.sqlite").touch()
    code, _, err = command(name, path)
    assert code == 2
    assert f"{path}:" in err
    assert "reuse.0: 'other' cannot be reused" in err
    assert not (here / "runs").exists()


def test_faults_at_a_terminal_break_between_words(here, monkeypatch):
    """A pipe gets a line a fault, for editors; a person gets words."""
    (here / "bad.yaml").write_text("name: x\nmodels: {'a b c': {}}\n", encoding="utf-8")
    stream = Stream(tty=True)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["check", "bad.yaml"]) == EXIT_USAGE
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " must not contain spaces, " in " ".join(lines)
