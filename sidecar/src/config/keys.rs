//! Every scalar key of the config file: its name, kind, default and meaning, each once.
//!
//! INVARIANT: `docs/configuration.md` is written from this table, and nothing is read that is not in it.

/// One scalar key.
#[derive(Debug)]
pub struct Key {
    /// Dotted path in the file; `OTARI_` and its upper-case form is the environment's name for it.
    pub path: &'static str,
    /// What a value may be.
    pub kind: Kind,
    /// The default as one would write it; `None` means unset (`null`).
    pub default: Option<&'static str>,
    /// What it does, for a person.
    pub doc: &'static str,
}

/// What the value of a key may be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text that is not blank.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Integer(u64, u64),
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// An IP address and a port.
    Address,
    /// `unix:` and a path, or an IP address and a port.
    Listener,
    /// An absolute `http://` or `https://` URL.
    Url,
    /// Such a URL, or `unix:` and a path.
    Server,
    /// The name of an environment variable that holds a secret. Its value is never shown: people paste the secret itself.
    EnvName,
    /// The name of an HTTP header.
    HeaderName,
    /// The path of a file; taken from the working directory when it is relative.
    Path,
}

impl Key {
    /// The environment variable that overrides this key.
    pub fn env_name(&self) -> String {
        format!("OTARI_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }
}

impl Kind {
    /// What to write, as the end of the sentence "write …".
    pub fn wanted(self) -> String {
        match self {
            Self::Text => "some text".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Address => "an IP address and a port, such as 127.0.0.1:8080".to_owned(),
            Self::Listener => "unix:/path/to.sock, or an IP address and a port, such as 127.0.0.1:8081".to_owned(),
            Self::Server => {
                "an http:// or https:// URL without user, query or fragment, or unix:/path/to.sock".to_owned()
            }
            Self::Url => "an http:// or https:// URL without user, query or fragment".to_owned(),
            Self::EnvName => "the name of an environment variable (A-Z, 0-9 and _) that holds the secret".to_owned(),
            Self::Path => "the path of a file".to_owned(),
            Self::HeaderName => "the name of an HTTP header, in lower case".to_owned(),
        }
    }
}

macro_rules! keys {
    ($($name:ident: $path:literal, $kind:expr, $default:expr, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: Key = Key { path: $path, kind: $kind, default: $default, doc: $doc };)*
        /// All of them, in the order of the documentation.
        pub const ALL: &[Key] = &[$($name),*];
    };
}

const HOUR_MS: u64 = 3_600_000;
const BYTES_MAX: u64 = 1 << 40;

keys! {
    LISTEN: "listen", Kind::Address, Some("127.0.0.1:8080"),
        "Envoy's public listener. Everything else stays on loopback or Unix sockets.";
    DATA_DIR: "data_dir", Kind::Path, Some("./.otari"),
        "Folder of the database, blobs, sockets, the rendered Envoy configuration, `bootstrap-key` and `hop-secret` (both mode 0600). Relative to the working directory.";
    DATABASE_URL: "database_url", Kind::Text, Some("sqlite"),
        "`sqlite` keeps `otari.db` in `data_dir`; `postgres://user:password@host:5432/name` is a database that several sidecars share. TLS: `?sslmode=verify-full`. Better set by the environment than written in the file.";
    SIDECAR_LISTEN: "sidecar_listen", Kind::Listener, None,
        "Where the sidecar listens for Envoy. Unset: `sidecar.sock` in `data_dir`.";
    MODEL_URL: "model_url", Kind::Url, None,
        "In an existing mesh: the address model calls go to. Set, providers and their credentials stay the mesh's own.";
    HOP_SECRET_ENV: "hop_secret_env", Kind::EnvName, None,
        "Environment variable with the secret between Envoy and sidecar. Unset: made once and kept in `data_dir/hop-secret`.";
    MAX_BODY_BYTES: "max_body_bytes", Kind::Integer(1024, 1 << 30), Some("67108864"),
        "Longest request body on the model routes, in filter and sidecar alike. Longer ones get a 413.";
    CODE_EXECUTION_EXECUTOR: "code_execution_executor", Kind::Choice(&["auto", "otari", "provider"]), Some("auto"),
        "Who runs declared code when neither a workspace's pin nor a header says so.";
    EXPLAIN: "explain", Kind::Bool, Some("false"),
        "Opens `POST /otari/filter/explain`, where the filter tells anybody what it would decide. `POST /otari/explain`, which the sidecar answers, needs a key; with `identity.mode: none` it needs this.";
    IDENTITY_MODE: "identity.mode", Kind::Choice(&["otari_key", "header", "none"]), Some("otari_key"),
        "How user and workspace are known: an otari key, headers written by the mesh's own authentication, or one tenant (loopback only).";
    IDENTITY_USER_HEADER: "identity.user_header", Kind::HeaderName, None,
        "With `header`: the header that names the user.";
    IDENTITY_WORKSPACE_HEADER: "identity.workspace_header", Kind::HeaderName, None,
        "With `header`: the header that names the workspace.";
    POLICY_POLL_MS: "policy.poll_ms", Kind::Integer(50, 60_000), Some("500"),
        "How often the filter asks for the policy snapshot, and the sidecar looks for changes made by others.";
    POLICY_MAX_AGE_MS: "policy.max_age_ms", Kind::Integer(100, HOUR_MS), Some("10000"),
        "A snapshot not confirmed for this long no longer counts: code requests then go to the sidecar, or are refused.";
    SANDBOX_BACKEND: "sandbox.backend", Kind::Choice(&["embedded", "http", "none"]), Some("embedded"),
        "Where code runs: processes of this host, a contract-v1 server, or nowhere.";
    SANDBOX_URL: "sandbox.url", Kind::Server, None,
        "With `http`: base URL of the contract-v1 server, or the Unix socket that it listens on.";
    SANDBOX_TOKEN_ENV: "sandbox.token_env", Kind::EnvName, None,
        "With `http`: environment variable with the bearer token for that server.";
    SANDBOX_CONNECT_TIMEOUT_MS: "sandbox.connect_timeout_ms", Kind::Integer(10, 60_000), Some("5000"),
        "With `http`: longest wait for a connection.";
    SANDBOX_CALL_TIMEOUT_MS: "sandbox.call_timeout_ms", Kind::Integer(10, HOUR_MS), Some("30000"),
        "With `http`: longest time of a call that runs no code.";
    SANDBOX_EXECUTE_GRACE_MS: "sandbox.execute_grace_ms", Kind::Integer(0, HOUR_MS), Some("10000"),
        "With `http`: what an execution gets on top of the time granted to the code, for the server to answer in.";
    SANDBOX_FILE_TIMEOUT_MS: "sandbox.file_timeout_ms", Kind::Integer(10, HOUR_MS), Some("300000"),
        "With `http`: longest time of one file on its way in or out.";
    SANDBOX_MAX_ANSWER_BYTES: "sandbox.max_answer_bytes", Kind::Integer(1024, 1 << 30), Some("16777216"),
        "With `http`: longest answer that is read. Two full streams of 1 MiB take up to 12 MiB, when JSON has to escape them.";
    SANDBOX_SERVE: "sandbox.serve", Kind::Listener, None,
        "With `embedded`: where the sandbox is served to other gateways by contract v1, beside `serve` or alone by `otari-sidecar sandboxd`. Unset: nowhere.";
    SANDBOX_SERVE_TOKEN_ENV: "sandbox.serve_token_env", Kind::EnvName, None,
        "Environment variable with the bearer token that callers of `sandbox.serve` must bring, at least 16 characters. A TCP address needs one; a Unix socket is open to the sidecar's own user alone.";
    SANDBOX_ADVERTISE_URL: "sandbox.advertise_url", Kind::Url, None,
        "The address at which the sidecar's other replicas reach `sandbox.serve`, each with the token that they share, which every call to it carries: an `https://` address, or one in a private network. With it any replica goes on with a container of this one's; without, only this one does.";
    SANDBOX_BWRAP: "sandbox.bwrap", Kind::Path, Some("/usr/bin/bwrap"),
        "With `embedded`: bubblewrap, version 0.8 or newer.";
    SANDBOX_PYTHON: "sandbox.python", Kind::Path, Some("/usr/bin/python3"),
        "With `embedded`: the interpreter; its prefix is mounted read-only. `make run` names the virtual environment that it prepared, unless this is set.";
    SANDBOX_RUN_AS: "sandbox.run_as", Kind::Text, Some("65534:65534"),
        "With `embedded`, when the sidecar itself is root: who sandboxes run as, `UID:GID` or a user's name. Never root.";
    SANDBOX_MAX_SESSIONS: "sandbox.max_sessions", Kind::Integer(1, 4096), Some("32"),
        "With `embedded`: sessions alive at once; more are told to come back later.";
    SANDBOX_WARM_SESSIONS: "sandbox.warm_sessions", Kind::Integer(0, 256), Some("2"),
        "With `embedded`: idle sessions kept ready, each isolated like any other, with numpy, pandas and pyplot imported where the interpreter has them: about 70 MiB each. They count as sessions only while there is room, and give way. 0: none.";
    SANDBOX_MAX_SESSIONS_PER_WORKSPACE: "sandbox.max_sessions_per_workspace", Kind::Integer(1, 4096), None,
        "Sessions alive at once of one workspace, so that none takes them all. Unset: a quarter of `sandbox.max_sessions`; with `identity.mode: none`, which knows one workspace, all.";
    SANDBOX_SESSION_IDLE_S: "sandbox.session_idle_s", Kind::Integer(1, 604_800), Some("1200"),
        "With `embedded`: a session that was not used for so long is ended. Whoever opens one can only ask for less.";
    SANDBOX_SESSION_LIFETIME_S: "sandbox.session_lifetime_s", Kind::Integer(1, 604_800), Some("7200"),
        "With `embedded`: a session is ended so long after it was opened, or with the call that runs then. Likewise.";
    SANDBOX_EXEC_TIMEOUT_S: "sandbox.exec_timeout_s", Kind::Integer(1, 60), Some("60"),
        "Wall clock one execution may take. A workspace's policy can only lower it.";
    SANDBOX_MAX_CODE_BYTES: "sandbox.max_code_bytes", Kind::Integer(1024, 1 << 26), Some("200000"),
        "With `embedded`: longest code or command of one execution, and longest text of an edit. A command has at most 131071 bytes whatever stands here.";
    SANDBOX_MAX_OUTPUT_BYTES: "sandbox.max_output_bytes", Kind::Integer(1024, 1 << 26), Some("1048576"),
        "With `embedded`: what is kept of each output stream of one execution.";
    SANDBOX_MEMORY_BYTES: "sandbox.memory_bytes", Kind::Integer(1 << 26, BYTES_MAX), Some("1073741824"),
        "With `embedded`: resident memory of a session's processes together.";
    SANDBOX_ADDRESS_SPACE_BYTES: "sandbox.address_space_bytes", Kind::Integer(1 << 26, BYTES_MAX), Some("4294967296"),
        "With `embedded`: address space of one process.";
    SANDBOX_MAX_TASKS: "sandbox.max_tasks", Kind::Integer(1, 65_536), Some("64"),
        "With `embedded`: processes and threads of a session.";
    SANDBOX_MAX_OPEN_FILES: "sandbox.max_open_files", Kind::Integer(16, 1 << 20), Some("256"),
        "With `embedded`: open files of one process, and sockets of a session.";
    SANDBOX_MAX_FILE_BYTES: "sandbox.max_file_bytes", Kind::Integer(1024, BYTES_MAX), Some("104857600"),
        "With `embedded`: size of one file.";
    SANDBOX_WORKSPACE_BYTES: "sandbox.workspace_bytes", Kind::Integer(1024, BYTES_MAX), Some("536870912"),
        "With `embedded`: disk used by a session's workspace.";
    SANDBOX_WORKSPACE_ENTRIES: "sandbox.workspace_entries", Kind::Integer(1, 10_000_000), Some("10000"),
        "With `embedded`: files and folders in a session's workspace.";
    SANDBOX_TMP_BYTES: "sandbox.tmp_bytes", Kind::Integer(1 << 16, BYTES_MAX), Some("67108864"),
        "With `embedded`: size of each of `/tmp` and `/dev/shm`, kept in memory.";
    TOOL_LOOP_REQUEST_TIMEOUT_MS: "tool_loop.request_timeout_ms", Kind::Integer(1000, 24 * HOUR_MS), Some("3600000"),
        "Longest time of a request that runs code, all model calls and executions together.";
    TOOL_LOOP_KEEP_ALIVE_MS: "tool_loop.keep_alive_ms", Kind::Integer(100, HOUR_MS), Some("10000"),
        "Longest silence towards a streaming client.";
    TOOL_LOOP_MAX_FRAME_BYTES: "tool_loop.max_frame_bytes", Kind::Integer(1024, 1 << 30), Some("16777216"),
        "One event of a model's stream.";
    TOOL_LOOP_MAX_ANSWER_BYTES: "tool_loop.max_answer_bytes", Kind::Integer(1024, 1 << 30), Some("67108864"),
        "One answer of a model.";
    TOOL_LOOP_MAX_TRANSCRIPT_BYTES: "tool_loop.max_transcript_bytes", Kind::Integer(1024, 1 << 32), Some("134217728"),
        "History that a model is sent in one request, with all its own turns and results; past it the answer ends with an error.";
    TOOL_LOOP_MAX_ARGUMENT_BYTES: "tool_loop.max_argument_bytes", Kind::Integer(1024, 1 << 26), Some("1048576"),
        "The arguments of one code call.";
    TOOL_LOOP_MAX_CALLS_PER_TURN: "tool_loop.max_calls_per_turn", Kind::Integer(1, 1024), Some("16"),
        "Code calls in one answer of the model; more are refused, each with its own error result.";
    TOOL_LOOP_MAX_CONCURRENT_CALLS: "tool_loop.max_concurrent_calls", Kind::Integer(1, 64), Some("4"),
        "Shell commands that stand side by side in one answer of the model and run at the same time; 1 runs one after the other. Python and the editor always keep their order, a contract-v1 server runs one call of a session at a time, and the embedded sandbox no more than eight.";
    TOOL_LOOP_MAX_RESULT_BYTES: "tool_loop.max_result_bytes", Kind::Integer(256, 1 << 26), Some("1048576"),
        "Standard output and standard error each, towards model and client.";
    TOOL_LOOP_MAX_ERROR_BYTES: "tool_loop.max_error_bytes", Kind::Integer(256, 1 << 26), Some("262144"),
        "What a provider says about a failure.";
    TOOL_LOOP_FILE_TIMEOUT_MS: "tool_loop.file_timeout_ms", Kind::Integer(100, HOUR_MS), Some("120000"),
        "Longest time for all files of a request on their way into its session, and again for those of one call on their way out.";
    TOOL_LOOP_MAX_INLINE_IMAGE_BYTES: "tool_loop.max_inline_image_bytes", Kind::Integer(0, 1 << 30), Some("4194304"),
        "Images that an answer on the Responses wire shows in itself, together; further ones it shows by their address.";
    TOOL_LOOP_MAX_QUEUED_CHUNKS: "tool_loop.max_queued_chunks", Kind::Integer(1, 4096), Some("16"),
        "Pieces of an answer that wait for a slow client.";
    TOOL_LOOP_MEMORY_MAX_AGE_MS: "tool_loop.memory.max_age_ms", Kind::Integer(0, 24 * HOUR_MS), Some("900000"),
        "What ran in an answer that also calls the caller's functions, and that the caller's API cannot show, is remembered so long for the conversation's next request. 0: never.";
    TOOL_LOOP_MEMORY_MAX_ANSWERS: "tool_loop.memory.max_answers", Kind::Integer(1, 1 << 24), Some("8192"),
        "Answers remembered in all.";
    TOOL_LOOP_MEMORY_MAX_BYTES: "tool_loop.memory.max_bytes", Kind::Integer(1024, 1 << 40), Some("67108864"),
        "Code and results remembered in all.";
    TOOL_LOOP_MEMORY_MAX_WORKSPACE_ANSWERS: "tool_loop.memory.max_workspace_answers", Kind::Integer(1, 1 << 24), Some("512"),
        "Answers remembered of one workspace; past it, its oldest go.";
    TOOL_LOOP_MEMORY_MAX_WORKSPACE_BYTES: "tool_loop.memory.max_workspace_bytes", Kind::Integer(1024, 1 << 40), Some("8388608"),
        "Code and results remembered of one workspace; a larger answer is not remembered.";
    TOOL_LOOP_DRAIN_TIMEOUT_MS: "tool_loop.drain_timeout_ms", Kind::Integer(0, 60_000), Some("1000"),
        "How long the rest of a finished model answer is read, to keep its connection.";
    UPSTREAM_CONNECT_TIMEOUT_MS: "upstream.connect_timeout_ms", Kind::Integer(10, 60_000), Some("5000"),
        "Longest wait for a connection to a model.";
    UPSTREAM_HEADER_TIMEOUT_MS: "upstream.header_timeout_ms", Kind::Integer(100, 24 * HOUR_MS), Some("600000"),
        "From a request to the head of the model's answer. Generous: an answer that is not streamed is thought out first.";
    UPSTREAM_IDLE_TIMEOUT_MS: "upstream.idle_timeout_ms", Kind::Integer(100, HOUR_MS), Some("300000"),
        "Longest silence within a model's answer.";
    HTTP_MAX_CONNECTIONS: "http.max_connections", Kind::Integer(1, 65_536), Some("1024"),
        "Connections the sidecar serves at once; on more, only health and the policy snapshot are answered, and the rest is told to come back.";
    HTTP_MAX_BUFFERED_BYTES: "http.max_buffered_bytes", Kind::Integer(1024, BYTES_MAX), Some("1073741824"),
        "Bytes of request bodies held at once, by the sidecar over all connections and by each worker of Envoy while they are decided about; further requests are told to come back. At least `max_body_bytes`.";
    HTTP_MAX_BUFFERED_BYTES_PER_WORKSPACE: "http.max_buffered_bytes_per_workspace", Kind::Integer(1024, BYTES_MAX), None,
        "The sidecar's share of that for one workspace's requests, with the files that are put into them and the lists of files and the kept answers on their way out, so that none takes it all. Unset: half, and at least `max_body_bytes`; with `identity.mode: none`, all.";
    HTTP_HEADER_TIMEOUT_MS: "http.header_timeout_ms", Kind::Integer(10, 600_000), Some("30000"),
        "Longest time the head of a request may take to arrive at the sidecar.";
    HTTP_BODY_TIMEOUT_MS: "http.body_timeout_ms", Kind::Integer(10, HOUR_MS), Some("60000"),
        "Longest silence inside a request body.";
    HTTP_BODY_DEADLINE_MS: "http.body_deadline_ms", Kind::Integer(10, 24 * HOUR_MS), Some("300000"),
        "Longest time of a whole request body, however it trickles, in the filter and again at the sidecar. Uploads have `files.upload_deadline_ms`; Envoy ends any request at the longer of the two.";
    HTTP_STALL_TIMEOUT_MS: "http.stall_timeout_ms", Kind::Integer(100, HOUR_MS), Some("120000"),
        "Longest time in which nothing of an answer can be sent on because its client does not read; then the connection is ended. How long a model or code takes does not count.";
    HTTP_DRAIN_TIMEOUT_MS: "http.drain_timeout_ms", Kind::Integer(0, HOUR_MS), Some("30000"),
        "How long a stopping sidecar waits for open requests, and then again for sandboxes to be destroyed.";
    CONTAINERS_IDLE_SECONDS: "containers.idle_seconds", Kind::Integer(0, 604_800), Some("600"),
        "How long a sandbox session is kept for its caller's next request (`container`), counted from the end of the last one. A sandbox that keeps its sessions for less has the say. 0 keeps none.";
    CONTAINERS_LIFETIME_SECONDS: "containers.lifetime_seconds", Kind::Integer(1, 604_800), Some("3600"),
        "How long a session is kept in all, however it is used. Likewise.";
    CONTAINERS_BUSY_WAIT_SECONDS: "containers.busy_wait_seconds", Kind::Integer(0, 600), Some("10"),
        "How long a request waits for a container that another request is using, before it is answered 409.";
    CONTAINERS_MAX_KEPT: "containers.max_kept", Kind::Integer(1, 4096), None,
        "Sessions that this sidecar keeps at once; the one that stood unused longest gives way, as it does to a run that finds no room. Unset: `sandbox.max_sessions`.";
    CONTAINERS_MAX_KEPT_PER_WORKSPACE: "containers.max_kept_per_workspace", Kind::Integer(1, 4096), None,
        "Of them, those of one workspace. Unset: as many as it may have of `sandbox.max_sessions_per_workspace`, or `containers.max_kept` if that is less.";
    RESPONSES_RETENTION_HOURS: "responses.retention_hours", Kind::Integer(0, 876_000), Some("720"),
        "How long callers of the Responses wire can go on from an answer given here by its id (`previous_response_id`, `item_reference`), unless they send `store: false`. 0 keeps none.";
    RESPONSES_MAX_BYTES: "responses.max_bytes", Kind::Integer(1024, 1 << 30), Some("8388608"),
        "Longest answer, with the `input` it answers, that is kept; and the longest conversation that is put together from kept ones.";
    RESPONSES_WORKSPACE_MAX_BYTES: "responses.workspace_max_bytes", Kind::Integer(1024, BYTES_MAX), Some("268435456"),
        "Kept of one workspace's answers, together, each with 8 KiB for its row; the oldest make room.";
    FILES_ENABLED: "files.enabled", Kind::Bool, Some("true"),
        "Whether files are served and kept. Off, their routes answer 404.";
    FILES_URL: "files.url", Kind::Text, Some("file://files"),
        "Where blobs are kept: `file://FOLDER`, inside `data_dir` when it is relative; `s3://BUCKET/PREFIX` with any endpoint; `gs://BUCKET/PREFIX`; `az://CONTAINER/PREFIX` or `abfs://`; `sftp://USER@HOST:PORT/FOLDER`; or `memory://`, which forgets them when the sidecar ends. More in files.md.";
    FILES_MAX_BYTES: "files.max_bytes", Kind::Integer(1, BYTES_MAX), Some("536870912"),
        "Longest file.";
    FILES_UPLOAD_DEADLINE_MS: "files.upload_deadline_ms", Kind::Integer(1000, 24 * HOUR_MS), Some("7200000"),
        "Longest time of a whole upload, at Envoy and at the sidecar. Within it, silence of `http.body_timeout_ms` ends one.";
    FILES_WORKSPACE_MAX_BYTES: "files.workspace_max_bytes", Kind::Integer(1, BYTES_MAX << 10), Some("107374182400"),
        "Bytes of all files of a workspace together.";
    FILES_WORKSPACE_MAX_FILES: "files.workspace_max_files", Kind::Integer(1, 1 << 40), Some("1000000"),
        "Files of a workspace.";
    FILES_MAX_CONCURRENT_UPLOADS: "files.max_concurrent_uploads", Kind::Integer(1, 65_536), Some("64"),
        "Files written at once, of everybody together; further ones wait 5 seconds for their turn and are then told to come back. Each holds up to three parts in memory: of 1 MiB for a store in a folder, for one on a server of 5 MiB or a ten-thousandth of `files.max_bytes`.";
    FILES_MAX_CONCURRENT_UPLOADS_PER_WORKSPACE: "files.max_concurrent_uploads_per_workspace", Kind::Integer(1, 65_536), None,
        "Of these, those of one workspace, so that none has all turns. Unset: half; with `identity.mode: none`, all.";
    FILES_UPLOAD_MIN_BYTES_PER_S: "files.upload_min_bytes_per_s", Kind::Integer(0, 1 << 30), Some("1024"),
        "Slowest upload, on the whole and not counting the first `http.body_timeout_ms`: one that is slower is ended. 0 allows any.";
    FILES_OUTPUT_MAX_FILES: "files.output_max_files", Kind::Integer(0, 10_000), Some("20"),
        "Files kept of one execution.";
    FILES_OUTPUT_MAX_BYTES: "files.output_max_bytes", Kind::Integer(0, BYTES_MAX), Some("67108864"),
        "Bytes kept of one execution's files, together.";
    FILES_RETENTION_HOURS: "files.retention_hours", Kind::Integer(1, 876_000), None,
        "How long a file is kept that does not say so itself. Unset: until it is deleted.";
    FILES_SWEEP_INTERVAL_SEC: "files.sweep_interval_sec", Kind::Integer(0, 86_400), Some("3600"),
        "How often the sweep removes what is deleted, expired or was left half-way; 0 turns it off. What is deleted or expired is out of sight before that.";
    FILES_INLINE_MAX_BYTES: "files.inline_max_bytes", Kind::Integer(1024, 1 << 30), Some("25165824"),
        "Longest file whose bytes are put into a request to a model, as a picture or a PDF. A longer one gets the request a 413, or, where code runs here, lies in the working directory alone.";
    FILES_INLINE_MAX_REQUEST_BYTES: "files.inline_max_request_bytes", Kind::Integer(1024, 1 << 30), Some("50331648"),
        "The same for all files of one request together. In base64 they are a third longer, and count against `http.max_buffered_bytes` with the body.";
    FILES_TEXT_MAX_CHARS: "files.text_max_chars", Kind::Integer(1, 1 << 26), Some("262144"),
        "Longest text of one file that is put into a request to a model, characters. A longer one is treated like a file over `files.inline_max_bytes`.";
    FILES_EXTRACTION: "files.extraction", Kind::Bool, Some("true"),
        "Whether PDFs, Office files (docx, xlsx, pptx) and web pages are read as text for models that do not take them (`models[].inputs`). Off, such a model is told that the file could not be read.";
    FILES_EXTRACTION_TIMEOUT_MS: "files.extraction_timeout_ms", Kind::Integer(100, 600_000), Some("10000"),
        "Longest time of reading one document as text; all documents of a request get four times as much.";
    FILES_EXTRACTION_MAX_BYTES: "files.extraction_max_bytes", Kind::Integer(1024, 1 << 30), Some("33554432"),
        "Longest document that is read as text.";
    FILES_EXTRACTION_MAX_CONCURRENT: "files.extraction_max_concurrent", Kind::Integer(1, 1024), Some("2"),
        "Documents read as text at once, each by a process of up to 1 GiB.";
    FILES_EXTRACTION_MAX_CONCURRENT_PER_WORKSPACE: "files.extraction_max_concurrent_per_workspace", Kind::Integer(1, 1024), None,
        "Of these, those of one workspace. Unset: half; with `identity.mode: none`, all.";
    LOG_FORMAT: "log.format", Kind::Choice(&["text", "json"]), Some("text"),
        "Shape of the sidecar's log on standard error.";
    LOG_LEVEL: "log.level", Kind::Text, Some("info"),
        "What is logged: a level, or `tracing` directives such as `info,sidecar::sandbox=debug`.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn paths_and_environment_names_are_unique() {
        let paths: BTreeSet<_> = ALL.iter().map(|key| key.path).collect();
        let names: BTreeSet<_> = ALL.iter().map(super::Key::env_name).collect();
        assert_eq!((paths.len(), names.len()), (ALL.len(), ALL.len()));
    }
}
