"""any-llm holds the conversations on all three wires, with the vendors' SDKs below it or otari's own client."""

import json

import any_llm
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from conversations import KEY, ROOT_URL, TIMEOUT, V1_URL, Call, Run, Turn, conversations

# Where each of its providers is told to ask, and how it sends the key of a gateway.
PROVIDERS = {
    "anthropic": {"api_base": ROOT_URL, "client_args": {"max_retries": 0}},
    "openai": {"api_base": V1_URL, "client_args": {"max_retries": 0}},
    "otari": {"api_base": ROOT_URL, "client_args": {"platform_mode": False}},
}
INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}


class Client:
    """A provider of any-llm's on one wire."""

    def __init__(self, provider, talk):
        self.name = f"{provider}-{talk.wire}"
        self.shows_runs = talk.shows_runs
        self.keeps = "results" if talk.shows_runs else "texts"
        self.provider = provider
        self.talk = talk

    def begin(self, model, function):
        options = {"provider": self.provider, "api_key": KEY, "timeout": TIMEOUT, **PROVIDERS[self.provider]}
        return self.talk(model, function, options)


class Talk:
    def __init__(self, model, function, options):
        own = [self.declare(function)] if function else []
        self.request = {"model": model, "tools": [self.code_tool, *own], **options}
        self.history = []


class MessagesTalk(Talk):
    wire = "messages"
    shows_runs = True
    code_tool = {"type": "code_execution_20250825", "name": "code_execution"}

    def declare(self, function):
        return {"name": function["name"], "input_schema": function["parameters"]}

    def say(self, text, streamed):
        return self.ask(text, streamed)

    def give(self, call, result, streamed):
        return self.ask([{"type": "tool_result", "tool_use_id": call.id, "content": result}], streamed)

    def ask(self, content, streamed):
        self.history.append({"role": "user", "content": content})
        answer = any_llm.messages(messages=self.history, max_tokens=1024, stream=streamed, **self.request)
        blocks = collected(answer) if streamed else answer.content
        blocks = [block.model_dump(exclude_none=True) for block in blocks]
        self.history.append({"role": "assistant", "content": blocks})
        turn, codes = Turn(), {}
        for block in blocks:
            if block["type"] == "text":
                turn.text += block["text"]
            elif block["type"] == "tool_use":
                turn.calls.append(Call(block["id"], block["name"], block["input"]))
            elif block["type"] == "server_tool_use":
                codes[block["id"]] = block["input"]["code"]
            else:
                result, code = block["content"], codes.pop(block["tool_use_id"])
                turn.runs.append(Run(code, result["stdout"] + result["stderr"], result["return_code"] != 0))
        assert not codes, "every run has its result"
        return turn


def collected(events):
    """The blocks of a stream: any-llm leaves it to its users to put them together."""
    blocks, arguments = [], {}
    for event in events:
        if event.type == "content_block_start":
            assert event.index == len(blocks)
            blocks.append(event.content_block)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            blocks[event.index].text += event.delta.text
        elif event.type == "content_block_delta":
            arguments[event.index] = arguments.get(event.index, "") + event.delta.partial_json
        elif event.type == "content_block_stop" and event.index in arguments:
            blocks[event.index].input = json.loads(arguments[event.index])
    return blocks


class ResponsesTalk(Talk):
    wire = "responses"
    shows_runs = True
    code_tool = INTERPRETER

    def declare(self, function):
        return {"type": "function", **function}

    def say(self, text, streamed):
        return self.ask({"role": "user", "content": text}, streamed)

    def give(self, call, result, streamed):
        return self.ask({"type": "function_call_output", "call_id": call.id, "output": result}, streamed)

    def ask(self, item, streamed):
        self.history.append(item)
        outputs = ["code_interpreter_call.outputs"]
        answer = any_llm.responses(input_data=self.history, include=outputs, stream=streamed, **self.request)
        if streamed:
            *_, last = answer
            assert last.type == "response.completed"
            answer = last.response
        items = answer.model_dump(exclude_none=True)["output"]
        self.history.extend(items)
        turn = Turn()
        for item in items:
            if item["type"] == "message":
                turn.text += "".join(part["text"] for part in item["content"])
            elif item["type"] == "function_call":
                turn.calls.append(Call(item["call_id"], item["name"], json.loads(item["arguments"])))
            else:
                output = "".join(output["logs"] for output in item["outputs"])
                turn.runs.append(Run(item["code"], output, item["status"] == "failed"))
        return turn


class ChatTalk(Talk):
    wire = "chat"
    shows_runs = False
    code_tool = INTERPRETER

    def declare(self, function):
        return {"type": "function", "function": function}

    def say(self, text, streamed):
        return self.ask({"role": "user", "content": text}, streamed)

    def give(self, call, result, streamed):
        return self.ask({"role": "tool", "tool_call_id": call.id, "content": result}, streamed)

    def ask(self, message, streamed):
        self.history.append(message)
        answer = any_llm.completion(messages=self.history, stream=streamed, **self.request)
        if streamed:
            state = ChatCompletionStreamState()
            for chunk in answer:
                # any-llm fills in nulls, and OpenAI's accumulator takes a null for an answer.
                state.handle_chunk(ChatCompletionChunk.model_validate(chunk.model_dump(exclude_none=True)))
            answer = state.get_final_completion()
        message = answer.choices[0].message
        self.history.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        calls = [
            Call(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []
        ]
        return Turn(text=message.content or "", calls=calls)


# Otari's client answers a Responses request with types of its own, which any-llm's `responses` does not give back.
test_conversation = conversations(
    Client("anthropic", MessagesTalk),
    Client("otari", MessagesTalk),
    Client("openai", ResponsesTalk),
    Client("openai", ChatTalk),
    Client("otari", ChatTalk),
)
