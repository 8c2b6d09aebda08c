-- Processes of version 3 keep working. Citus does not distribute the table: there are no sandboxes in a cluster.
CREATE TABLE sandboxes (
	store   text COLLATE "C" NOT NULL PRIMARY KEY, -- the store that expires
	hash    bytea            NOT NULL UNIQUE,      -- SHA-256 of its credential
	seed    text COLLATE "C" NOT NULL,             -- name of the plants that it starts with
	created bigint           NOT NULL,             -- milliseconds since 1970, like the next two
	expires bigint           NOT NULL,
	used    bigint           NOT NULL,             -- about the time of its last request
	plants  bigint           NOT NULL,             -- about how many it has
	bytes   bigint           NOT NULL              -- about the length of their names and tags
);
