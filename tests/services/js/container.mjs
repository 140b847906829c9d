// Makes a container in Azurite: node container.mjs ENDPOINT ACCOUNT KEY NAME. object_store has no call for it.
import { createHmac } from 'node:crypto';

const [endpoint, account, key, name] = process.argv.slice(2);
const url = new URL(`${endpoint}/${name}?restype=container`);
const date = new Date().toUTCString();
const version = '2021-12-02';
const headers = `x-ms-date:${date}\nx-ms-version:${version}\n`;
// Shared Key: the verb, eleven headers that are empty here, ours, and the resource; the path already names the account.
const resource = `/${account}${url.pathname}\nrestype:container`;
const signed = createHmac('sha256', Buffer.from(key, 'base64')).update(`PUT${'\n'.repeat(12)}${headers}${resource}`).digest('base64');
const answer = await fetch(url, {
  method: 'PUT',
  headers: { 'x-ms-date': date, 'x-ms-version': version, authorization: `SharedKey ${account}:${signed}` },
});
if (answer.status !== 201) {
  console.error(answer.status, await answer.text());
  process.exit(1);
}
