-- The response object as its caller got it, for who asks for it by its id: all of it but `output`, as JSON; and those items
-- that are kept in another form than they were told in, as a JSON object by their place in `output`. Null in answers that
-- were kept before, or that are too large.
ALTER TABLE stored_responses ADD COLUMN envelope TEXT;
ALTER TABLE stored_responses ADD COLUMN shown TEXT;
