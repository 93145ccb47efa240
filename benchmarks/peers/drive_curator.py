"""curator: an LLM over a list of prompts; its own cache folder, its viewer and progress off."""

import importlib.util
import json
import os
import sys
from pathlib import Path


def tiktoken_files() -> str:
    """Return litellm's copy of the encoding that tiktoken would fetch from the network."""
    found = importlib.util.find_spec("litellm")
    places = found.submodule_search_locations if found else None
    return str(Path(next(iter(places or ["."]))) / "litellm_core_utils" / "tokenizers")


def main() -> None:
    """Ask all prompts; the settings are the JSON of the first argument."""
    settings = json.loads(sys.argv[1])
    os.environ |= {
        "CURATOR_CACHE_DIR": settings["folder"],
        "CURATOR_DISABLE_RICH_DISPLAY": "1",
        "TELEMETRY_ENABLED": "false",
        "CURATOR_VIEWER": "0",
        "OPENAI_API_KEY": "none",
        "HF_HUB_OFFLINE": "1",
        "TIKTOKEN_CACHE_DIR": tiktoken_files(),
    }
    # It reads its settings when it is imported.
    from bespokelabs import curator  # type: ignore[import-not-found]  # noqa: PLC0415

    with Path(settings["prompts"]).open(encoding="utf-8") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    llm = curator.LLM(
        model_name="model",
        backend="openai",
        generation_params={
            "max_tokens": settings["max_tokens"],
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": settings["top"],
        },
        backend_params={
            "base_url": settings["url"],
            "max_concurrent_requests": settings["in_flight"],
            "max_requests_per_minute": 10_000_000,
            "max_tokens_per_minute": 100_000_000_000,
            # Else an answer that ended by its length is asked for ten times more.
            "invalid_finish_reasons": ["content_filter"],
        },
    )
    found = llm(prompts).dataset
    # The replies are in its cache file as they came; what a user gets are the texts.
    with_logprobs = len(found) if "logprobs" in found.column_names else 0
    print(json.dumps({"answered": len(found), "with_logprobs": with_logprobs}))


if __name__ == "__main__":
    main()
