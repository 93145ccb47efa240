import pytest

from orchestrator.probing.replies import HttpReply, context_length, identify, model_names
from orchestrator.runner.models.probe import chat_request, plainer
from tests.probing.bodies import refusal, reply

NOT_THERE = HttpReply(404, b'{"detail":"Not Found"}')


def models(owner=None, **more):
    entry = {"id": "m", **({"owned_by": owner} if owner else {}), **more}
    return {"/v1/models": reply({"data": [entry]})}


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ({"/version": reply({"version": "0.32.0"}), **models("vllm")}, "vllm"),
        ({"/version": reply({"version": "0.32.0"})}, "vllm"),
        ({"/version": reply({"version": "1", "server": "orchestrator-embedded"})}, "embedded"),
        ({"/version": reply({"version": "fake-1"}), **models()}, "fake"),
        ({"/server_info": reply({"model_path": "x"}), **models("sglang")}, "sglang"),
        ({"/get_server_info": reply({"model_path": "x"})}, "sglang"),
        ({"/info": reply({"model_id": "x", "max_total_tokens": 9})}, "tgi"),
        ({"/props": reply({"default_generation_settings": {"n_ctx": 9}})}, "llamacpp"),
        ({"/api/version": reply({"version": "0.12"})}, "ollama"),
        ({**models("openai"), "/version": NOT_THERE}, "openai"),
        ({}, "openai"),
    ],
)
def test_a_server_is_known_by_its_routes(replies, kind):
    assert identify(replies) == kind


def test_models_and_their_context_are_read_where_they_are_said():
    said = models("vllm", max_model_len=4096)
    assert model_names(said["/v1/models"]) == ("m",)
    assert context_length(said, "m") == 4096
    assert context_length(models(), "m") is None
    props = {"/props": reply({"default_generation_settings": {"n_ctx": 512}})}
    assert context_length(props, "m") == 512


def test_what_an_endpoint_refuses_is_left_out_step_by_step():
    body = chat_request("m")
    refused = refusal("Unsupported parameter: use max_completion_tokens")
    official = plainer(body, refused)
    assert official is not None
    assert "return_token_ids" not in official
    renamed = plainer(official, refused)
    assert renamed is not None
    assert renamed["max_completion_tokens"] == 1
    assert plainer(renamed, refused) is None
    assert plainer(body, reply({})) is None


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("Unsupported parameter: 'seed' is not supported with this model.", {"seed"}),
        ("logprobs is not supported by this model", {"logprobs", "top_logprobs"}),
        ("Unsupported value: 'temperature' does not support 0.0 with this model.", None),
        ("Invalid value for 'top_logprobs': must be less than or equal to 5.", None),
    ],
)
def test_only_what_is_refused_and_says_nothing_of_numbers_is_left_out(words, fields):
    official = plainer(chat_request("m"), refusal(""))
    assert official is not None
    found = plainer(official, refusal(words))
    assert fields == (None if found is None else official.keys() - found.keys())


def test_the_words_of_a_reply_are_never_what_a_model_said():
    assert "secret thought" not in reply({"choices": [{"text": "secret thought"}]}).words
    assert refusal("too long").words == "too long"
