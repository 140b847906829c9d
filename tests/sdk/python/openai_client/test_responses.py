"""Code execution on the Responses wire, seen by the official SDK: it must look as if OpenAI had run the code."""

import asyncio

import openai
import pytest

from conftest import make_client
from conversations import KEY, V1_URL

TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
# One model that speaks chat completions, one that speaks Responses; neither can run code.
MODELS = ["code-once", "responses--code-once"]
OUTPUTS = ["code_interpreter_call.outputs"]


def question(model, **changes):
    return {"model": model, "tools": [TOOL], "input": "Add up the numbers to 100.", "include": OUTPUTS, **changes}


def check_turn(response):
    """The turn of scenario `code-once`, item by item."""
    assert [item.type for item in response.output] == ["message", "code_interpreter_call", "message"]
    before, call, after = response.output
    assert before.content[0].text == "Adding up. "
    assert call.id.startswith("otari_ci_")
    assert call.code == "print('sum', sum(range(101)))"
    assert call.status == "completed"
    assert call.container_id.startswith("otari_cntr_")
    assert [(output.type, output.logs) for output in call.outputs] == [("logs", "sum 5050\n")]
    assert "sum 5050" in after.content[0].text
    assert response.output_text == before.content[0].text + after.content[0].text
    assert response.status == "completed"
    assert response.tools[0].type == "code_interpreter"
    # Both rounds count.
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (110, 29, 139)


@pytest.mark.parametrize("model", MODELS)
def test_a_whole_answer_shows_code_and_true_output(client, model):
    check_turn(client.responses.create(**question(model)))


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_accumulates_to_the_same_response(client, model):
    text = ""
    with client.responses.stream(**question(model)) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
        response = stream.get_final_response()
    check_turn(response)
    assert text == response.output_text


@pytest.mark.parametrize("model", MODELS)
def test_raw_events_come_in_order_and_the_code_arrives_in_fragments(client, model):
    events = list(client.responses.create(**question(model, stream=True)))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    of_code = [
        event for event in events if getattr(event, "item_id", None) == events[-1].response.output[1].id
    ]
    pieces = [event.delta for event in of_code if event.type == "response.code_interpreter_call_code.delta"]
    assert len(pieces) > 2
    assert "".join(pieces) == "print('sum', sum(range(101)))"
    states = [event.type.rsplit(".", 1)[1] for event in of_code if "call_code.delta" not in event.type]
    assert states == ["in_progress", "done", "interpreting", "completed"]


@pytest.mark.parametrize(
    "model",
    [
        *MODELS,
        "gpt--native-items",
        "thinking",
        "responses--thinking",
        "code-fails",
        "bad-arguments",
    ],
)
def test_strict_validation_accepts_every_answer(strict_client, model):
    for include in (OUTPUTS, []):
        asked = question(model, include=include, reasoning={"summary": "auto"})
        strict_client.responses.create(**asked)
        for _ in strict_client.responses.create(**asked, stream=True):
            pass
        with strict_client.responses.stream(**asked) as stream:
            stream.get_final_response()


@pytest.mark.parametrize("model", MODELS)
def test_the_turn_sent_back_as_history_is_understood(client, model):
    first = client.responses.create(**question(model))
    for echo in (first.output, [item.model_dump(exclude_none=True) for item in first.output]):
        history = [
            {"role": "user", "content": "Add up the numbers to 100."},
            *echo,
            {"role": "user", "content": "What was it again?"},
        ]
        second = client.responses.create(**question(model, input=history))
        assert [item.type for item in second.output] == ["message"]
        assert second.output_text == "I remember 5050."


def test_outputs_stay_hidden_unless_included(client):
    response = client.responses.create(**question("code-once", include=[]))
    assert response.output[1].outputs is None


def test_the_async_client_streams_too():
    async def run():
        async with openai.AsyncOpenAI(base_url=V1_URL, api_key=KEY, max_retries=0) as client:
            async with client.responses.stream(**question("code-once")) as stream:
                return await stream.get_final_response()

    check_turn(asyncio.run(run()))


def test_the_header_brings_the_code_here(client):
    asked = question("gpt--code-once", extra_headers={"X-Otari-Code-Execution": "otari"})
    check_turn(client.responses.create(**asked))


def test_errors_are_the_sdks_own(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**question("code-once", background=True))
    assert refused.value.param == "background"
    assert refused.value.type == "invalid_request_error"
    assert refused.value.request_id
    with make_client(api_key="gw-nobodys-key") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.responses.create(**question("code-once"))


@pytest.mark.parametrize("model", ["cut", "responses--cut"])
def test_a_model_that_breaks_off_ends_the_stream_with_an_error(client, model):
    with pytest.raises(openai.APIError), client.responses.stream(**question(model)) as stream:
        stream.get_final_response()


@pytest.mark.parametrize("model", MODELS)
def test_a_kept_answer_is_retrieved_listed_and_deleted(strict_client, model):
    first = strict_client.responses.create(**question(model))
    again = strict_client.responses.retrieve(first.id)
    check_turn(again)
    assert again.to_dict() == first.to_dict()
    second = strict_client.responses.create(
        **question(model, input="What was it again?", previous_response_id=first.id)
    )
    items = list(strict_client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [item.type for item in items] == ["message", "message", "code_interpreter_call", "message", "message"]
    assert items[0].content[0].text == "Add up the numbers to 100."
    assert items[-1].content[0].text == "What was it again?"
    assert len({item.id for item in items}) == len(items)
    strict_client.responses.delete(first.id)
    for gone in (
        lambda: strict_client.responses.retrieve(first.id),
        lambda: strict_client.responses.delete(first.id),
        lambda: strict_client.responses.input_items.list(first.id),
    ):
        with pytest.raises(openai.NotFoundError):
            gone()
    assert strict_client.responses.retrieve(second.id).output_text == "I remember 5050."


def test_what_a_kept_answer_cannot_do_is_said(client):
    kept = client.responses.create(**question("code-once", include=[]))
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.retrieve(kept.id, stream=True)
    assert refused.value.param == "stream"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.retrieve(kept.id, include=OUTPUTS)
    assert refused.value.param == "include"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(kept.id)
