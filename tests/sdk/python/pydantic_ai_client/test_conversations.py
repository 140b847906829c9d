"""Pydantic AI's agents hold the conversations with Anthropic's model and with OpenAI's of the Responses wire.

Its model of the Chat Completions wire refuses code execution before it asks anybody.
"""

import asyncio
import uuid

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ExternalToolset, ToolDefinition
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart, TextPart, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.native_tools import CodeExecutionTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from conversations import KEY, ROOT_URL, TIMEOUT, V1_URL, Call, Run, Turn, conversations

OPTIONS = {"api_key": KEY, "max_retries": 0, "timeout": TIMEOUT}
OUTPUTS = {"openai_include_code_execution_outputs": True}
# With the ids, which it sends to reasoning models by default, a history holds the code but never what came of it.
IDS = {"openai_send_reasoning_ids": True}


class Client:
    """Agents on one of Pydantic AI's models, with these settings."""

    shows_runs = True

    def __init__(self, name, vendor, settings, keeps):
        self.name = name
        self.vendor = vendor
        self.settings = settings
        self.keeps = keeps

    def begin(self, model, function):
        return Talk(self, model, function)


class Anthropic:
    def connect(self):
        return AsyncAnthropic(base_url=ROOT_URL, **OPTIONS)

    def model(self, name, client):
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))

    def run(self, code, result):
        return Run(code, result["stdout"] + result["stderr"], result["return_code"] != 0)


class OpenAI:
    def connect(self):
        return AsyncOpenAI(base_url=V1_URL, **OPTIONS)

    def model(self, name, client):
        return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))

    def run(self, code, result):
        return Run(code, "".join(result["logs"]), result["status"] == "failed")


class Talk:
    def __init__(self, client, model, function):
        self.client = client
        self.model = model
        self.own = []
        if function:
            own = {"name": function["name"], "description": function["description"]}
            self.own = [ToolDefinition(parameters_json_schema=function["parameters"], **own)]
        self.messages = []

    def say(self, text, streamed):
        return asyncio.run(self.ask(streamed, user_prompt=text))

    def give(self, call, result, streamed):
        results = DeferredToolResults(calls={call.id: result})
        return asyncio.run(self.ask(streamed, deferred_tool_results=results))

    async def ask(self, streamed, **asked):
        async with self.client.vendor.connect() as connection:
            agent = Agent(
                self.client.vendor.model(self.model, connection),
                output_type=[str, DeferredToolRequests],
                capabilities=[NativeTool(CodeExecutionTool())],
                toolsets=[ExternalToolset(self.own)],
                model_settings=self.client.settings,
            )
            if streamed:
                async with agent.run_stream(message_history=self.messages, **asked) as result:
                    await result.get_output()
            else:
                result = await agent.run(message_history=self.messages, **asked)
        self.messages = result.all_messages()
        return read(self.client, result.new_messages())


def read(client, messages):
    (response,) = [message for message in messages if isinstance(message, ModelResponse)]
    turn, codes = Turn(), {}
    for part in response.parts:
        if isinstance(part, TextPart):
            turn.text += part.content
        elif isinstance(part, ToolCallPart):
            turn.calls.append(Call(part.tool_call_id, part.tool_name, part.args_as_dict()))
        elif isinstance(part, NativeToolCallPart):
            codes[part.tool_call_id] = part.args_as_dict()["code"]
        else:
            assert isinstance(part, NativeToolReturnPart)
            turn.runs.append(client.vendor.run(codes.pop(part.tool_call_id), part.content))
    assert not codes, "every run has its result"
    return turn


test_conversation = conversations(
    Client("anthropic", Anthropic(), {}, keeps="results"),
    Client("openai", OpenAI(), OUTPUTS, keeps="texts"),
    Client("openai-with-ids", OpenAI(), OUTPUTS | IDS, keeps="code"),
)


def test_a_later_turn_goes_on_in_the_container_of_the_one_before():
    word = uuid.uuid4().hex
    talk = Client("anthropic", Anthropic(), {}, keeps="results").begin("code-marked", None)
    talk.say(f"x = '{word}'", streamed=False)
    turn = talk.say("print(x)", streamed=False)
    assert [run.output for run in turn.runs] == [f"{word}\n"]
