"""Code execution on the Chat Completions wire, seen by the official SDK: one model's answer, and nothing to explain."""

import asyncio

import openai
import pytest

from conftest import accumulated, make_client
from conversations import KEY, V1_URL

# One model that speaks chat completions, one that speaks Messages; neither can run code.
PREFIXES = ["", "messages--"]
TOLD = "Adding up.\n\nThe program said: stdout:\nsum 5050\nreturn code: 0"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def question(model, **changes):
    return {
        "model": model,
        "tools": [{"type": "code_interpreter"}],
        "messages": [{"role": "user", "content": "Add up the numbers to 100."}],
        **changes,
    }


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_whole_answer_is_one_message(client, prefix):
    answer = client.chat.completions.create(**question(f"{prefix}code-retold"))
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TOLD, "stop")
    assert choice.message.tool_calls is None
    # Both rounds count.
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (110, 29, 139)
    assert answer.model == f"{prefix}code-retold"
    assert answer._request_id


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_stream_accumulates_to_the_same_answer(client, prefix):
    options = {"include_usage": True}
    answer = accumulated(client, **question(f"{prefix}code-retold", stream_options=options))
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TOLD, "stop")
    assert not choice.message.tool_calls
    assert answer.usage.total_tokens == 139


def test_every_chunk_of_a_stream_without_usage_has_a_choice(client):
    chunks = list(client.chat.completions.create(**question("code-retold", stream=True)))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TOLD
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("model", ["code-retold", "code-fails", "thinking", "mixed"])
def test_strict_validation_accepts_every_answer(strict_client, prefix, model):
    tools = [{"type": "code_interpreter"}, *([WEATHER] if model == "mixed" else [])]
    request = question(prefix + model, tools=tools, extra_body={"otari_include": ["code_execution"]})
    strict_client.chat.completions.create(**request)
    accumulated(strict_client, **request, stream_options={"include_usage": True})


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_answer_sent_back_as_history_is_understood(client, prefix):
    asked = question(f"{prefix}code-retold")
    first = client.chat.completions.create(**asked).choices[0].message
    for echo in [first, first.model_dump(), first.model_dump(exclude_none=True)]:
        history = [*asked["messages"], echo, {"role": "user", "content": "What was it again?"}]
        second = client.chat.completions.create(**{**asked, "messages": history})
        assert second.choices[0].message.content == "I remember 5050."


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_account_shows_a_failing_program(client, prefix):
    asked = question(f"{prefix}code-fails", extra_body={"otari_include": ["code_execution"]})
    answer = client.chat.completions.create(**asked)
    assert answer.choices[0].message.content == "It divided by zero."
    chunks = list(client.chat.completions.create(**asked, stream=True))
    for (run,) in [answer.otari_code_execution, chunks[-1].otari_code_execution]:
        assert run["code"] == "print('before')\nprint(1 / 0)"
        assert run["stdout"] == "before\n"
        assert "ZeroDivisionError" in run["stderr"]
        assert run["return_code"] != 0
    assert [chunk for chunk in chunks if "otari_code_execution" in chunk.model_extra] == chunks[-1:]


def test_the_async_client_streams_too():
    async def run():
        async with openai.AsyncOpenAI(base_url=V1_URL, api_key=KEY, max_retries=0) as client:
            stream = await client.chat.completions.create(**question("code-retold", stream=True))
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(run()) == TOLD


def test_errors_are_the_sdks_own(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**question("code-retold", n=2))
    assert (refused.value.param, refused.value.type) == ("n", "invalid_request_error")
    assert refused.value.request_id
    with make_client(api_key="gw-nobodys-key") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(**question("code-retold"))


@pytest.mark.parametrize("model", ["cut", "messages--cut"])
def test_a_model_that_breaks_off_ends_the_stream_with_an_error(client, model):
    with pytest.raises(openai.APIError):
        accumulated(client, **question(model))
