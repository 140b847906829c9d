"""Containers as the official SDK knows them: gone on with, told of, deleted."""

import uuid

import openai
import pytest


def program(code, container, **changes):
    """The model plays the text of the prompt as code."""
    tool = {"type": "code_interpreter", "container": container}
    outputs = ["code_interpreter_call.outputs"]
    return {"model": "code-marked", "tools": [tool], "input": code, "include": outputs, **changes}


def call_of(response):
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    return call


def test_an_id_and_the_last_answer_lead_back_to_the_container(client):
    word = uuid.uuid4().hex
    first = client.responses.create(**program(f"x = '{word}'", {"type": "auto"}))
    container = call_of(first).container_id
    look = "print(x)"
    named = client.responses.create(**program(look, container))
    previous = client.responses.create(**program(look, {"type": "auto"}, previous_response_id=first.id))
    with client.responses.stream(**program(look, container)) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    for response in [named, previous, streamed]:
        call = call_of(response)
        assert (call.container_id, call.outputs[0].logs) == (container, f"{word}\n")


def test_a_container_is_told_of_until_it_is_deleted(client):
    container = call_of(client.responses.create(**program("x = 1", {"type": "auto"}))).container_id
    told = client.containers.retrieve(container)
    assert (told.id, told.object, told.status) == (container, "container", "running")
    assert told.expires_after.anchor == "last_active_at"
    client.containers.delete(container)
    for gone in [client.containers.retrieve, client.containers.delete]:
        with pytest.raises(openai.NotFoundError) as caught:
            gone(container)
        assert container in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**program("print(x)", container))
    assert (caught.value.param, caught.value.code) == ("tools[0].container", "container_expired")
