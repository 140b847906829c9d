// The Files API, seen by the official JavaScript SDK, which sends the file first and without a length.

import assert from "node:assert/strict";
import { createReadStream, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, test } from "node:test";

import OpenAI, { toFile } from "openai";

import { PATIENCE, V1_URL } from "../conversations.js";
import { CONTENT, FILES_KEY, MAX_BYTES, OTHER_KEY, bytesOf, collect, counting } from "../files.js";

const make = (apiKey, options = {}) => new OpenAI({ baseURL: V1_URL, apiKey, ...PATIENCE, ...options });
const client = make(FILES_KEY);
const other = make(OTHER_KEY);

afterEach(async () => {
  for (const one of [client, other]) {
    for (const file of await collect(one.files.list())) await one.files.delete(file.id);
  }
});

test("every form of an upload is kept byte for byte", async () => {
  const path = join(mkdtempSync(join(tmpdir(), "files-")), "a b é.csv");
  writeFileSync(path, CONTENT);
  const forms = [
    [createReadStream(path), "a b é.csv"],
    [new File([CONTENT], "测试.md"), "测试.md"],
    [await toFile(CONTENT, "b.txt", { type: "text/plain" }), "b.txt"],
    [await toFile(new Blob([CONTENT]), "c.bin"), "c.bin"],
    [await toFile(createReadStream(path), "d.csv"), "d.csv"],
    [new Response(CONTENT), null],
  ];
  for (const [file, filename] of forms) {
    const made = await client.files.create({ file, purpose: "user_data" });
    if (filename) assert.equal(made.filename, filename);
    assert.deepEqual([made.object, made.bytes, made.status], ["file", CONTENT.length, "processed"]);
    assert.deepEqual({ ...(await client.files.retrieve(made.id)) }, { ...made });
    assert.deepEqual(await bytesOf(await client.files.content(made.id)), CONTENT);
  }
});

test("a list gives every file once with others in between, and with a purpose", async () => {
  const made = { batch: [], vision: [] };
  for (let number = 0; number < 10; number += 1) {
    const purpose = number % 2 ? "vision" : "batch";
    const file = await toFile(CONTENT, `${number}.txt`);
    made[purpose].unshift((await client.files.create({ file, purpose })).id);
    await other.files.create({ file: await toFile(CONTENT, `${number}.txt`), purpose: "batch" });
  }
  const whole = made.vision.flatMap((id, at) => [id, made.batch[at]]);
  for (const [options, expected, requests] of [
    [{ limit: 3 }, whole, 4],
    [{ limit: 5 }, whole, 2],
    [{}, whole, 1],
    [{ limit: 4, order: "asc" }, whole.toReversed?.() ?? [...whole].reverse(), 3],
    [{ limit: 2, purpose: "batch" }, made.batch, 3],
    [{ limit: 2, purpose: "evals" }, [], 1],
  ]) {
    const counter = counting();
    const found = await collect(make(FILES_KEY, { fetch: counter.fetch }).files.list(options));
    assert.deepEqual(found.map((file) => file.id), expected);
    assert.equal(counter.requests, requests, JSON.stringify(options));
  }
});

test("a file says when it expires, and nobody waits for it", async () => {
  const file = await toFile(CONTENT, "a.txt");
  const after = { anchor: "created_at", seconds: 3600 };
  const made = await client.files.create({ file, purpose: "user_data", expires_after: after });
  assert.ok(Math.abs(made.expires_at - made.created_at - 3600) <= 5);
  assert.equal((await client.files.waitForProcessing(made.id, { maxWait: 1000 })).id, made.id);
  const soon = { ...after, seconds: 3599 };
  await assert.rejects(client.files.create({ file, purpose: "user_data", expires_after: soon }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
    assert.equal(error.param, "expires_after[seconds]");
    return true;
  });
});

test("a deleted file and one of another tenant are not there", async () => {
  const made = await client.files.create({ file: await toFile(CONTENT, "a.txt"), purpose: "user_data" });
  assert.equal((await client.files.delete(made.id)).deleted, true);
  const theirs = await other.files.create({ file: await toFile(CONTENT, "a.txt"), purpose: "user_data" });
  for (const id of [made.id, theirs.id, "file-abc123", "a/../b?x"]) {
    for (const ask of ["delete", "retrieve", "content"]) {
      await assert.rejects(client.files[ask](id), (error) => {
        assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
        assert.equal(error.type, "invalid_request_error");
        assert.ok(error.requestID);
        return true;
      });
    }
  }
});

test("a file that is too large is refused while it is sent", async () => {
  const file = await toFile(Buffer.alloc(MAX_BYTES + (4 << 20)), "large.bin");
  await assert.rejects(client.files.create({ file, purpose: "user_data" }), (error) => {
    assert.equal(error.status, 413, `${error}`);
    assert.match(error.message, new RegExp(`${MAX_BYTES}`));
    return true;
  });
  assert.deepEqual(await collect(client.files.list()), []);
});
