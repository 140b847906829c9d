-- What callers uploaded and what code made. A row stands before its blob does and goes after it; these writes do not
-- raise `snapshot_state.revision`, for nothing in the snapshot depends on them.
CREATE TABLE files (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    -- pending: its bytes are on their way; stored; deleted: its blob may still be there.
    state TEXT NOT NULL,
    filename TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    purpose TEXT NOT NULL,
    -- Of a pending file: what it has taken of its workspace's quota so far.
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    -- When the sweep may take it. pending: a grace after it was last heard of; stored: when it expires, the largest
    -- number there is meaning never; deleted: at once, or when whoever works on it has had their time.
    sweep_at_ms BIGINT NOT NULL
);

-- Pages of a list, with and without a purpose. `sweep_at_ms` stands last so that expired files are passed over in the
-- index.
CREATE INDEX files_by_owner ON files (user_id, workspace_id, created_at_ms, id, sweep_at_ms) WHERE state = 'stored';
CREATE INDEX files_by_purpose ON files (user_id, workspace_id, purpose, created_at_ms, id, sweep_at_ms)
    WHERE state = 'stored';

-- What the sweep takes: first out of sight, then away.
CREATE INDEX files_to_retire ON files (sweep_at_ms, id) WHERE state <> 'deleted' AND sweep_at_ms < 9223372036854775807;
CREATE INDEX files_to_remove ON files (sweep_at_ms, id) WHERE state = 'deleted';
-- What has expired in a workspace that has reached its quota.
CREATE INDEX files_of_workspace_to_retire ON files (workspace_id, sweep_at_ms)
    WHERE state <> 'deleted' AND sweep_at_ms < 9223372036854775807;

-- What a workspace's pending and stored files add up to, changed in the transactions that change them.
CREATE TABLE file_usage (
    workspace_id TEXT NOT NULL PRIMARY KEY,
    size_bytes BIGINT NOT NULL,
    files BIGINT NOT NULL
);

-- One row: which store these files are in, by the mark that stands in it too, and how far the look for blobs that no row
-- knows has come. A round begins with shard 0; whoever takes the next shard looks through it.
CREATE TABLE file_store (
    id BIGINT NOT NULL PRIMARY KEY,
    mark TEXT NOT NULL,
    round_at_ms BIGINT NOT NULL,
    next_shard BIGINT NOT NULL
);
