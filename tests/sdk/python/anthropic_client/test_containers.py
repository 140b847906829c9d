"""Going on with a container, as the official SDK asks for it."""

import uuid

import anthropic
import pytest

from conftest import messages_of

TOOL = {"type": "code_execution_20250825", "name": "code_execution"}


def program(code, **changes):
    """The model plays the text of the prompt as code."""
    return {
        "model": "code-marked",
        "max_tokens": 1024,
        "tools": [TOOL],
        "messages": [{"role": "user", "content": code}],
        **changes,
    }


def stdout(message):
    (result,) = [block for block in message.content if block.type == "code_execution_tool_result"]
    return result.content.stdout


def test_the_container_of_an_answer_leads_back_to_its_variables_and_files(client):
    word = uuid.uuid4().hex
    first = messages_of(client).create(**program(f"x = '{word}'\nopen('kept.txt', 'w').write(x)"))
    look = "print(x, open('kept.txt').read())"
    for container in [first.container.id, {"id": first.container.id}]:
        second = messages_of(client).create(**program(look, container=container))
        assert stdout(second) == f"{word} {word}\n"
        assert second.container.id == first.container.id
        assert second.container.expires_at >= first.container.expires_at


def test_a_stream_tells_of_its_container_and_goes_on_with_it(client):
    with messages_of(client).stream(**program("x = 41")) as stream:
        first = stream.get_final_message()
    with messages_of(client).stream(**program("print(x + 1)", container=first.container.id)) as stream:
        second = stream.get_final_message()
    assert stdout(second) == "42\n"
    assert second.container.id == first.container.id


def test_a_container_that_is_not_there_is_the_callers_mistake(client):
    with pytest.raises(anthropic.BadRequestError) as caught:
        messages_of(client).create(**program("print(1)", container="otari_cntr_" + "0" * 32))
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "leave `container` out" in caught.value.body["error"]["message"]
