//! `docs/configuration.md`, written from the table of keys.

use super::keys;

const HEAD: &str = "# Configuration

<!-- Written by `OTARI_WRITE_DOCS=1 cargo test -p sidecar configuration_page`; a test fails when it is out of date. -->

One YAML file drives the sidecar, the filter and Envoy. `otari-sidecar check-config --config otari.yaml` lists everything
that is wrong with one. Every scalar key can also be set by the environment variable beside it, which then wins.
Unknown keys, bad values and contradictions stop the start.

| key | environment | value | default | meaning |
|---|---|---|---|---|
";

const TAIL: &str = "
## Tables

| key | value | meaning |
|---|---|---|
| `providers.NAME.type` | anthropic, openai or openai_compatible | What it is. Only `anthropic` runs dated code-execution tools itself, only `openai` the code interpreter. |
| `providers.NAME.base_url` | URL | Where it is; a `/v1` at its end stands for the API's root. Needed for `openai_compatible`. |
| `providers.NAME.api_key_env` | name of an environment variable | Your credential, which Envoy adds when the client brings none of its own. |
| `providers.NAME.wires` | list of messages, chat_completions, responses | What it speaks. Default by type. |
| `models[].match` | model name, `*` stands for any text | The first rule that matches wins. `provider:model` and `provider/model` work without a rule. |
| `models[].provider` | name of a provider | Who serves it. |
| `models[].upstream_model` | text | The name the provider knows it by. |
| `models[].wires` | as above | What this model speaks, if not all its provider does. |
| `models[].inputs` | list of text, image, pdf | What this model takes; files of ours that a request names are given to it so. Default by the provider's type: all for `anthropic` and `openai`, text alone for `openai_compatible`. |
| `roots` | list of path prefixes, default `[/v1, /api/v1]` | Where the API stands. |
| `policy.static_pins.WORKSPACE` | auto, otari or provider | Pins that need no database. |
| `files.options.NAME` | text | An option of the store, such as `endpoint`, `region` or `allow_http` (see files.md). |
| `files.options_env.NAME` | name of an environment variable | The same for secrets, such as `secret_access_key`. What the vendor's own tools take from `AWS_…`, `GOOGLE_…` and `AZURE_…` needs no line. |
| `sandbox.allowed_images` | list of names | Session images a workspace's policy may choose. |

## Secrets

| environment | meaning |
|---|---|
| `OTARI_BOOTSTRAP_KEY` | The first key, of user `default` in workspace `default`. Another value takes the place of the one before; leaving it out revokes nothing (`keys revoke key_bootstrap_given` does). Unset: one is made once, in `data_dir/bootstrap-key`. |
| `OTARI_MASTER_KEY` | Opens the admin routes (`/v1/workspaces…`) and `GET /otari/metrics`, to which Prometheus brings it as `authorization: {credentials_file: …}`. Unset: they are off. |
";

/// The whole page.
pub fn markdown() -> String {
    let rows: Vec<_> = keys::ALL.iter().map(row).collect();
    [HEAD, &rows.concat(), TAIL].concat()
}

fn row(key: &keys::Key) -> String {
    let default = key.default.map_or_else(|| "unset".to_owned(), |text| format!("`{text}`"));
    let (path, name, wanted, doc) = (key.path, key.env_name(), key.kind.wanted(), key.doc);
    format!("| `{path}` | `{name}` | {wanted} | {default} | {doc} |\n")
}
