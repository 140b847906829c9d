-- One SQL for SQLite and PostgreSQL: ids and JSON are TEXT, times BIGINT milliseconds, flags BIGINT 0 or 1.
CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id),
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL UNIQUE,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    revoked_at_ms BIGINT
);

CREATE TABLE code_execution_policies (
    workspace_id TEXT NOT NULL PRIMARY KEY REFERENCES workspaces (id) ON DELETE CASCADE,
    enabled BIGINT NOT NULL,
    executor TEXT,
    max_iterations BIGINT,
    exec_timeout_s BIGINT,
    default_purpose_hint TEXT,
    image TEXT,
    tools TEXT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL
);

-- One row. `revision` rises with every write to the tables above, in the same transaction; `version` rises when what
-- the snapshot says has changed, and `content_sha256` is what it said.
CREATE TABLE snapshot_state (
    id BIGINT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    version BIGINT NOT NULL,
    content_sha256 TEXT NOT NULL
);
