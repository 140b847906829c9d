"""Anthropic's SDK holds the conversations, strict about every answer where its types know our blocks."""

from conftest import IS_OLD, make_client, messages_of
from conversations import Call, Run, Turn, conversations

TOOL = {"type": "code_execution_20250825", "name": "code_execution"}


class Messages:
    shows_runs = True
    keeps = "results"

    def __init__(self, name):
        self.name = name

    def begin(self, model, function):
        return Talk(model, function)


class Talk:
    def __init__(self, model, function):
        own = [{**function, "input_schema": function["parameters"]}] if function else []
        for tool in own:
            del tool["parameters"]
        self.request = {"model": model, "max_tokens": 1024, "tools": [TOOL, *own], "messages": []}

    def say(self, text, streamed):
        return self.ask(text, streamed)

    def give(self, call, result, streamed):
        return self.ask([{"type": "tool_result", "tool_use_id": call.id, "content": result}], streamed)

    def ask(self, content, streamed):
        self.request["messages"].append({"role": "user", "content": content})
        with make_client(_strict_response_validation=not IS_OLD) as client:
            if streamed:
                with messages_of(client).stream(**self.request) as stream:
                    message = stream.get_final_message()
            else:
                message = messages_of(client).create(**self.request)
        self.request["messages"].append({"role": "assistant", "content": message.content})
        return read(message)


def read(message):
    turn, codes = Turn(), {}
    for block in message.content:
        if block.type == "text":
            turn.text += block.text
        elif block.type == "tool_use":
            turn.calls.append(Call(block.id, block.name, block.input))
        elif block.type == "server_tool_use":
            codes[block.id] = block.input["code"]
        else:
            assert block.type == "code_execution_tool_result"
            result = block.content
            turn.runs.append(Run(codes.pop(block.tool_use_id), result.stdout + result.stderr, result.return_code != 0))
    assert not codes, "every run has its result"
    assert message.stop_reason == ("tool_use" if turn.calls else "end_turn")
    return turn


test_conversation = conversations(Messages("messages"))
