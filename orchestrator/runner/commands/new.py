"""`orchestrator new`: a plug-in to start from, with its test and a recipe."""

import argparse
import keyword
import sys
from pathlib import Path
from string import Template
from typing import Final

from orchestrator.disk.paths import expanded
from orchestrator.errors import EXIT_COMPLETE, UsageError
from orchestrator.report.text import confirm

_TEMPLATES: Final = Path(__file__).parents[2] / "templates"


def new(options: argparse.Namespace) -> int:
    """Write a plug-in, its test and a recipe into a folder.

    Raises:
        UsageError: If the name can't be that of a module, or one of the files is there.
    """
    name, folder = options.name, expanded(options.folder)
    if not (name.isascii() and name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise UsageError(
            f"invalid module name {name!r}; use lower-case letters, digits and underscores, "
            "such as my_method"
        )
    if name in sys.stdlib_module_names or name.startswith(("test_", "_")):
        raise UsageError(f"{name!r} names another module or a test; choose another name")
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    files = {
        folder / f"{name}.py": f"{options.family}.py.txt",
        folder / f"test_{name}.py": f"test_{options.family}.py.txt",
        folder / f"{name}.yaml": f"{options.family}.yaml.txt",
    }
    taken = [str(file) for file in files if file.exists() or file.is_symlink()]
    if taken:
        raise UsageError(f"{' and '.join(taken)} already exists; nothing was written")
    title = name.replace("_", " ").capitalize()
    class_name = "".join(part.capitalize() for part in name.split("_"))
    parts = {
        "name": name,
        "title": title,
        "class_name": class_name,
        # In the order that linters want.
        "imports": ", ".join(sorted((class_name, "Config"))),
    }
    for file, template in files.items():
        text = Template((_TEMPLATES / template).read_text(encoding="utf-8"))
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text.substitute(parts))
        confirm(f"wrote {file}")
    confirm(
        f"test it with `pytest test_{name}.py` and run it with "
        f"`orchestrator run {name}.yaml --allow-code`, both in {folder}"
    )
    return EXIT_COMPLETE
