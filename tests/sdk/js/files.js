// What the files suites share: two tenants of the stack, and content that text handling would spoil.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";

const { OTARI_FILES_KEY, OTARI_OTHER_KEY, OTARI_FILES_MAX_BYTES } = process.env;
assert.ok(OTARI_FILES_KEY && OTARI_OTHER_KEY, "set OTARI_FILES_KEY and OTARI_OTHER_KEY, keys of two users");

// The suite's own tenant, so that its lists hold its files alone; and another one in the same workspace.
export const FILES_KEY = OTARI_FILES_KEY;
export const OTHER_KEY = OTARI_OTHER_KEY;
// Of the stack: `files.max_bytes`.
export const MAX_BYTES = Number(OTARI_FILES_MAX_BYTES);

// Every value of a byte, line ends in every order, and what looks like a boundary.
export const CONTENT = Buffer.concat([
  Buffer.from(Array.from({ length: 1024 }, (_, at) => at % 256)),
  Buffer.from("\r\n\n\r\r\n--\r\n--boundary--\r\n"),
]);

export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** The bytes of a download. */
export const bytesOf = async (response) => Buffer.from(await response.arrayBuffer());

/** All of an async iterable, and no more than there can be. */
export async function collect(iterable, most = 100) {
  const all = [];
  for await (const one of iterable) {
    all.push(one);
    assert.ok(all.length <= most, "the list does not end");
  }
  return all;
}

/** A `fetch` that counts. */
export function counting() {
  const counter = { requests: 0 };
  counter.fetch = (...request) => {
    counter.requests += 1;
    return fetch(...request);
  };
  return counter;
}
