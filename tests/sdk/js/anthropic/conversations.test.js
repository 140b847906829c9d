// Anthropic's TypeScript SDK holds the conversations.

import assert from "node:assert/strict";

import Anthropic from "@anthropic-ai/sdk";

import { conversations, KEY, PATIENCE, ROOT_URL } from "../conversations.js";

const client = new Anthropic({ baseURL: ROOT_URL, apiKey: KEY, ...PATIENCE });

function begin(model, fn) {
  const own = fn ? [{ name: fn.name, description: fn.description, input_schema: fn.parameters }] : [];
  const tools = [{ type: "code_execution_20250825", name: "code_execution" }, ...own];
  const messages = [];
  async function ask(content, streamed) {
    messages.push({ role: "user", content });
    const request = { model, max_tokens: 1024, tools, messages };
    const message = await (streamed
      ? client.messages.stream(request).finalMessage()
      : client.messages.create(request));
    messages.push({ role: "assistant", content: message.content });
    const turn = read(message.content);
    assert.equal(message.stop_reason, turn.calls.length ? "tool_use" : "end_turn");
    return turn;
  }
  return {
    say: ask,
    give: (call, result, streamed) =>
      ask([{ type: "tool_result", tool_use_id: call.id, content: result }], streamed),
  };
}

function read(blocks) {
  const turn = { text: "", runs: [], calls: [] };
  const codes = new Map();
  for (const block of blocks) {
    if (block.type === "text") turn.text += block.text;
    else if (block.type === "tool_use") turn.calls.push({ id: block.id, name: block.name, arguments: block.input });
    else if (block.type === "server_tool_use") codes.set(block.id, block.input.code);
    else {
      assert.equal(block.type, "code_execution_tool_result");
      const { stdout, stderr, return_code } = block.content;
      turn.runs.push({ code: codes.get(block.tool_use_id), output: stdout + stderr, failed: return_code !== 0 });
      codes.delete(block.tool_use_id);
    }
  }
  assert.equal(codes.size, 0, "every run has its result");
  return turn;
}

conversations({ name: "messages", showsRuns: true, keeps: "results", begin });
