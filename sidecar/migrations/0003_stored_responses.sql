-- Answers on the Responses wire whose callers did not say `store: false`: what a later request may go on from by
-- `previous_response_id`, or take up item by item. `input` and `output` are JSON as it was sent.
CREATE TABLE stored_responses (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    previous_id TEXT,
    input TEXT NOT NULL,
    output TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);

CREATE INDEX stored_responses_by_age ON stored_responses (workspace_id, created_at_ms);
CREATE INDEX stored_responses_by_expiry ON stored_responses (expires_at_ms);

-- The items of an answer whose ids are ours alone.
CREATE TABLE stored_items (
    id TEXT NOT NULL PRIMARY KEY,
    response_id TEXT NOT NULL REFERENCES stored_responses (id) ON DELETE CASCADE
);

CREATE INDEX stored_items_of_response ON stored_items (response_id);

-- What each workspace has, in bytes, so that no answer needs a sum.
CREATE TABLE stored_response_usage (
    workspace_id TEXT NOT NULL PRIMARY KEY,
    size_bytes BIGINT NOT NULL
);
