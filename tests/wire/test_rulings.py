"""The one table of refusals: status x documented words x whose state."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backend import base_url_fault
from orchestrator.records import ACCOUNT, REQUEST, SERVER, UNCLEAR, Failure
from orchestrator.wire.drawn import Reading
from orchestrator.wire.failures import classify, in_reply
from orchestrator.wire.replies import generation
from orchestrator.wire.rulings import CAP, most_in

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
    "Cloudflare": "The estimated number of input and maximum output tokens (25) exceeded this "
    "model context window limit (24).",
    "Cerebras": "Current length is 9000 while limit is 8192: context_length_exceeded",
    "Vertex": "the input token count is 40000 but model only supports up to 32768",
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
    "Moonshot": (400, "The request was rejected because it was considered high risk"),
    "StepFun": (451, "The content you provided or machine outputted is blocked."),
    "DeepSeek, bare": (400, "Content Exists Risk"),
    "Vertex": (400, "The prompt was blocked: PROHIBITED_CONTENT"),
    "Cloudflare": (424, "Prompt blocked due to security configurations"),
    "xAI": (403, "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"),
    "gateway, words": (446, "prompt violates the acceptable use policy"),
    "MiniMax": (400, "input new_sensitive"),
    "Volcengine": (400, "InputTextRiskDetection: the request failed"),
}  # fmt: skip
SPENT = {
    "OpenAI": (429, "You exceeded your current quota, please check your plan and billing details."),
    "DeepSeek": (402, "Insufficient Balance"),
    "OpenRouter": (402, "This request requires more credits, or fewer max_tokens."),
    "OpenRouter, key": (403, "Key limit exceeded (total limit)"),
    "xAI": (403, "Your team has used all available credits or reached its monthly spending limit."),
    "Moonshot": (429, "Your account is out of balance, please recharge"),
    "xAI, exhausted": (
        429,
        "Some resource has been exhausted: Your team has used all available "
        "credits. Please purchase more.",
    ),
    "xAI, new": (403, "Your newly created teams doesn't have any credits yet."),
    "NVIDIA": (402, "Account 'x': Cloud credits expired"),
    "SiliconFlow": (403, "Sorry, your account balance is insufficient"),
    "Novita": (403, "not enough balance"),
    "DashScope": (403, "The free tier of the model has been exhausted."),
    "Zhipu": (429, "您的账户已欠费"),
    "Google, cap": (429, "Your project has exceeded its monthly spending cap."),
    "Vercel": (403, "AI Gateway requires a valid credit card on file to service requests."),
    "one-api": (403, "token quota is not enough, token remain quota: $0.1, need quota: $0.2"),
}
CLOSED = {
    "AWS API Gateway, an unknown route": (403, "Missing Authentication Token"),
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
    "OpenAI, reasoning": (400, "'messages[0].role' does not support 'system' with this model.",
                          "unsupported"),
    "DeepSeek": (400, "messages[0].role: unknown variant `developer`, expected one of `system`",
                 "unsupported"),
    "llama.cpp": (500, "Jinja Exception: System role not supported", "unsupported"),
    "vLLM, template": (400, "default chat template is no longer allowed", "unsupported"),
    "DashScope, stream": (400, "This model only support stream mode", "unsupported"),
    "OpenAI, output": (400, "This model supports at most 4096 completion tokens", "unsupported"),
    "cap, range": (400, "logprobs must be in 0..5", "unsupported"),
    "xAI, cap": (400, "`top_logprobs` must not exceed 8, but got 20", "unsupported"),
    "TGI, cap": (422, "`top_n_tokens` must be >= 0 and <= 5. Given: 20", "unsupported"),
    "OpenRouter, routing": (404, "No endpoints found that can handle the requested parameters.",
                            "no_logprobs"),
    "OpenRouter, policy": (404, "No endpoints available matching your guardrail restrictions and "
                           "data policy.", "not_found"),
    "TabbyAPI": (400, "No models are currently loaded.", "not_found"),
    "Together": (400, "Unable to access non-serverless model x.", "not_found"),
    "Bedrock": (400, "Invocation of model ID x with on-demand throughput isn\u2019t supported.",
                "not_found"),
    "router": (400, "The requested model 'x' is not supported by any provider", "not_found"),
    "Ollama": (500, "model requires more system memory (5.6 GiB) than is available",
               "server_error"),
    "OpenAI, a minute": (429, "Request too large for x on tokens per min (TPM): Limit 30, "
                         "Requested 41.", "too_long"),
    "no words": (400, "Something is odd", "bad_request"),
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
        "Invalid 'stop': array too long. Expected an array with maximum length 4.",
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
    assert "base_url" in failure.message


@pytest.mark.parametrize("who", SETTINGS)
def test_what_a_server_does_not_offer_is_asked_again_by_the_next_call(who):
    status, words, cause = SETTINGS[who]
    failure = said(words, status)
    # One that nothing explains is the request's where others are answered.
    assert (failure.cause, failure.scope) == (cause, UNCLEAR)
    assert failure.permanent == (cause == "bad_request")


# As gateways hand on what providers said.
WRAPPED = {
    "OpenRouter": lambda words: {"error": {"message": "Provider returned error", "metadata": {
        "raw": json.dumps({"error": {"message": words}}), "provider_name": "x"}}},
    "OpenRouter, text": lambda words: {"error": {"message": "Provider returned error",
                                                 "metadata": {"raw": words}}},
    "Databricks": lambda words: {"error_code": "BAD_REQUEST",
                                 "message": json.dumps({"message": words})},
    "Cloudflare": lambda words: {"success": False, "errors": [{"code": 1, "message": words}]},
    "Cloudflare, gateway": lambda words: {"error": [{"code": 1, "message": words}]},
    "NVIDIA": lambda words: {"status": 400, "title": "Bad Request", "detail": words},
    "Apigee": lambda words: {"fault": {"faultstring": words, "detail": {"errorcode": "x"}}},
    "AWS": lambda words: {"Message": words},
    "Zod": lambda words: {"error": {"name": "ZodError", "issues": [{"message": words,
                                                                  "path": ["x"]}]}},
    "LiteLLM": lambda words: {"error": {"message": f"litellm.BadRequestError: {words}"}},
}  # fmt: skip


@pytest.mark.parametrize("who", WRAPPED)
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("This model's maximum context length is 8192 tokens", "too_long"),
        ("Unsupported parameter: 'logprobs' is not supported with this model.", "no_logprobs"),
        ("Your prompt was flagged", "moderation"),
        ("Insufficient balance", "no_credit"),
    ],
)
def test_what_a_gateway_hands_on_is_told_and_shown_by_the_providers_words(who, words, cause):
    failure = classify(400, json.dumps(WRAPPED[who](words)).encode(), {})
    assert failure.cause == cause
    assert words in failure.message


def test_a_page_is_told_by_its_title_and_never_by_what_is_in_its_code():
    page = b'<html><head><meta content="x"><title>You are blocked</title><p>Insufficient balance'
    failure = classify(403, page, {})
    assert (failure.cause, failure.scope) == ("unauthorised", UNCLEAR)
    assert failure.message == "HTTP 403: a web page: You are blocked"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "ThrottlingException: Too many tokens, please wait before trying again."),
        (403, "Out of call volume quota. Quota will be replenished in 00:30:00."),
        (403, "Out of call volume quota for the F0 tier. Please retry after 15 days."),
        (403, "The endpoint is disabled due to a Databricks-set rate limit of 0."),
        (429, "Quota exceeded for generate_requests_per_minute_per_project"),
        (429, "Allocated quota exceeded, please increase your quota limit."),
        (429, "limited to 40 API calls / minute. You can upgrade to a Production key"),
        (498, "Flex tier capacity exceeded"),
    ],
)
def test_what_is_over_for_some_time_is_waited_for(status, words):
    assert said(words, status).cause == "rate_limited"


@pytest.mark.parametrize(
    "words", ["Channel Error", "The model has crashed", "Background loop has errored already."]
)
def test_a_servers_own_error_with_a_clients_status_is_tried_again(words):
    assert said(words).retriable


def test_a_prompt_about_money_that_an_error_repeats_ends_no_model():
    body = {"detail": [{"loc": ["body", "n"], "msg": "too odd", "input": "my credit balance"}]}
    failure = classify(422, json.dumps(body).encode(), {})
    assert (failure.cause, failure.scope) == ("bad_request", UNCLEAR)
    assert said("cannot read 'Your credit balance is too low'").scope == UNCLEAR


def test_a_redirect_names_its_target_and_is_the_servers():
    failure = classify(308, b"", {"location": "https://example.org/v1/chat/completions"})
    assert (failure.cause, failure.permanent, failure.scope) == ("redirected", False, SERVER)
    assert "https://example.org/v1/chat/completions" in failure.message


@pytest.mark.parametrize("route", ["chat/completions", "completions", "models"])
@pytest.mark.parametrize("address", ["https://example.org/v1", "http://h:8/a?api-version=1", ""])
def test_a_redirect_names_the_base_url_that_can_be_pasted(address, route):
    place, mark, query = address.partition("?")
    said = classify(301, b"", {"location": f"{place}/{route}{mark}{query}"}).message
    named = re.findall(r"; correct base_url to (\S+)", said)
    assert named == [address] * bool(address)
    assert not any(base_url_fault(one) for one in named)


@given(status=st.integers(201, 599), message=st.text(max_size=60))
def test_only_what_the_request_itself_says_is_kept_for_ever(status, message):
    failure = said(message, status)
    assert not failure.permanent or failure.scope == REQUEST or failure.cause == "bad_request"
    assert not failure.permanent or status in range(400, 600)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_queue_that_is_full_is_no_prompt_that_is_too_long(status):
    failure = said("server busy, please try again.  maximum pending requests exceeded", status)
    assert (failure.cause, failure.permanent) == ("server_error", False)
    assert said("the prompt is too long to process", 500).cause == "too_long"


def test_an_empty_account_is_one_although_a_gateway_says_when_to_ask_again():
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    failure = classify(429, json.dumps({"error": error}).encode(), {"retry-after": "20"})
    assert (failure.cause, failure.scope) == ("no_credit", ACCOUNT)


def test_a_reasoning_that_takes_all_tokens_is_no_answer():
    failure = said("Could not finish the message because max_tokens or model output limit was "
                   "reached. Please try again with higher max_tokens.")  # fmt: skip
    assert (failure.cause, failure.permanent, failure.scope) == ("no_answer", True, REQUEST)
    assert "within max_tokens" in failure.message


def test_what_azure_says_in_details_is_shown():
    details = [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]
    failure = said("invalid input error", 400, details=details)
    assert failure.cause == "unsupported"
    assert "body.seed: Extra inputs are not permitted" in failure.message


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("Invalid 'top_logprobs': 20. Expected an integer in range [0, 5]", 5),
        ("Range of top_logprobs should be [0, 5]", 5),
        ("a logprobs value of 20 but the supported range is 0 (inclusive) to 6 (exclusive)", 5),
        ("responseLogprobs 20 is out of the supported range 1 to 5", 5),
        ("`top_n_tokens` must be >= 0 and <= 5. Given: 20", 5),
        ("top_logprobs_num 20 must be in [0, 10]", 10),
        ("20 is greater than the maximum of 5 - 'top_logprobs'", 5),
        ("top_logprobs: invalid value: integer `20`, expected a value up to 11", 11),
    ],
)
def test_the_most_alternatives_are_read_from_every_providers_words(words, most):
    assert CAP.search(words)
    assert most_in(words) == most


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


@pytest.mark.parametrize("status", [201, 202, 204, 206, 299])
@pytest.mark.parametrize("body", [b"", b'{"id": "job-1", "status": "queued"}', b"rate limit"])
def test_a_success_without_an_answer_is_unclear_and_says_so(status, body):
    found = classify(status, body, {})
    assert (found.cause, found.scope, found.permanent) == ("unparseable", UNCLEAR, False)
    assert found.message.startswith(f"HTTP {status}")
    assert "without an answer" in found.message
