"""lm-evaluation-harness: its command line over a task file of our own, samples logged.

Where one token is judged the task is a multiple choice between A and B, which it asks as two scores
of a prompt and its continuation (`/v1/completions` with `echo`): its only way to log-probabilities.
Its chat models drop them, so longer answers come without.
"""

import json
import subprocess
import sys
from pathlib import Path

_TASK = """\
task: bench
dataset_path: json
dataset_kwargs: {{data_files: {{test: {prompts}}}}}
test_split: test
doc_to_text: "{{{{prompt}}}}"
"""
_CHOICE = """\
output_type: multiple_choice
doc_to_choice: ["A", "B"]
doc_to_target: 0
metric_list: [{metric: acc}]
"""
_DRAWN = """\
output_type: generate_until
doc_to_target: "A"
generation_kwargs: {until: [], max_gen_toks: MAX, temperature: 0, logprobs: true, top_logprobs: TOP}
metric_list: [{metric: exact_match}]
"""


def main() -> None:
    """Ask all prompts; the settings are the JSON of the first argument."""
    settings = json.loads(sys.argv[1])
    folder = Path(settings["folder"])
    folder.mkdir(parents=True)
    choice = settings["max_tokens"] == 1
    kind = _CHOICE if choice else _DRAWN
    kind = kind.replace("MAX", str(settings["max_tokens"])).replace("TOP", str(settings["top"]))
    task = _TASK.format(prompts=settings["prompts"]) + kind
    (folder / "bench.yaml").write_text(task, encoding="utf-8")
    path = "/completions" if choice else "/chat/completions"
    model = {
        "model": "model",
        "base_url": settings["url"] + path,
        "num_concurrent": settings["in_flight"],
        "max_length": 32768,
        "tokenizer_backend": "huggingface" if choice else "None",
        "tokenizer": settings["tokenizer"],
        "tokenized_requests": False,
    }
    command = [
        str(Path(sys.executable).with_name("lm_eval")), "run",
        "--model", "local-completions" if choice else "local-chat-completions",
        "--model_args", ",".join(f"{key}={value}" for key, value in model.items()),
        "--tasks", "bench", "--include_path", str(folder), "--batch_size", "1",
        "--output_path", str(folder / "out"), "--log_samples",
        *([] if choice else ["--apply_chat_template"]),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    answered = with_logprobs = 0
    for file in (folder / "out").rglob("samples_*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            answered += len(sample["resps"])
            with_logprobs += len(sample["resps"]) if choice else 0
    print(json.dumps({"answered": answered, "with_logprobs": with_logprobs}))


if __name__ == "__main__":
    main()
