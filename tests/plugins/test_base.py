"""A class of a plug-in keeps the model of its settings, which stands in its brackets."""

import types
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import contracts
from orchestrator.plugins.base import ConfigT, Plugin, Settings


class Family(Plugin[ConfigT]):
    """A family of plug-ins."""


class Threads(Settings):
    """Settings of a plug-in."""

    threads: int = 1


class MoreThreads(Threads):
    """Settings of one that is derived from it."""

    most: int = 8


ThreadsT = TypeVar("ThreadsT", bound=Threads)
OtherT = TypeVar("OtherT")


class Kind(Family[Threads]):
    """A plug-in with settings."""

    def doubled(self) -> int:
        return 2 * self.config.threads


class Shared(Family[ThreadsT]):
    """Settings that several plug-ins share."""


def test_the_brackets_hold_the_settings():
    assert Kind.Config is Threads
    assert Kind(Threads(threads=3)).doubled() == 6


def test_without_brackets_there_are_no_settings():
    class Bare(Family):
        pass

    assert Bare.Config is Settings
    assert Bare(Settings()).config == Settings()


def test_a_class_derived_from_a_plugin_has_its_settings():
    class Derived(Kind):
        pass

    assert Derived.Config is Threads


def test_a_shared_base_is_given_the_settings_later():
    class Last(Shared[MoreThreads]):
        pass

    class Lastly(Last):
        pass

    assert Shared.Config is Threads
    assert Last.Config is Lastly.Config is MoreThreads


def test_brackets_of_a_base_without_settings_are_others():
    class Pair(Kind, Generic[OtherT]):
        pass

    class Numbers(Pair[int]):
        pass

    assert Numbers.Config is Threads


def test_the_settings_are_found_among_several_brackets():
    class Two(Family[ThreadsT], Generic[OtherT, ThreadsT]):
        pass

    class Both(Two[int, MoreThreads]):
        pass

    assert Both.Config is MoreThreads


def test_a_mixin_changes_no_settings():
    class Mixin(Generic[OtherT]):
        pass

    class Mixed(Mixin[int], Family[Threads]):
        pass

    assert Mixed.Config is Threads


class Foreign(BaseModel):
    """A model that takes what it does not know."""


@pytest.mark.parametrize(
    ("given", "said"), [(int, "int"), (Foreign, "Foreign"), ("Threads", "ForwardRef")]
)
def test_what_is_no_settings_model_is_refused_when_the_class_is_made(given, said):
    with pytest.raises(TypeError, match=rf"Wrong: its brackets contain {said}.*plugin\.Settings"):
        types.new_class("Wrong", (Family[given],))  # type: ignore[valid-type]


def test_settings_refuse_what_they_do_not_know_and_stay_as_they_are():
    with pytest.raises(ValidationError):
        Kind.Config.model_validate({"no_such_setting": 1})
    with pytest.raises(ValidationError):
        Threads().threads = 2  # type: ignore[misc]


def test_a_class_is_told_by_its_file_or_where_there_is_none_by_its_module():
    assert Path(contracts.place_of(Plugin)).name == "base.py"
    made = types.new_class("Made", (), {}, lambda names: names.update(__module__="nowhere"))
    assert contracts.place_of(made) == "nowhere"
