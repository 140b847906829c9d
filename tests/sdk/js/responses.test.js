// Code execution on the Responses wire, seen by the official JavaScript SDK.
// The stack under test comes from the environment: whoever starts this has started it.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const { OTARI_BASE_URL, OTARI_KEY: apiKey } = process.env;
assert.ok(OTARI_BASE_URL && apiKey, "set OTARI_BASE_URL and OTARI_KEY");

const client = new OpenAI({ baseURL: `${OTARI_BASE_URL}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });
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

  test(`${model}: the turn sent back as history is understood`, async () => {
    const first = await client.responses.create(question(model));
    const input = [
      { role: "user", content: "Add up the numbers to 100." },
      ...first.output,
      { role: "user", content: "What was it again?" },
    ];
    const second = await client.responses.create(question(model, { input }));
    assert.equal(second.output_text, "I remember 5050.");
  });
}

for (const model of ["mixed", "responses--mixed"]) {
  test(`${model}: a turn that also calls our function stops for it`, async () => {
    const weather = { type: "function", name: "get_weather", parameters: { type: "object" }, strict: false };
    const tools = [...question(model).tools, weather];
    const first = await client.responses.stream(question(model, { tools })).finalResponse();
    const [ran, called] = first.output;
    assert.equal(ran.type, "code_interpreter_call");
    assert.equal(ran.outputs[0].logs, "mixed 9\n");
    assert.equal(called.name, "get_weather");
    const input = [
      { role: "user", content: "Add up." },
      ran,
      { type: "function_call", call_id: called.call_id, name: called.name, arguments: called.arguments },
      { type: "function_call_output", call_id: called.call_id, output: "sunny" },
    ];
    const second = await client.responses.create(question(model, { tools, input }));
    assert.equal(second.output_text, "Weather and sum: sunny");
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

test("a failing program has a failed item", async () => {
  const response = await client.responses.stream(question("code-fails")).finalResponse();
  assert.equal(response.output[0].status, "failed");
  assert.match(response.output[0].outputs[0].logs, /ZeroDivisionError/);
  assert.equal(response.status, "completed");
});

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
