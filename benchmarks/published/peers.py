"""The 79 answers of nine models that LLM-self-eval rated, as a dataset with a column for each.

    git -C LLM-self-eval checkout b98c354~1
    python benchmarks/published/peers.py LLM-self-eval/responses peers.jsonl
    orchestrator run benchmarks/published/peer_elo.yaml --set dataset.path=$PWD/peers.jsonl

The folder is that of a clone of oceanypt/LLM-self-eval, which emptied its files in b98c354 (no
licence on 2026-11-27). It has a file for each model with an answer a line, and no questions: the
number of the line stands in the place of one. Any folder of such files will do.
"""

import argparse
import json
from pathlib import Path

PRINTED = {
    "ChatGPT": (1181.7, 3284),
    "Claude-instant": (1088.1, 2720),
    "PaLM-v2": (1061.2, 2559),
    "Vicuna-13B": (1053.6, 2514),
    "ChatGLM-6B": (1023.3, 2313),
    "Oasst-Pythia-12B": (1000.1, 2181),
    "RWKV-14b": (983.0, 2060),
    "mpt-7b-chat": (933.4, 1750),
    "Dolly-V2-12B": (678.4, 520),
}
"""Elo and wins of its README, from 19,908 votes."""


def joined(folder: Path) -> list[dict[str, str]]:
    """The n-th lines of all files, whose names are those of the columns.

    Raises:
        ValueError: If there are none, or one has more lines than another.
    """
    files = sorted(file for file in folder.glob("[!.]*") if file.is_file())
    texts = {file.name: file.read_text("utf-8").removesuffix("\n").split("\n") for file in files}
    n_lines = {name: 0 if lines == [""] else len(lines) for name, lines in texts.items()}
    if not any(n_lines.values()):
        raise ValueError(f"{folder} has no answers; check out b98c354~1, the last with them")
    if len(set(n_lines.values())) > 1:
        raise ValueError(f"{folder}: files of different lengths: {n_lines}")
    rows = zip(*texts.values(), strict=True)
    return [{"key": str(n)} | dict(zip(texts, row, strict=True)) for n, row in enumerate(rows, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="responses/ of a clone")
    parser.add_argument("to", type=Path, help="JSON Lines to write")
    given = parser.parse_args()
    try:
        rows = joined(given.folder)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    given.to.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} answers of {len(rows[0]) - 1} models in {given.to}")


if __name__ == "__main__":
    main()
