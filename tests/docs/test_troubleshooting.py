"""Messages that docs/troubleshooting.md quotes are those of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def quoted():
    yield from re.findall(r"^> (.+)$", PAGE, re.MULTILINE)
    (table,) = re.findall(r"^\| message \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    for row in table.splitlines()[2:]:
        if row:
            yield row.split("|")[1].strip()


def in_the_code():
    """All strings of the code, with implicit concatenation over lines undone."""
    files = [
        p for name in ("orchestrator", "launch", "backends") for p in (ROOT / name).rglob("*.py")
    ]
    files.append(ROOT / "launch" / "causes.txt")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_each_quoted_message_is_one_of_the_program():
    messages = list(quoted())
    assert len(messages) >= 15
    code = in_the_code()
    assert [message for message in messages if message not in code] == []
