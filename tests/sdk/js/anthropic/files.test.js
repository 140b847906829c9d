// The Files API, seen by the official TypeScript SDK; and files that OpenAI's SDK reads too.

import assert from "node:assert/strict";
import { createReadStream, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, test } from "node:test";

import Anthropic, { toFile } from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { PATIENCE, ROOT_URL, V1_URL } from "../conversations.js";
import { CONTENT, FILES_KEY, MAX_BYTES, OTHER_KEY, bytesOf, collect, counting, sha256 } from "../files.js";

const make = (apiKey, options = {}) => new Anthropic({ baseURL: ROOT_URL, apiKey, ...PATIENCE, ...options });
const client = make(FILES_KEY);
const other = make(OTHER_KEY);
const namespaces = (of) => ({ general: of.files, beta: of.beta.files });

afterEach(async () => {
  for (const one of [client, other]) {
    for (const file of await collect(one.files.list())) await one.files.delete(file.id);
  }
});

for (const [name, files] of Object.entries(namespaces(client))) {
  test(`${name}: every form of an upload is kept byte for byte`, async () => {
    const path = join(mkdtempSync(join(tmpdir(), "files-")), "a b é.csv");
    writeFileSync(path, CONTENT);
    const forms = [
      [createReadStream(path), "a b é.csv", "text/csv"],
      [new File([CONTENT], "测试.md", { type: "text/markdown" }), "测试.md", "text/markdown"],
      [await toFile(CONTENT, "b.txt", { type: "text/plain" }), "b.txt", "text/plain"],
      [await toFile(new Blob([CONTENT]), "c.bin"), "c.bin", "application/octet-stream"],
      [await toFile(createReadStream(path), "d.csv"), "d.csv", "text/csv"],
      [new Response(CONTENT), null, null],
    ];
    for (const [file, filename, mimeType] of forms) {
      const made = await files.upload({ file });
      if (filename) assert.deepEqual([made.filename, made.mime_type], [filename, mimeType]);
      assert.deepEqual([made.type, made.size_bytes, made.downloadable], ["file", CONTENT.length, true]);
      const read = await files.retrieveMetadata(made.id);
      assert.deepEqual({ ...read }, { ...made });
      assert.deepEqual(await bytesOf(await files.download(made.id)), CONTENT);
    }
  });

  test(`${name}: a list gives every file once with others in between`, async () => {
    const expected = [];
    for (let number = 0; number < 7; number += 1) {
      expected.unshift((await files.upload({ file: await toFile(CONTENT, `${number}.txt`) })).id);
      await other.files.upload({ file: await toFile(CONTENT, `${number}.txt`) });
    }
    for (const [limit, requests] of [[2, 4], [3, 3], [7, 1], [100, 1]]) {
      const counter = counting();
      const counted = namespaces(make(FILES_KEY, { fetch: counter.fetch }))[name];
      const found = await collect(counted.list({ limit }));
      assert.deepEqual(found.map((file) => file.id), expected);
      assert.equal(counter.requests, requests);
    }
    const some = await collect(files.list({ ids: [expected[5], "file_of_nobody", expected[2]] }));
    assert.deepEqual(some.map((file) => file.id).sort(), [expected[5], expected[2]].sort());
  });

  test(`${name}: a file says when it expires`, async () => {
    const file = await toFile(CONTENT, "a.txt");
    const made = await files.upload({ file, expires_in_seconds: 3600 });
    const life = Date.parse(made.expires_at) - Date.parse(made.created_at);
    assert.ok(Math.abs(life - 3_600_000) < 5000, `${life}`);
    await assert.rejects(files.upload({ file, expires_in_seconds: 3599 }), Anthropic.BadRequestError);
  });

  test(`${name}: a deleted file and one of another tenant are not there`, async () => {
    const made = await files.upload({ file: await toFile(CONTENT, "a.txt") });
    const deleted = await files.delete(made.id);
    assert.deepEqual([deleted.id, deleted.type], [made.id, "file_deleted"]);
    const theirs = await other.files.upload({ file: await toFile(CONTENT, "a.txt") });
    for (const id of [made.id, theirs.id, "file_of_nobody", "a/../b?x"]) {
      for (const ask of ["delete", "retrieveMetadata", "download"]) {
        await assert.rejects(files[ask](id), (error) => {
          assert.ok(error instanceof Anthropic.NotFoundError, `${error}`);
          assert.equal(error.error.error.type, "not_found_error");
          assert.ok(error.requestID && error.requestID === error.error.request_id);
          return true;
        });
      }
    }
  });

  test(`${name}: a file that is too large is refused while it is sent`, async () => {
    const file = await toFile(Buffer.alloc(MAX_BYTES + (4 << 20)), "large.bin");
    await assert.rejects(files.upload({ file }), (error) => {
      assert.equal(error.status, 413, `${error}`);
      assert.equal(error.error.error.type, "request_too_large");
      return true;
    });
    assert.deepEqual(await collect(files.list()), []);
  });
}

test("a file is one file for both vendors' SDKs", async () => {
  const openai = new OpenAI({ baseURL: V1_URL, apiKey: FILES_KEY, ...PATIENCE });
  const large = Buffer.concat(Array.from({ length: 4000 }, () => CONTENT));
  const ours = await client.files.upload({ file: await toFile(large, "a.bin") });
  const theirs = await openai.files.create({ file: await toFile(large, "b.bin"), purpose: "assistants" });
  const expected = [theirs.id, ours.id];
  assert.deepEqual((await collect(client.files.list({ limit: 1 }))).map((file) => file.id), expected);
  assert.deepEqual((await collect(openai.files.list({ limit: 1 }))).map((file) => file.id), expected);
  for (const id of expected) {
    assert.equal((await client.files.retrieveMetadata(id)).size_bytes, large.length);
    assert.equal((await openai.files.retrieve(id)).bytes, large.length);
    assert.equal(sha256(await bytesOf(await client.files.download(id))), sha256(large));
    assert.equal(sha256(await bytesOf(await openai.files.content(id))), sha256(large));
  }
  assert.equal((await openai.files.delete(ours.id)).deleted, true);
  assert.equal((await client.files.delete(theirs.id)).type, "file_deleted");
});
