-- No foreign key, trigger or sequence touches plants: it must stay possible to spread it over
-- servers with SELECT create_distributed_table('plants', 'id').
CREATE TABLE plants (
	store text COLLATE "C" NOT NULL, -- the store that the plant belongs to
	id    bigint           NOT NULL, -- chosen by the client; every int64
	name  text COLLATE "C" NOT NULL, -- as sent, character for character
	tag   text COLLATE "C",          -- as sent; NULL when none was
	PRIMARY KEY (store, id)
);

CREATE TABLE tokens (
	name    text COLLATE "C" NOT NULL PRIMARY KEY, -- chosen by the operator
	hash    bytea            NOT NULL UNIQUE,      -- SHA-256 of the credential, which is nowhere stored
	store   text COLLATE "C" NOT NULL,             -- the one store that the token opens
	scopes  text COLLATE "C" NOT NULL,             -- scope names, separated by spaces
	tail    text COLLATE "C" NOT NULL,             -- last four characters of the credential
	created bigint           NOT NULL,             -- milliseconds since 1970, as are the two below
	expires bigint,                                -- NULL: never
	revoked bigint                                 -- NULL: not revoked
);
