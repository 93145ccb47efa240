"""inspect_ai: a task of one `generate` over a JSON dataset, logs kept as it keeps them."""

import json
import sys

import inspect_ai
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.solver import generate


def main() -> None:
    """Ask all prompts; the settings are the JSON of the first argument."""
    settings = json.loads(sys.argv[1])
    dataset = json_dataset(settings["prompts"], FieldSpec(input="prompt", id="id"))
    model = get_model(
        "openai-api/bench/model",
        base_url=settings["url"],
        api_key="none",
        config=GenerateConfig(
            max_connections=settings["in_flight"],
            max_tokens=settings["max_tokens"],
            temperature=0,
            logprobs=True,
            top_logprobs=settings["top"],
        ),
    )
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=dataset, solver=generate()),
        model=model,
        max_samples=settings["in_flight"],
        log_dir=settings["folder"],
        display="none",
    )
    choices = [sample.output.choices[0] for sample in log.samples or [] if sample.output.choices]
    with_logprobs = sum(bool(choice.logprobs and choice.logprobs.content) for choice in choices)
    print(json.dumps({"answered": len(choices), "with_logprobs": with_logprobs}))


if __name__ == "__main__":
    main()
