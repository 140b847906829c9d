-- Where files stood in lists whose rows are gone: for a day, so that whoever reads a list page by page can go on behind a
-- file that was deleted, or expired, meanwhile.
CREATE TABLE file_places (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    forget_at_ms BIGINT NOT NULL
);

CREATE INDEX file_places_to_forget ON file_places (forget_at_ms);
