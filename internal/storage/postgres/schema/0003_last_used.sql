-- Processes of version 2 keep working, and do not record uses.
ALTER TABLE tokens ADD COLUMN last_used bigint; -- milliseconds since 1970, cut to the minute; NULL: never
