"""The one table of refusals: status x documented words x whose state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import ACCOUNT, REQUEST, SERVER, UNCLEAR, Failure
from orchestrator.wire.failures import classify, in_reply
from orchestrator.wire.replies import Reading, generation

KEY = ("unauthorised", UNCLEAR)
CREDIT = ("no_credit", UNCLEAR)


def said(message, status=400, **more):
    return classify(status, json.dumps({"error": {"message": message, **more}}).encode(), {})


TOO_LONG = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted "
    "in 9000 tokens.",
    "OpenAI, responses": "Your input exceeds the context window of this model.",
    "OpenAI, limit": "Input tokens exceed the configured limit of 272000 tokens.",
    "vLLM": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "vLLM, characters": "You passed 90000 input characters, which is too long for this model.",
    "SGLang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "SGLang, sum": "Requested token count exceeds the model's maximum context length of 4096.",
    "SGLang, length": "Input length (50 tokens) exceeds the maximum allowed length (40 tokens).",
    "TGI": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "TGI, sum": "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1900 `inputs` tokens",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama-cpp-python": "Requested tokens (5000) exceed context window of 2048",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Anthropic, sum": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context",
    "Together": "Input validation error: the input has 9000 tokens and is too long",
    "Groq": "Please reduce the length of the messages or completion.",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (10).",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Bedrock": "Input is too long for requested model.",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 8192",
    "DashScope": "Range of input length should be [1, 30720]",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "GitHub": "prompt token count of 70000 exceeds the limit of 64000",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context "
    "length",
    "TensorRT-LLM": "Prompt length (5000) exceeds maximum input length (4096)",
    "LiteLLM": "litellm.ContextWindowExceededError: too much",
    "Ollama": "the input length exceeds the context length",
    "Fireworks": "The prompt is too long: 9000, model maximum context length: 8192",
    "lmdeploy": "the input_ids is larger than session_len 2048",
    "Zhipu": "Prompt exceeds max length",
}
FLAGGED = {
    "OpenRouter": (403, "The model requires moderation and your input was flagged for violence. No "
                   "credits were charged."),
    "OpenAI": (400, "Invalid prompt: your prompt was flagged as potentially violating our usage "
               "policy."),
    "Azure": (400, "The response was filtered due to the prompt triggering Azure OpenAI's content "
              "management policy."),
    "DashScope": (400, "Input data may contain inappropriate content."),
    "DeepSeek": (400, "Content Exists Risk: content risk"),
    "gateway": (403, "Request blocked by the guardrail 'pii'"),
    "gateway, words": (446, "prompt violates the acceptable use policy"),
}  # fmt: skip
SPENT = {
    "OpenAI": (429, "You exceeded your current quota, please check your plan and billing details."),
    "DeepSeek": (402, "Insufficient Balance"),
    "OpenRouter": (402, "This request requires more credits, or fewer max_tokens."),
    "OpenRouter, key": (403, "Key limit exceeded (total limit)"),
    "xAI": (403, "Your team has used all available credits or reached its monthly spending limit."),
    "Moonshot": (429, "Your account is out of balance, please recharge"),
}
CLOSED = {
    "OpenAI": (401, "Incorrect API key provided: sk-x."),
    "OpenAI, country": (403, "Country, region, or territory not supported"),
    "Azure": (401, "Access denied due to invalid subscription key or wrong API endpoint."),
    "Fireworks": (412, "Account is suspended, possibly due to a failed payment"),
    "Groq": (401, "Invalid API Key"),
    "none": (401, ""),
    "proxy": (407, "Proxy Authentication Required"),
}
SETTINGS = {
    "OpenAI, logprobs": (403, "You are not allowed to request logprobs from this model.",
                         "no_logprobs"),
    "Groq, logprobs": (400, "`logprobs` is not supported with this model", "no_logprobs"),
    "pydantic, logprobs": (422, "body.logprobs: Extra inputs are not permitted", "no_logprobs"),
    "cap": (400, "Invalid value for 'top_logprobs': must be less than or equal to 5.",
            "unsupported"),
    "vLLM, cap": (400, "Requested sample logprobs of 50, which is greater than max allowed: 20",
                  "unsupported"),
    "Gemma": (400, "System role not supported", "unsupported"),
    "Gemma, Google": (400, "Developer instruction is not enabled for models/gemma-3-27b-it",
                      "unsupported"),
    "template": (400, "Conversation roles must alternate user/assistant/user/assistant/...",
                 "unsupported"),
    "Anthropic": (400, 'messages: Unexpected role "system".', "unsupported"),
    "Mistral, seed": (422, "body.seed: Extra inputs are not permitted", "unsupported"),
    "Groq, seed": (400, "property 'seed' is unsupported", "unsupported"),
    "Google, seed": (400, 'Unknown name "seed": Cannot find field.', "unsupported"),
    "no model": (404, "The model `x` does not exist or you do not have access to it.", "not_found"),
    "OpenRouter, no model": (400, "x is not a valid model ID: model x is not a valid", "not_found"),
    "no route": (404, "Not Found", "not_found"),
    "method": (405, "Method Not Allowed", "unsupported"),
    "feature": (501, "not implemented", "unsupported"),
    "right": (403, "forbidden", "unauthorised"),
}  # fmt: skip


@pytest.mark.parametrize("who", TOO_LONG)
def test_a_prompt_that_is_too_long_is_told_by_every_providers_words(who):
    failure = said(TOO_LONG[who])
    assert (failure.cause, failure.permanent, failure.scope) == ("too_long", True, REQUEST)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 5000 > 4096, which is the maximum allowed number of output tokens",
        "temperature must be at most 2",
        "body.max_tokens: Input should be greater than or equal to 1",
        "Invalid value: 'developer'",
        "there is a fault in the messages",
    ],
)
def test_other_faults_of_a_request_are_not_taken_for_its_length(message):
    failure = said(message)
    assert (failure.cause, failure.permanent) == ("bad_request", True)


@pytest.mark.parametrize("who", FLAGGED)
def test_what_a_provider_does_not_like_belongs_to_its_item(who):
    status, words = FLAGGED[who]
    failure = said(words, status)
    assert (failure.cause, failure.permanent, failure.scope) == ("moderation", True, REQUEST)


@pytest.mark.parametrize("who", SPENT)
def test_money_is_the_accounts_and_the_same_command_goes_on(who):
    status, words = SPENT[who]
    failure = said(words, status)
    assert (failure.permanent, failure.retriable, failure.scope) == (False, False, ACCOUNT)
    assert "run the same command" in failure.message


@pytest.mark.parametrize("who", CLOSED)
def test_a_key_or_an_account_that_is_refused_is_no_fault_of_a_request(who):
    status, words = CLOSED[who]
    failure = said(words, status)
    assert (failure.cause, failure.permanent, failure.scope) == ("unauthorised", False, ACCOUNT)


@pytest.mark.parametrize("who", SETTINGS)
def test_what_a_server_does_not_offer_is_asked_again_by_the_next_call(who):
    status, words, cause = SETTINGS[who]
    failure = said(words, status)
    assert (failure.cause, failure.permanent, failure.scope) == (cause, False, UNCLEAR)


def test_a_prompt_about_money_that_an_error_repeats_ends_no_model():
    body = {"detail": [{"loc": ["body", "n"], "msg": "too odd", "input": "my credit balance"}]}
    failure = classify(422, json.dumps(body).encode(), {})
    assert (failure.cause, failure.scope) == ("bad_request", UNCLEAR)
    assert said("cannot read 'Your credit balance is too low'").scope == UNCLEAR


def test_a_redirect_names_its_target_and_is_the_servers():
    failure = classify(308, b"", {"location": "https://example.org/v1/chat/completions"})
    assert (failure.cause, failure.permanent, failure.scope) == ("redirected", False, SERVER)
    assert "https://example.org/v1/chat/completions" in failure.message


@given(status=st.integers(201, 599), message=st.text(max_size=60))
def test_only_what_the_request_itself_says_is_kept_for_ever(status, message):
    failure = said(message, status)
    assert not failure.permanent or failure.scope == REQUEST or failure.cause == "bad_request"
    assert not failure.permanent or status in range(400, 600)


def test_a_limit_of_a_minute_that_is_called_a_quota_is_waited_for():
    words = "You exceeded your current quota, please check your plan and billing details."
    google = [{"error": {"code": 429, "message": words, "details": [{"retryDelay": "35s"}]}}]
    failure = classify(429, json.dumps(google).encode(), {})
    assert (failure.cause, failure.retriable) == ("rate_limited", True)
    assert failure.retry_after_s == 35.0


@pytest.mark.parametrize(
    ("code", "cause", "permanent"),
    [(403, "moderation", True), ("429", "rate_limited", False), ("oops", "server_error", False)],
)
def test_an_error_inside_of_a_reply_is_told_by_its_code(code, cause, permanent):
    words = "flagged by the provider: violence" if code == 403 else "slow"
    failure = in_reply({"error": {"code": code, "message": words}})
    assert (failure.cause, failure.permanent, failure.status) == (cause, permanent, 200)


@pytest.mark.parametrize(
    ("error", "cause", "scope"),
    [
        ({"message": "Incorrect API key provided", "code": "invalid_api_key"}, *KEY),
        ({"message": "You exceeded your current quota", "type": "insufficient_quota"}, *CREDIT),
        ({"message": "Rate limit reached", "code": "rate_limit_exceeded"}, "rate_limited", REQUEST),
        ({"message": "blocked", "code": "content_filter"}, "moderation", REQUEST),
        ({"message": "The model m does not exist", "code": "oops"}, "not_found", UNCLEAR),
        ({"message": "no reason", "code": 1301}, "server_error", REQUEST),
        ("Incorrect API key provided", *KEY),
    ],
)
def test_an_error_inside_of_a_reply_that_states_no_status_is_told_by_its_words(error, cause, scope):
    failure = in_reply({"error": error})
    assert (failure.cause, failure.scope, failure.status) == (cause, scope, 200)


@pytest.mark.parametrize(
    "body",
    [
        {"code": 402, "message": "pay"},
        {"detail": "Insufficient balance"},
        {"errors": [{"message": "Insufficient balance"}], "success": False},
        {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
    ],
    ids=str,
)
def test_a_reply_without_an_answer_is_told_by_what_it_says_instead(body):
    failure = generation(json.dumps(body).encode(), Reading())
    assert isinstance(failure, Failure)
    assert failure.cause == "no_credit"


def test_a_limit_of_requests_is_no_lack_of_money():
    words = "Resource has been exhausted (e.g. check quota)."
    assert said(words, 429).cause == "rate_limited"


@pytest.mark.parametrize("name", ["code", "status", "status_code", "http_status"])
@pytest.mark.parametrize("is_inside", [True, False])
def test_a_status_is_read_under_each_of_its_names(name, is_inside):
    own = {name: 402, "message": "pay"}
    failure = in_reply({"error": own} if is_inside else {"error": True, **own})
    assert (failure.cause, failure.scope) == ("no_credit", ACCOUNT)


@pytest.mark.parametrize("status", [403, 429])
def test_a_quota_for_some_time_passes_by_itself(status):
    failure = said("Quota exceeded for requests per minute and project.", status)
    assert (failure.cause, failure.scope, failure.permanent) == ("rate_limited", REQUEST, False)
