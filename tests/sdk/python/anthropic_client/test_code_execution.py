"""Code execution on the Messages wire, seen by the official SDK: it must look as if the provider had run the code."""

import asyncio
import json

import anthropic
import pytest

from conftest import IS_OLD, make_client, messages_of
from conversations import KEY, ROOT_URL

TOOL = {"type": "code_execution_20250825", "name": "code_execution"}
# One model that speaks chat completions, one that speaks Messages; neither can run code.
MODELS = ["code-once", "messages--code-once"]


def question(model, **changes):
    return {
        "model": model,
        "max_tokens": 1024,
        "tools": [TOOL],
        "messages": [{"role": "user", "content": "Add up the numbers to 100."}],
        **changes,
    }


def check_turn(message):
    """The turn of scenario `code-once`, block by block."""
    assert [block.type for block in message.content] == [
        "text",
        "server_tool_use",
        "code_execution_tool_result",
        "text",
    ]
    before, use, result, after = message.content
    assert before.text == "Adding up. "
    assert use.id.startswith("otari_srvtoolu_")
    assert use.name == "code_execution"
    assert use.input == {"code": "print('sum', sum(range(101)))"}
    assert result.tool_use_id == use.id
    assert result.content.type == "code_execution_result"
    assert (result.content.stdout, result.content.stderr, result.content.return_code) == ("sum 5050\n", "", 0)
    assert result.content.content == []
    assert "sum 5050" in after.text
    assert message.stop_reason == "end_turn"
    assert message.container.id.startswith("otari_cntr_")
    assert message.usage.server_tool_use is not None


@pytest.mark.parametrize("model", MODELS)
def test_a_whole_answer_shows_code_and_true_output(client, model):
    message = messages_of(client).create(**question(model))
    check_turn(message)
    # Both rounds count.
    assert (message.usage.input_tokens, message.usage.output_tokens) == (110, 29)


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_accumulates_to_the_same_message(client, model):
    with messages_of(client).stream(**question(model)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    check_turn(message)
    assert text == message.content[0].text + message.content[3].text
    assert message.usage.output_tokens == 29


@pytest.mark.parametrize("model", MODELS)
def test_raw_events_come_in_order_and_the_code_arrives_in_fragments(client, model):
    events = list(messages_of(client).create(**question(model, stream=True)))
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds.count("message_start") == 1
    assert kinds[-2:] == ["message_delta", "message_stop"] and kinds.count("message_delta") == 1
    starts = [event for event in events if event.type == "content_block_start"]
    assert [event.index for event in starts] == [0, 1, 2, 3]
    fragments = [
        event.delta.partial_json
        for event in events
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
    ]
    assert len(fragments) > 2
    assert json.loads("".join(fragments)) == {"code": "print('sum', sum(range(101)))"}


@pytest.mark.skipif(IS_OLD, reason="the old SDK's types know too few blocks to be strict about")
# With a call that fails, an end by the token limit, and calls beside each other.
@pytest.mark.parametrize("model", [*MODELS, "claude--native", "bad-arguments", "length", "side-by-side"])
def test_strict_validation_accepts_every_answer(strict_client, model):
    strict_client.messages.create(**question(model))
    for _ in strict_client.messages.create(**question(model, stream=True)):
        pass
    with strict_client.messages.stream(**question(model)) as stream:
        stream.get_final_message()


def test_the_async_client_streams_too():
    async def run():
        async with anthropic.AsyncAnthropic(base_url=ROOT_URL, api_key=KEY, max_retries=0) as client:
            async with messages_of(client).stream(**question("code-once")) as stream:
                return await stream.get_final_message()

    check_turn(asyncio.run(run()))


def test_a_provider_that_runs_code_itself_is_left_alone(client):
    message = messages_of(client).create(**question("claude--native"))
    assert message.content[0].id == "srvtoolu_scripted"
    assert message.content[1].content.stdout == "native\n"


def test_the_header_brings_the_code_here(client):
    asked = question("claude--code-once", extra_headers={"X-Otari-Code-Execution": "otari"})
    check_turn(messages_of(client).create(**asked))


def test_errors_are_the_sdks_own(client):
    with pytest.raises(anthropic.BadRequestError) as refused:
        messages_of(client).create(**question("code-once", extra_headers={"X-Otari-Code-Execution": "maybe"}))
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert "auto" in refused.value.body["error"]["message"]
    assert refused.value.request_id
    with make_client(api_key="gw-nobodys-key") as stranger, pytest.raises(anthropic.AuthenticationError) as unknown:
        messages_of(stranger).create(**question("code-once"))
    assert unknown.value.body["error"]["type"] == "authentication_error"


def test_a_model_that_breaks_off_ends_the_stream_with_an_error(client):
    with pytest.raises(anthropic.APIStatusError), messages_of(client).stream(**question("cut")) as stream:
        stream.get_final_message()


# One workspace, three tools; the old SDK's types know all of these blocks too.
TOOL_MODELS = ["three-tools", "messages--three-tools"]


def check_three_tools(message):
    """The turn of scenario `three-tools`."""
    uses = [block for block in message.content if block.type == "server_tool_use"]
    editor = "text_editor_code_execution"
    assert [use.name for use in uses] == ["bash_code_execution", editor, editor, editor, editor, "code_execution"]
    results = {block.tool_use_id: block for block in message.content if block.type.endswith("_tool_result")}
    bash, view, replaced, created, failed, python = (results[use.id].content for use in uses)
    assert (bash.type, bash.stderr, bash.return_code) == ("bash_code_execution_result", "made\n", 3)
    assert view.type == "text_editor_code_execution_view_result"
    assert (view.content, view.file_type, view.start_line, view.num_lines, view.total_lines) == ("two\n", "text", 2, 1, 2)
    assert replaced.type == "text_editor_code_execution_str_replace_result"
    assert (replaced.old_start, replaced.new_lines, replaced.lines) == (2, 1, ["-two", '+2 "é"'])
    assert (created.type, created.is_file_update) == ("text_editor_code_execution_create_result", False)
    assert failed.type == "text_editor_code_execution_tool_result_error"
    assert failed.error_code == "file_not_found" and "gone.txt" in failed.error_message
    assert python.stdout == 'one\n2 "é"\na\\b\n\n'
    assert uses[1].input == {"command": "view", "path": "notes.txt", "view_range": [2, -1]}


@pytest.mark.parametrize("model", TOOL_MODELS)
def test_each_tool_shows_in_its_own_blocks(client, model):
    check_three_tools(messages_of(client).create(**question(model)))
    with messages_of(client).stream(**question(model)) as stream:
        check_three_tools(stream.get_final_message())


@pytest.mark.skipif(IS_OLD, reason="the old SDK's types know too few blocks to be strict about")
@pytest.mark.parametrize("model", TOOL_MODELS)
def test_strict_validation_accepts_the_blocks_of_each_tool(strict_client, model):
    check_three_tools(strict_client.messages.create(**question(model)))
    for _ in strict_client.messages.create(**question(model, stream=True)):
        pass
    with strict_client.messages.stream(**question(model)) as stream:
        check_three_tools(stream.get_final_message())


@pytest.mark.parametrize("model", TOOL_MODELS)
def test_the_blocks_of_each_tool_sent_back_are_understood(client, model):
    api = messages_of(client)
    first = api.create(**question(model))
    history = [
        *question(model)["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "And then?"},
    ]
    second = api.create(**question(model, messages=history))
    assert second.content[0].text == "I remember the notes."
