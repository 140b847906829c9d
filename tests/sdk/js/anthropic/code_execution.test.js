// Code execution on the Messages wire, seen by the official TypeScript SDK.

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { KEY, PATIENCE, ROOT_URL } from "../conversations.js";

const client = new Anthropic({ baseURL: ROOT_URL, apiKey: KEY, ...PATIENCE });
// One model that speaks chat completions, one that speaks Messages; neither can run code.
const MODELS = ["code-once", "messages--code-once"];

function question(model, changes = {}) {
  return {
    model,
    max_tokens: 1024,
    tools: [{ type: "code_execution_20250825", name: "code_execution" }],
    messages: [{ role: "user", content: "Add up the numbers to 100." }],
    ...changes,
  };
}

/** The turn of scenario `code-once`, block by block. */
function checkTurn(message) {
  assert.deepEqual(
    message.content.map((block) => block.type),
    ["text", "server_tool_use", "code_execution_tool_result", "text"],
  );
  const [, use, result, after] = message.content;
  assert.match(use.id, /^otari_srvtoolu_/);
  assert.deepEqual(use.input, { code: "print('sum', sum(range(101)))" });
  assert.equal(result.tool_use_id, use.id);
  assert.equal(result.content.type, "code_execution_result");
  assert.equal(result.content.stdout, "sum 5050\n");
  assert.equal(result.content.return_code, 0);
  assert.match(after.text, /sum 5050/);
  assert.equal(message.stop_reason, "end_turn");
  assert.match(message.container.id, /^otari_cntr_/);
}

for (const model of MODELS) {
  test(`${model}: a whole answer shows code and true output`, async () => {
    checkTurn(await client.messages.create(question(model)));
  });

  test(`${model}: a stream accumulates to the same message`, async () => {
    const stream = client.messages.stream(question(model));
    let text = "";
    stream.on("text", (delta) => (text += delta));
    const message = await stream.finalMessage();
    checkTurn(message);
    assert.equal(text, message.content[0].text + message.content[3].text);
  });
}

for (const model of ["three-tools", "messages--three-tools"]) {
  test(`${model}: each tool shows in its own blocks`, async () => {
    const message = await client.messages.stream(question(model)).finalMessage();
    const uses = message.content.filter((block) => block.type === "server_tool_use");
    const editor = "text_editor_code_execution";
    const names = ["bash_code_execution", editor, editor, editor, editor, "code_execution"];
    assert.deepEqual(uses.map((use) => use.name), names);
    const results = uses.map((use) => message.content.find((block) => block.tool_use_id === use.id));
    assert.deepEqual(results.map((block) => block.type), names.map((name) => `${name}_tool_result`));
    const [bash, view, replaced, created, failed] = results.map((block) => block.content);
    assert.deepEqual([bash.stderr, bash.return_code], ["made\n", 3]);
    assert.deepEqual([view.content, view.start_line, view.total_lines], ["two\n", 2, 2]);
    assert.deepEqual(replaced.lines, ["-two", '+2 "é"']);
    assert.equal(created.is_file_update, false);
    assert.equal(failed.error_code, "file_not_found");
    assert.deepEqual(uses[1].input, { command: "view", path: "notes.txt", view_range: [2, -1] });
  });
}

test("errors are the SDK's own", async () => {
  const headers = { "X-Otari-Code-Execution": "maybe" };
  await assert.rejects(client.messages.create(question("code-once"), { headers }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError, String(error));
    assert.equal(error.error.error.type, "invalid_request_error");
    return true;
  });
  const stranger = new Anthropic({ baseURL: ROOT_URL, apiKey: "gw-nobodys-key", ...PATIENCE });
  await assert.rejects(stranger.messages.create(question("code-once")), Anthropic.AuthenticationError);
});

test("a model that breaks off ends the stream with an error", async () => {
  await assert.rejects(client.messages.stream(question("cut")).finalMessage(), Anthropic.APIError);
});
