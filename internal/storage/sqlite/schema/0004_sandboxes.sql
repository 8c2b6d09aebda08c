CREATE TABLE sandboxes (
	store   TEXT    NOT NULL PRIMARY KEY, -- the store that expires
	hash    BLOB    NOT NULL UNIQUE,      -- SHA-256 of its credential
	seed    TEXT    NOT NULL,             -- name of the plants that it starts with
	created INTEGER NOT NULL,             -- milliseconds since 1970, as are the two below
	expires INTEGER NOT NULL,
	used    INTEGER NOT NULL,             -- about the time of its last request
	plants  INTEGER NOT NULL,             -- about how many it has
	bytes   INTEGER NOT NULL              -- about the length of their names and tags
) WITHOUT ROWID, STRICT;
