// The conversations of `../conversations.json`, held by one client after the other.
//
// A client's file says `conversations({ name, showsRuns, keeps, begin(model, fn) })`. `keeps` is what its histories keep
// of a run: "results", "code" or "texts". `begin` gives an object with
// `say(text, streamed)` and `give(call, result, streamed)`, which keep the history the way this client's users do and
// resolve to `{ text, runs: [{ code, output, failed }], calls: [{ id, name, arguments }] }`; `failed` is undefined if the
// client does not tell. INVARIANT: what is asked and what must come back stands in the JSON file alone.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const { OTARI_BASE_URL, OTARI_KEY } = process.env;
assert.ok(OTARI_BASE_URL && OTARI_KEY, "set OTARI_BASE_URL and OTARI_KEY: whoever starts this has started the stack");

export const ROOT_URL = OTARI_BASE_URL;
export const V1_URL = `${OTARI_BASE_URL}/v1`;
export const KEY = OTARI_KEY;
// No client retries: that would hide what went wrong the first time. In milliseconds.
export const PATIENCE = { maxRetries: 0, timeout: 60_000 };

const SCRIPT = JSON.parse(readFileSync(new URL("../conversations.json", import.meta.url), "utf8"));

/** Registers the tests that this client holds all conversations. */
export function conversations(client) {
  for (const talk of SCRIPT.conversations) {
    for (const prefix of talk.model_prefixes ?? SCRIPT.model_prefixes) {
      for (const streamed of [false, true]) {
        const how = `${prefix}${streamed ? "streamed" : "whole"}`;
        test(`${client.name}-${talk.name}-${how}`, () => hold(client, talk, prefix, streamed));
      }
    }
  }
}

async function hold(client, talk, prefix, streamed) {
  const model = talk.models[client.keeps] ?? talk.models.results;
  const conversation = client.begin(prefix + model, talk.function ? SCRIPT.function : undefined);
  let turn;
  for (const expected of talk.turns) {
    turn = await ("say" in expected
      ? conversation.say(expected.say, streamed)
      : conversation.give(turn.calls.at(-1), expected.give, streamed));
    for (const text of expected.texts) assert.ok(turn.text.includes(text), `${text} in ${JSON.stringify(turn)}`);
    const calls = turn.calls.map((call) => ({ name: call.name, arguments: call.arguments }));
    assert.deepEqual(calls, expected.calls);
    const runs = client.showsRuns ? expected.runs : [];
    assert.deepEqual(turn.runs.map((run) => run.code), runs.map((run) => run.code));
    for (const [position, wanted] of runs.entries()) {
      const run = turn.runs[position];
      assert.equal(run.failed ?? wanted.failed, wanted.failed);
      for (const output of wanted.outputs) assert.ok(run.output.includes(output), `${output} in ${run.output}`);
    }
  }
}
