CREATE TABLE plants (
	store TEXT    NOT NULL, -- the store that the plant belongs to
	id    INTEGER NOT NULL, -- chosen by the client; every int64
	name  TEXT    NOT NULL, -- as sent, character for character
	tag   TEXT,             -- as sent; NULL when none was
	PRIMARY KEY (store, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE tokens (
	name    TEXT    NOT NULL PRIMARY KEY, -- chosen by the operator
	hash    BLOB    NOT NULL UNIQUE,      -- SHA-256 of the credential, which is nowhere stored
	store   TEXT    NOT NULL,             -- the one store that the token opens
	scopes  TEXT    NOT NULL,             -- scope names, separated by spaces
	tail    TEXT    NOT NULL,             -- last four characters of the credential
	created INTEGER NOT NULL,             -- milliseconds since 1970, as are the two below
	expires INTEGER,                      -- NULL: never
	revoked INTEGER                       -- NULL: not revoked
) WITHOUT ROWID, STRICT;

PRAGMA application_id = 0x504C4E54; -- 'PLNT': so that no other program's file is taken for ours
