"""The README.md of a folder that `datasets.load_dataset` of Hugging Face reads.

Each Parquet file under `data/` is a configuration of its own, because frames differ in columns.
https://huggingface.co/docs/hub/datasets-manual-configuration
"""

from collections.abc import Mapping, Sequence

import yaml

from orchestrator.report.markdown import escaped

FOLDER = "data"


def card(name: str, rows: Mapping[str, int], *, about: Sequence[str] = (), bibtex: str = "") -> str:
    """Return the card as Markdown with a YAML head.

    Args:
        name: Of the run.
        rows: Rows of each Parquet file by its name without a suffix, the default one first.
        about: Sentences on the run; may come from outside.
        bibtex: Entries to cite.
    """
    configs = [
        {
            "config_name": one,
            "data_files": [{"split": "train", "path": f"{FOLDER}/{one}.parquet"}],
            **({"default": True} if place == 0 else {}),
        }
        for place, one in enumerate(rows)
    ]
    head = yaml.safe_dump(
        {"pretty_name": name, "configs": configs}, sort_keys=False, allow_unicode=True
    )
    lines = [
        "---", head.rstrip(), "---", "",
        f"# {escaped(name)}", "",
        "Results of an evaluation of language models with selfeval-orchestrator. Texts of models "
        "are untrusted.", "",
        *(f"{escaped(line)}\n" for line in about),
        "| configuration | rows |", "| :--- | ---: |",
        *(f"| {escaped(one)} | {n:,} |" for one, n in rows.items()), "",
        "Hugging Face calls the one split of each `train`; nothing was trained on it.", "",
    ]  # fmt: skip
    if bibtex:
        lines += ["```bibtex", bibtex.rstrip().replace("```", "'''"), "```", ""]
    return "\n".join(lines)
