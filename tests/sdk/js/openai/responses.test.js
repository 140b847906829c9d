// Code execution on the Responses wire, seen by the official JavaScript SDK.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

import { KEY, PATIENCE, V1_URL } from "../conversations.js";

const client = new OpenAI({ baseURL: V1_URL, apiKey: KEY, ...PATIENCE });
// One model that speaks chat completions, one that speaks Responses; neither can run code.
const MODELS = ["code-once", "responses--code-once"];

function question(model, changes = {}) {
  return {
    model,
    input: "Add up the numbers to 100.",
    tools: [{ type: "code_interpreter", container: { type: "auto" } }],
    include: ["code_interpreter_call.outputs"],
    ...changes,
  };
}

/** The turn of scenario `code-once`, item by item. */
function checkTurn(response) {
  assert.deepEqual(
    response.output.map((item) => item.type),
    ["message", "code_interpreter_call", "message"],
  );
  const [, call, after] = response.output;
  assert.match(call.id, /^otari_ci_/);
  assert.match(call.container_id, /^otari_cntr_/);
  assert.equal(call.code, "print('sum', sum(range(101)))");
  assert.equal(call.status, "completed");
  assert.deepEqual(call.outputs, [{ type: "logs", logs: "sum 5050\n" }]);
  assert.match(after.content[0].text, /sum 5050/);
  assert.equal(response.status, "completed");
}

for (const model of MODELS) {
  test(`${model}: a whole answer shows code and true output`, async () => {
    checkTurn(await client.responses.create(question(model)));
  });

  test(`${model}: a stream accumulates to the same response`, async () => {
    const stream = client.responses.stream(question(model));
    let text = "";
    stream.on("response.output_text.delta", (event) => (text += event.delta));
    const response = await stream.finalResponse();
    checkTurn(response);
    assert.equal(text, response.output_text);
  });
}

for (const model of ["thinking", "responses--thinking"]) {
  test(`${model}: thoughts stream too`, async () => {
    const asked = question(model, { reasoning: { summary: "auto" } });
    const response = await client.responses.stream(asked).finalResponse();
    assert.equal(response.output[0].type, "reasoning");
    assert.equal(response.output[0].summary[0].text, "The sum has a closed form.");
  });
}

test("errors are the SDK's own", async () => {
  await assert.rejects(client.responses.create(question("code-once", { background: true })), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
    assert.equal(error.param, "background");
    return true;
  });
});

test("a model that breaks off ends the stream with an error", async () => {
  await assert.rejects(client.responses.stream(question("cut")).finalResponse(), OpenAI.APIError);
});

test("a kept answer is retrieved, listed and deleted", async () => {
  const first = await client.responses.create(question("code-once"));
  checkTurn(await client.responses.retrieve(first.id));
  const next = { input: "What was it again?", previous_response_id: first.id };
  const second = await client.responses.create(question("code-once", next));
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 2 })) {
    items.push(item.type);
  }
  assert.deepEqual(items, ["message", "message", "code_interpreter_call", "message", "message"]);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.delete(first.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.retrieve(second.id, { stream: true }), OpenAI.BadRequestError);
});
