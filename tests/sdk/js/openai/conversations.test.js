// OpenAI's JavaScript SDK holds the conversations on both of its wires.

import assert from "node:assert/strict";

import OpenAI from "openai";

import { conversations, KEY, PATIENCE, V1_URL } from "../conversations.js";

const client = new OpenAI({ baseURL: V1_URL, apiKey: KEY, ...PATIENCE });

/** The whole history in every request, or the id of the last answer and what is new. */
const beginResponses = (byId) => (model, fn) => {
  const own = fn ? [{ type: "function", strict: true, ...fn }] : [];
  const tools = [{ type: "code_interpreter", container: { type: "auto" } }, ...own];
  const input = [];
  let last;
  async function ask(item, streamed) {
    input.push(item);
    const request = { model, tools, input, include: ["code_interpreter_call.outputs"], previous_response_id: last };
    const response = await (streamed
      ? client.responses.stream(request).finalResponse()
      : client.responses.create(request));
    assert.equal(response.status, "completed");
    if (byId) {
      last = response.id;
      input.length = 0;
    } else {
      // What the SDK parsed out of the arguments is its own and no member of an item.
      input.push(...response.output.map(({ parsed_arguments, ...item }) => item));
    }
    return readResponse(response);
  }
  return {
    say: (text, streamed) => ask({ role: "user", content: text }, streamed),
    give: (call, result, streamed) =>
      ask({ type: "function_call_output", call_id: call.id, output: result }, streamed),
  };
};

function readResponse(response) {
  const turn = { text: response.output_text, runs: [], calls: [] };
  for (const item of response.output) {
    if (item.type === "function_call") {
      turn.calls.push({ id: item.call_id, name: item.name, arguments: JSON.parse(item.arguments) });
    } else if (item.type === "code_interpreter_call") {
      const output = item.outputs.map((output) => output.logs).join("");
      turn.runs.push({ code: item.code, output, failed: item.status === "failed" });
    } else assert.equal(item.type, "message");
  }
  return turn;
}

function beginChat(model, fn) {
  const own = fn ? [{ type: "function", function: { strict: true, ...fn } }] : [];
  const tools = [{ type: "code_interpreter" }, ...own];
  const messages = [];
  async function ask(message, streamed) {
    messages.push(message);
    const request = { model, tools, messages };
    const completion = await (streamed
      ? client.chat.completions.stream(request).finalChatCompletion()
      : client.chat.completions.create(request));
    const [choice] = completion.choices;
    messages.push(choice.message);
    const calls = (choice.message.tool_calls ?? []).map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments),
    }));
    assert.equal(choice.finish_reason, calls.length ? "tool_calls" : "stop");
    return { text: choice.message.content ?? "", runs: [], calls };
  }
  return {
    say: (text, streamed) => ask({ role: "user", content: text }, streamed),
    give: (call, result, streamed) => ask({ role: "tool", tool_call_id: call.id, content: result }, streamed),
  };
}

conversations({ name: "responses", showsRuns: true, keeps: "results", begin: beginResponses(false) });
conversations({ name: "responses-by-id", showsRuns: true, keeps: "results", begin: beginResponses(true) });
conversations({ name: "chat", showsRuns: false, keeps: "texts", begin: beginChat });
