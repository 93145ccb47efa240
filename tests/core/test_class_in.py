"""A module of a plug-in holds one class of its family, found by its base."""

from abc import ABC, abstractmethod
from types import ModuleType

import pytest

from orchestrator import plugins
from orchestrator.errors import PluginError


class Base(ABC):
    """The base of a family."""

    @abstractmethod
    def answer(self) -> int:
        """Give a number."""


HEAD = "from tests.core.test_class_in import Base\n"
ONE = HEAD + "class Mine(Base):\n    def answer(self): return 1\n"
ANOTHER = "class Other(Base):\n    def answer(self): return 2\n"


def module(source: str, name: str = "mine") -> ModuleType:
    made = ModuleType(name)
    made.__file__ = f"/folder/{name}.py"
    exec(compile(source, f"{name}.py", "exec"), vars(made))  # noqa: S102 (text of this test)
    return made


def test_the_class_is_found_by_its_base():
    assert plugins.class_in(module(ONE), Base).__name__ == "Mine"


def test_an_imported_class_is_not_the_modules_own():
    source = "from tests.core.test_class_in import Imported\n" + ONE
    assert plugins.class_in(module(source), Base).__name__ == "Mine"


class Imported(Base):
    """A plug-in that another module may import."""

    def answer(self) -> int:
        return 3


@pytest.mark.parametrize(
    "shared", ["class _Shared(Base): pass\n", ANOTHER.replace("Other", "_Other")]
)
def test_a_class_that_begins_with_an_underscore_is_a_helper(shared):
    assert plugins.class_in(module(ONE + shared), Base).__name__ == "Mine"


def test_another_name_for_the_class_is_no_second_one():
    assert plugins.class_in(module(ONE + "Alias = Mine\n"), Base).__name__ == "Mine"


def test_a_named_class_is_taken_among_several():
    assert plugins.class_in(module(ONE + ANOTHER), Base, "Other").__name__ == "Other"


def test_a_named_class_may_be_imported():
    source = HEAD + "from tests.core.test_class_in import Imported\n"
    assert plugins.class_in(module(source), Base, "Imported") is Imported


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        (HEAD, "", r"^/folder/mine\.py has no class derived from orchestrator\.plugin\.Base"),
        ("def evaluate(): pass", "", "has no class derived from"),
        (ONE + ANOTHER, "", r"several classes .*\(Mine, Other\); choose one with 'module:Class'"),
        (ONE, "Yours", r"^/folder/mine\.py has no class Yours derived from"),
        (ONE + "number = 1", "number", "has no class number"),
        (HEAD + "class Half(Base): pass", "", r"^/folder/mine\.py: Half lacks answer$"),
    ],
)
def test_what_is_wrong_names_the_file_and_what_to_do(source, name, said):
    with pytest.raises(PluginError, match=said):
        plugins.class_in(module(source), Base, name)
