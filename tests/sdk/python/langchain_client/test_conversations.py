"""LangChain's chat models hold the conversations: Anthropic's on its wire, OpenAI's on both of its own."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from conversations import KEY, ROOT_URL, TIMEOUT, V1_URL, Call, Run, Turn, conversations

OPTIONS = {"api_key": KEY, "max_retries": 0, "timeout": TIMEOUT}


class Client:
    """A chat model of LangChain's, with its code tool."""

    def __init__(self, name, chat_model, code_tool, shows_runs):
        self.name = name
        self.chat_model = chat_model
        self.code_tool = code_tool
        self.shows_runs = shows_runs
        self.keeps = "results" if shows_runs else "texts"

    def begin(self, model, function):
        own = [{"type": "function", "function": function}] if function else []
        return Talk(self.chat_model(model).bind_tools([self.code_tool, *own]))


class Talk:
    def __init__(self, model):
        self.model = model
        self.messages = []

    def say(self, text, streamed):
        return self.ask(HumanMessage(text), streamed)

    def give(self, call, result, streamed):
        return self.ask(ToolMessage(result, tool_call_id=call.id), streamed)

    def ask(self, message, streamed):
        self.messages.append(message)
        if streamed:
            chunks = list(self.model.stream(self.messages))
            answer = sum(chunks[1:], chunks[0])
        else:
            answer = self.model.invoke(self.messages)
        self.messages.append(answer)
        return read(answer)


def read(answer):
    """LangChain shows the blocks and items of both vendors in words of its own: a call, then its result."""
    turn, codes = Turn(text=answer.text), {}
    turn.calls = [Call(call["id"], call["name"], call["args"]) for call in answer.tool_calls]
    for block in answer.content_blocks:
        if block["type"] == "server_tool_call":
            assert block["name"] == "code_interpreter"
            codes[block["id"]] = block["args"]["code"]
        elif block["type"] == "server_tool_result":
            turn.runs.append(run(codes.pop(block["tool_call_id"]), block))
        else:
            assert block["type"] in ("text", "tool_call")
    assert not codes, "every run has its result"
    return turn


def run(code, result):
    output = result["output"]
    if isinstance(output, dict):
        return Run(code, output["stdout"] + output["stderr"], output["return_code"] != 0)
    return Run(code, "".join(part["logs"] for part in output), result["status"] == "error")


def anthropic(model):
    return ChatAnthropic(model=model, base_url=ROOT_URL, max_tokens=1024, **OPTIONS)


def responses(model):
    return ChatOpenAI(model=model, base_url=V1_URL, include=["code_interpreter_call.outputs"], **OPTIONS)


def chat(model):
    return ChatOpenAI(model=model, base_url=V1_URL, use_responses_api=False, **OPTIONS)


INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}
test_conversation = conversations(
    Client("anthropic", anthropic, {"type": "code_execution_20250825", "name": "code_execution"}, shows_runs=True),
    Client("openai-responses", responses, INTERPRETER, shows_runs=True),
    Client("openai-chat", chat, INTERPRETER, shows_runs=False),
)
