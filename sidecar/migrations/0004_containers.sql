-- Sandbox sessions kept between requests: whose they are, where they are, and until when. `backend` is the address of the
-- contract-v1 server that has the session, or a name that only the process knows whose own sandbox it is.
CREATE TABLE containers (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    backend TEXT NOT NULL,
    session_id TEXT NOT NULL,
    idle_ms BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    used_at_ms BIGINT NOT NULL,
    -- When it ends if nobody goes on with it.
    expires_at_ms BIGINT NOT NULL,
    -- When it ends whoever does.
    ends_at_ms BIGINT NOT NULL,
    -- Until when a request, or a sweep, has it for itself; past or 0 if none does.
    claimed_until_ms BIGINT NOT NULL
);

CREATE INDEX containers_by_expiry ON containers (expires_at_ms);
CREATE INDEX containers_by_use ON containers (backend, used_at_ms);
