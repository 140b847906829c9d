// Vercel's AI SDK holds the conversations with both of its providers.

import assert from "node:assert/strict";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, streamText, tool } from "ai";

import { conversations, KEY, PATIENCE, V1_URL } from "../conversations.js";

const anthropic = createAnthropic({ baseURL: V1_URL, apiKey: KEY });
const openai = createOpenAI({ baseURL: V1_URL, apiKey: KEY });

/** A provider: its model, its code tool, its options, and how it shows code and outcome of a run. */
const PROVIDERS = [
  {
    name: "anthropic",
    keeps: "results",
    model: (id) => anthropic(id),
    codeTool: { code_execution: anthropic.tools.codeExecution_20250825() },
    providerOptions: {},
    outcome: ({ stdout, stderr, return_code }) => ({ output: stdout + stderr, failed: return_code !== 0 }),
  },
  // With `store` off it sends the texts of a turn; with `store` on, as it is by default, ids of the items.
  ...[false, true].map((store) => ({
    name: store ? "openai" : "openai-without-store",
    keeps: store ? "results" : "texts",
    model: (id) => openai.responses(id),
    codeTool: { code_interpreter: openai.tools.codeInterpreter() },
    providerOptions: store ? {} : { openai: { store } },
    outcome: ({ outputs }) => ({ output: outputs.map((output) => output.logs).join(""), failed: undefined }),
  })),
];

for (const provider of PROVIDERS) {
  const begin = (model, fn) => {
    const own = fn
      ? { [fn.name]: tool({ description: fn.description, inputSchema: jsonSchema(fn.parameters) }) }
      : {};
    const messages = [];
    async function ask(message, streamed) {
      messages.push(message);
      const result = await generate(streamed, {
        model: provider.model(model),
        tools: { ...provider.codeTool, ...own },
        providerOptions: provider.providerOptions,
        maxRetries: PATIENCE.maxRetries,
        abortSignal: AbortSignal.timeout(PATIENCE.timeout),
        messages,
      });
      messages.push(...result.response.messages);
      return read(provider, result.content);
    }
    return {
      say: (text, streamed) => ask({ role: "user", content: text }, streamed),
      give: ({ id, name }, result, streamed) => {
        const output = { type: "text", value: result };
        return ask({ role: "tool", content: [{ type: "tool-result", toolCallId: id, toolName: name, output }] }, streamed);
      },
    };
  };
  conversations({ name: provider.name, showsRuns: true, keeps: provider.keeps, begin });
}

/** One call of the model; in a stream no part may be an error. */
async function generate(streamed, request) {
  if (!streamed) return generateText(request);
  const result = streamText({ ...request, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
  }
  return { content: await result.content, response: await result.response };
}

function read(provider, parts) {
  const turn = { text: "", runs: [], calls: [] };
  const codes = new Map();
  for (const part of parts) {
    if (part.type === "text") turn.text += part.text;
    else if (part.type === "tool-call" && part.providerExecuted) codes.set(part.toolCallId, part.input.code);
    else if (part.type === "tool-call") {
      turn.calls.push({ id: part.toolCallId, name: part.toolName, arguments: part.input });
    } else if (part.type !== "custom") {
      // `custom` is a note of the SDK's own; nothing else may come.
      assert.equal(part.type, "tool-result", JSON.stringify(part));
      turn.runs.push({ code: codes.get(part.toolCallId), ...provider.outcome(part.output) });
      codes.delete(part.toolCallId);
    }
  }
  assert.equal(codes.size, 0, "every run has its result");
  return turn;
}
