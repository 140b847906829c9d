// Files into the sandbox and out of it, seen by the official JavaScript SDK.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI, { toFile } from "openai";

import { KEY, PATIENCE, V1_URL } from "../conversations.js";
import { OTHER_KEY, bytesOf } from "../files.js";

const make = (apiKey) => new OpenAI({ baseURL: V1_URL, apiKey, ...PATIENCE });
// Not the tenant of the other suite, which cleans up after itself while this one runs.
const client = make(KEY);
const other = make(OTHER_KEY);
// What scenario `code-report` reads: two files of one name.
const TABLES = ["name,value\na,10\nb,20\n", "name,value\nc,30\nd,40\n"];

for (const model of ["code-report", "responses--code-report"]) {
  for (const streamed of [false, true]) {
    test(`${model}: tables go in and files come out${streamed ? ", streamed" : ""}`, async () => {
      const parts = [];
      for (const table of TABLES) {
        const file = await toFile(Buffer.from(table), "data.csv", { type: "text/csv" });
        parts.push({ type: "input_file", file_id: (await client.files.create({ file, purpose: "user_data" })).id });
      }
      const asked = {
        model,
        tools: [{ type: "code_interpreter", container: { type: "auto" } }],
        input: [{ role: "user", content: [...parts, { type: "input_text", text: "Make a report." }] }],
      };
      const response = streamed
        ? await client.responses.stream(asked).finalResponse()
        : await client.responses.create(asked);
      const { annotations } = response.output.at(-1).content[0];
      assert.deepEqual(annotations.map((one) => one.filename), ["chart.png", "report.xlsx"]);
      const files = client.containers.files;
      for (const { file_id: id, container_id, filename } of annotations) {
        const file = await files.retrieve(id, { container_id });
        assert.deepEqual([file.object, file.path, file.source], ["container.file", `/mnt/data/${filename}`, "assistant"]);
        const bytes = await bytesOf(await files.content.retrieve(id, { container_id }));
        assert.equal(bytes.length, file.bytes);
        const [begin, inside] = filename === "chart.png" ? ["\x89PNG", "IHDR"] : ["PK", "<v>40</v>"];
        assert.ok(bytes.toString("latin1").startsWith(begin) && bytes.includes(inside), filename);
        await assert.rejects(other.containers.files.content.retrieve(id, { container_id }), OpenAI.NotFoundError);
        await files.delete(id, { container_id });
        await assert.rejects(files.retrieve(id, { container_id }), OpenAI.NotFoundError);
      }
      for (const { file_id } of parts) await client.files.delete(file_id);
    });
  }
}
