-- plants has no foreign key, trigger or sequence: it must be possible to distribute it over servers
-- with SELECT create_distributed_table('plants', 'id').
CREATE TABLE plants (
	store text COLLATE "C" NOT NULL, -- the store of the plant
	id    bigint           NOT NULL, -- chosen by the client; any int64
	name  text COLLATE "C" NOT NULL, -- as sent by the client
	tag   text COLLATE "C",          -- as sent by the client; NULL: none
	PRIMARY KEY (store, id)
);

CREATE TABLE tokens (
	name    text COLLATE "C" NOT NULL PRIMARY KEY, -- chosen by the operator
	hash    bytea            NOT NULL UNIQUE,      -- SHA-256 of the credential, which is not stored
	store   text COLLATE "C" NOT NULL,             -- the store that the token gives access to
	scopes  text COLLATE "C" NOT NULL,             -- scope names, separated by spaces
	tail    text COLLATE "C" NOT NULL,             -- last four characters of the credential
	created bigint           NOT NULL,             -- milliseconds since 1970, like the next two
	expires bigint,                                -- NULL: never
	revoked bigint                                 -- NULL: not revoked
);
