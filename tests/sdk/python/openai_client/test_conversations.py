"""OpenAI's SDK holds the conversations on both of its wires, strict about every answer."""

import json

from conftest import accumulated, make_client
from conversations import Call, Run, Turn, conversations


class Responses:
    """The whole history in every request, or the id of the last answer and what is new."""

    shows_runs = True
    keeps = "results"

    def __init__(self, by_id):
        self.by_id = by_id
        self.name = "responses-by-id" if by_id else "responses"

    def begin(self, model, function):
        return ResponsesTalk(model, function, self.by_id)


class ResponsesTalk:
    def __init__(self, model, function, by_id):
        self.by_id = by_id
        own = [{"type": "function", **function}] if function else []
        self.request = {
            "model": model,
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}, *own],
            "include": ["code_interpreter_call.outputs"],
            "input": [],
        }

    def say(self, text, streamed):
        return self.ask({"role": "user", "content": text}, streamed)

    def give(self, call, result, streamed):
        return self.ask({"type": "function_call_output", "call_id": call.id, "output": result}, streamed)

    def ask(self, item, streamed):
        self.request["input"].append(item)
        with make_client(_strict_response_validation=True) as client:
            if streamed:
                with client.responses.stream(**self.request) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**self.request)
        if self.by_id:
            self.request |= {"input": [], "previous_response_id": response.id}
        else:
            # What the SDK parsed out of the arguments is its own and no member of an item.
            echo = {"parsed_arguments": True, "content": {"__all__": {"parsed"}}}
            self.request["input"].extend(item.model_dump(exclude=echo, exclude_unset=True) for item in response.output)
        return read(response)


def read(response):
    assert response.status == "completed"
    turn = Turn(text=response.output_text)
    for item in response.output:
        if item.type == "function_call":
            turn.calls.append(Call(item.call_id, item.name, json.loads(item.arguments)))
        elif item.type == "code_interpreter_call":
            output = "".join(output.logs for output in item.outputs)
            turn.runs.append(Run(item.code, output, item.status == "failed"))
        else:
            assert item.type == "message"
    return turn


class ChatCompletions:
    name = "chat"
    shows_runs = False
    keeps = "texts"

    def begin(self, model, function):
        return ChatTalk(model, function)


class ChatTalk:
    def __init__(self, model, function):
        own = [{"type": "function", "function": {**function}}] if function else []
        self.request = {"model": model, "tools": [{"type": "code_interpreter"}, *own], "messages": []}

    def say(self, text, streamed):
        return self.ask({"role": "user", "content": text}, streamed)

    def give(self, call, result, streamed):
        return self.ask({"role": "tool", "tool_call_id": call.id, "content": result}, streamed)

    def ask(self, message, streamed):
        self.request["messages"].append(message)
        with make_client(_strict_response_validation=True) as client:
            if streamed:
                (choice,) = accumulated(client, **self.request).choices
            else:
                (choice,) = client.chat.completions.create(**self.request).choices
        calls = [
            Call(call.id, call.function.name, json.loads(call.function.arguments))
            for call in choice.message.tool_calls or []
        ]
        assert choice.finish_reason == ("tool_calls" if calls else "stop")
        self.request["messages"].append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
        return Turn(text=choice.message.content or "", calls=calls)


test_conversation = conversations(Responses(by_id=False), Responses(by_id=True), ChatCompletions())
