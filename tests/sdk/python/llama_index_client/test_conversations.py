"""LlamaIndex's model of the Responses wire holds the conversations; its other models know no hosted tools."""

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.llms.openai import OpenAIResponses

from conversations import KEY, TIMEOUT, V1_URL, Call, Run, Turn, conversations


class Client:
    name = "openai"
    shows_runs = True
    keeps = "texts"

    def begin(self, model, function):
        return Talk(model, function)


class Talk:
    def __init__(self, model, function):
        self.model = OpenAIResponses(
            model=model,
            api_base=V1_URL,
            api_key=KEY,
            max_retries=0,
            timeout=TIMEOUT,
            # It knows the windows of OpenAI's models alone.
            context_window=128_000,
            built_in_tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
            include=["code_interpreter_call.outputs"],
        )
        self.own = [{"type": "function", **function}] if function else []
        self.messages = []

    def say(self, text, streamed):
        return self.ask(ChatMessage(role=MessageRole.USER, content=text), streamed)

    def give(self, call, result, streamed):
        told = ChatMessage(role=MessageRole.TOOL, content=result, additional_kwargs={"call_id": call.id})
        return self.ask(told, streamed)

    def ask(self, message, streamed):
        self.messages.append(message)
        if streamed:
            *_, answer = self.model.stream_chat(self.messages, tools=self.own)
            # A stream shows the runs in the last event alone.
            ran = [item for item in answer.raw.response.output if item.type == "code_interpreter_call"]
        else:
            answer = self.model.chat(self.messages, tools=self.own)
            ran = answer.additional_kwargs["built_in_tool_calls"]
        self.messages.append(answer.message)
        calls = self.model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
        return Turn(
            text=answer.message.content or "",
            runs=[Run(item.code, "".join(out.logs for out in item.outputs), item.status == "failed") for item in ran],
            calls=[Call(call.tool_id, call.tool_name, call.tool_kwargs) for call in calls],
        )


test_conversation = conversations(Client())
