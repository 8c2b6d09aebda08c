ALTER TABLE tokens ADD COLUMN last_used INTEGER; -- milliseconds since 1970, cut to the minute; NULL: never
