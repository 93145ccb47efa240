"""Broken plug-ins are faults with their places in every command, never a traceback."""

import json

import pytest

from orchestrator.errors import EXIT_COMPLETE, EXIT_USAGE

METHOD = """
from orchestrator.methods.answers import Kind as Answers
class Mine(Answers):
    frame = "answers"
    """
ANALYSIS = """
from orchestrator.contracts.method import Analysis
class Mine(Analysis):
    # An analysis of a user.
    """
SILENT = f"{ANALYSIS}def summarise(self, context): return []\n"
DATASET = """
from orchestrator.datasets.demo import Kind
class Mine(Kind):
    # A dataset of a user.
    """
BARE_DATASET = """
from orchestrator.dataset import DatasetKind
class Mine(DatasetKind):
    pass
"""
BACKEND = """
from backends.fake import Kind
class Mine(Kind):
    pass
"""
BARE_BACKEND = """
from orchestrator.backend import BackendKind
class Mine(BackendKind):
    pass
"""
SERVER = """
from launch.fake import Launch
class Mine(Launch):
    backend = 'fake'
"""
BARE_SERVER = """
from orchestrator.serving import LaunchKind
class Mine(LaunchKind):
    def identity(self, weights): return {}
    async def start(self, models, log_path): pass
"""


@pytest.fixture
def plugin(here, monkeypatch):
    """Write a plug-in of a user; gives its kind."""
    monkeypatch.syspath_prepend(here)
    written: list[str] = []

    def write(text):
        # The folder's name is in that of the module: modules stay imported.
        name = f"{here.name}_{len(written)}"
        (here / f"p_{name}").mkdir()
        (here / f"p_{name}" / "mine.py").write_text(text)
        written.append(name)
        return f"p_{name}.mine"

    return write


BARE = "from orchestrator.contracts.method import Method\nclass Mine(Method):"
METHOD_FAULTS = [
    (f"pass\n{BARE} columns = {{}}", "Mine lacks evaluate"),
    (f"pass\n{BARE}\n async def evaluate(self, unit, ask): pass", "it has no 'columns'"),
    ("pass\ndel Mine", "no class derived from orchestrator.plugin.Method"),
    ("pass\nclass Other(Answers): pass", "several classes derived from orchestrator.plugin.Method"),
    ("version = '1'", "its 'version' must be an integer"),
    ("stages = 3", "its 'stages' must be a function"),
    ("columns = {'x': 'float'}", "its 'columns' gives 'x' the type 'float'"),
    ("unit_columns = {'item': 'string'}", "its 'unit_columns' gives 'item' the type 'string'"),
    ("columns = ['item']", "its 'columns' must be a mapping"),
    ("columns = {'item': 'str'}", "'unit_columns' and 'columns' both have item"),
    ("columns = {'status': 'str'}", "declares status, which every method has"),
    ("columns = {'method': 'str'}", "declares method, which the run adds"),
    ("columns = {'cluster': 'i64'}", "declares cluster, which the run adds"),
    ("frame = 'items'", "its 'frame' must be a name other than 'items'"),
    ("frame = '../x'", "its 'frame' must be a name"),
    ("frame = None", "its 'frame' must be a name"),
    ("Config = dict", "its 'Config' must be derived from MethodSettings"),
    ("def evaluate(self, unit, ask): return []", "must be a coroutine function"),
    ("async def evaluate(self, unit): return []", "must take (self, unit, ask), not (self, unit)"),
    ("def identify(self): return {}", "its 'identify' must take (self, unit)"),
    ("scores = {'x': 2}", "its 'scores' must map columns to 1"),
    ("def judges(self): return ()", "its 'judges' must be a property"),
    ("summary = int", "its 'summary' must be a class derived from Summary"),
    ("1 / 0", "mine.py:5: ZeroDivisionError"),
    ("raise SystemExit(5)", "SystemExit"),
    ("import nothing_like_it", "No module named 'nothing_like_it'"),
    ("def broken(:", "mine.py:5: SyntaxError"),
    ("frame = 'judgments'", "with different columns"),
    (
        "frame = 'judgments'\n"
        "    from orchestrator.methods.pairwise_ranking import Kind as _R\n"
        "    unit_columns, columns, answers = _R.unit_columns, _R.columns, None",
        "'judgments' with different roles of columns (pairs)",
    ),
    ("def companions(self): return None", "companions() returned NoneType, not a list"),
    ("def companions(self): raise KeyError('x')", "mine.py:5: "),
    ("def combinations(self, candidates): return [1]", "combinations() returned a list with int"),
    ("def combinations(self, candidates): return 1 / 0", "mine.py:5: "),
    ("def needs(self): return 1 / 0", "mine.py:5: "),
]


@pytest.mark.parametrize(("fault", "words"), METHOD_FAULTS, ids=[f for f, _ in METHOD_FAULTS])
def test_a_broken_method_is_a_fault_of_the_recipe(command, recipe, plugin, fault, words):
    judged = {"kind": "pairwise_ranking", "judges": ["judge"], "answer": {"max_tokens": 4}}
    kind = plugin(f"{METHOD}{fault}\n")
    path = recipe(methods=[judged, {"kind": kind, "answer": {"max_tokens": 4}}])
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path, "--allow-code")
        assert code == EXIT_USAGE, (name, err)
        assert words in " ".join(err.split()), name
        assert "mine.py" in err or "p_" in err
        assert "Traceback" not in err
        assert "--allow-code" not in err


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("def stages(self, candidates): return None", "stages() returned NoneType"),
        ("def stages(self, candidates): return 1 / 0", "mine.py:5: "),
    ],
)
def test_a_broken_count_is_a_fault_of_the_plan(command, recipe, plugin, fault, words):
    path = recipe(methods=[{"kind": plugin(f"{METHOD}{fault}\n")}])
    code, _, err = command("plan", path, "--allow-code")
    assert code != EXIT_COMPLETE
    assert words in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("kind", "said"),
    [("./mine.py", "no such file"), ("nowhere_at_all.mine", "is its folder on PYTHONPATH?")],
)
def test_code_that_is_not_found_says_where_it_is_looked_for(command, recipe, kind, said):
    code, _, err = command("check", recipe(methods=[{"kind": kind}]), "--allow-code")
    assert code == EXIT_USAGE
    assert said in err
    assert "TypeError" not in err


OTHERS = [
    ("analyses", ANALYSIS, "pass", "Mine lacks summarise"),
    ("analyses", ANALYSIS, "def summarise(self): return []", "must take (self, context)"),
    ("dataset", BARE_DATASET, "", "mine.py: Mine lacks open"),
    ("dataset", BARE_DATASET, "del Mine", "no class derived from orchestrator.plugin.DatasetKind"),
    ("dataset", DATASET, "def open(self, base): return []", "returned list, not a Dataset"),
    ("dataset", DATASET, "def open(self, base): return 1 / 0", "mine.py:5: "),
    ("dataset", DATASET, "def open(self): return 1", "its 'open' must take (self, base)"),
    ("dataset", DATASET, "suffixes = 'txt'", "its 'suffixes' must be a tuple"),
    ("dataset", DATASET, "about = 'CC0'", "its 'about' must be About(...), or None"),
    ("backend", BARE_BACKEND, "", "mine.py: Mine lacks connect"),
    ("backend", BACKEND, "del Mine", "has no class derived from orchestrator.plugin.BackendKind"),
    ("backend", BACKEND, "    capabilities = {}", "its 'capabilities' must be a Capabilities"),
    ("backend", BACKEND, "    def capabilities(self): 0", "its 'capabilities' must be"),
    ("backend", BACKEND, "    def connect(self): 0", "its 'connect' must take (self, endpoint)"),
    ("backend", BARE_BACKEND.replace("Kind)", "Kind[dict])"), "", "brackets contain dict"),
    ("server", BARE_SERVER, "", "mine:Mine is not a server: it has no 'backend'"),
    (
        "server",
        BARE_SERVER,
        "    backend = 'fake'\n    start = 3",
        "its 'start' must be a function",
    ),
    ("server", SERVER, "del Mine", "has no class derived from orchestrator.plugin.LaunchKind"),
    ("server", SERVER, "class Other(Launch): pass", "several classes derived from"),
    ("server", SERVER, "    backend = None", "its 'backend' must be a str"),
    ("server", SERVER, "    multi_model = 'no'", "its 'multi_model' must be a bool"),
    (
        "server",
        SERVER,
        "    def start(self, models, log_path): pass",
        "must be a coroutine function",
    ),
    ("server", SERVER, "    def placed(self): pass", "must take (self, gpus, memory_fraction)"),
    ("server", SERVER, "    def identity(self, weights): return 1 / 0", "mine.py:5: "),
]


def recipe_with(recipe, family, kind):
    if family == "analyses":
        return recipe(analyses=[{"kind": kind}])
    if family == "dataset":
        return recipe(dataset={"kind": kind, "n": 6})
    models = {
        "backend": {"base_url": "http://127.0.0.1:9/v1", "backend": kind},
        "server": {"server": kind, "weights": "a:0.2"},
    }
    return recipe(models={"a": models[family]}, methods=[{"kind": "answers"}])


@pytest.mark.parametrize(("family", "text", "fault", "words"), OTHERS)
def test_other_broken_plug_ins_are_faults_too(command, recipe, plugin, family, text, fault, words):
    path = recipe_with(recipe, family, plugin(f"{text}{fault}\n"))
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path, "--allow-code")
        assert code == EXIT_USAGE, (name, err)
        assert words in " ".join(err.split()), name
        assert "Traceback" not in err


def test_good_plug_ins_of_every_family_run_and_are_reported(command, recipe, plugin, here):
    server = {"server": plugin(f"{SERVER}    backend = {plugin(BACKEND)!r}\n")}
    summary = """
from orchestrator.contracts.method import Summary
from orchestrator.tables import Table
class Told(Summary):
    def summarise(self, context):
        return [Table('own', 'A table of mine', (), (), notes=('mine says hello',))]
"""
    path = recipe(
        models={name: {**server, "weights": f"{name}:0.5"} for name in ("a", "b")},
        dataset={"kind": plugin(f"{DATASET}pass\n"), "n": 4},
        methods=[
            {"kind": plugin(f"{summary}{METHOD}summary = Told\n"), "answer": {"max_tokens": 4}}
        ],
        analyses=[{"kind": plugin(SILENT)}],
    )
    code, out, err = command(
        "run", path, "--allow-code", "--display", "none", "--html", "page.html"
    )
    assert code == EXIT_COMPLETE, err
    assert "mine says hello" in out
    assert "mine says hello" in (here / "page.html").read_text()
    assert "mine says hello" in command("report", "made", "--allow-code")[1]
    code, _, err = command("report", "made", "--allow-code", "--html", "again.html")
    assert code == EXIT_COMPLETE
    assert "mine says hello" in (here / "again.html").read_text()
    assert "mine says hello" not in command("report", "made")[1]


def test_code_that_is_not_allowed_is_refused_and_every_command_that_says_so_allows_it(
    command, recipe, plugin
):
    path = recipe(methods=[{"kind": plugin(f"{METHOD}pass\n"), "answer": {"max_tokens": 4}}])
    for name in ("check", "plan", "run"):
        code, _, err = command(name, path)
        assert code == EXIT_USAGE
        assert "--allow-code" in err
    assert command("run", path, "--allow-code", "--display", "none")[0] == EXIT_COMPLETE
    gone_through = ("report", "export", "status", "runs gc", "runs list", "runs repair", "view")
    for name in (*gone_through, "servers probe"):
        arguments = {"export": ("--to", "x")}.get(name, ())
        said = "" if name == "view" else command(*name.split(), "made", *arguments)[2]
        if "--allow-code" in said or name in {"report", "runs gc", "view", "servers probe"}:
            assert "--allow-code" in command(*name.split(), "--help")[1], name


def test_a_summary_that_raises_is_a_note_and_hides_no_other_table(command, recipe, plugin):
    summary = """
from orchestrator.contracts.method import Summary
class Told(Summary):
    def summarise(self, context): return 1 / 0
"""
    kind = plugin(f"{summary}{METHOD}summary = Told\n")
    path = recipe(
        methods=[
            {"kind": kind, "answer": {"max_tokens": 4}},
            {"kind": "answers", "name": "ours", "answer": {"max_tokens": 5}},
        ]
    )
    code, out, err = command("run", path, "--allow-code", "--display", "none")
    assert code == EXIT_COMPLETE, err
    assert "ZeroDivisionError" in " ".join(out.split())
    found = json.loads(command("report", "made", "--allow-code", "--format", "json")[1])
    assert found
