CREATE TABLE webhooks (
	id       TEXT    NOT NULL PRIMARY KEY,
	store    TEXT    NOT NULL,
	enabled  INTEGER NOT NULL, -- 1: creates write deliveries
	removed  INTEGER,          -- milliseconds since 1970; if not NULL, its deliveries are removed, and then this row
	created  INTEGER NOT NULL, -- milliseconds since 1970
	settings TEXT    NOT NULL  -- JSON: URL, secrets and all else that SQL does not need
) WITHOUT ROWID, STRICT;

CREATE INDEX webhooks_store ON webhooks (store);

CREATE TABLE events (
	id    TEXT    NOT NULL PRIMARY KEY, -- webhook-id, in the order of time
	store TEXT    NOT NULL,
	plant INTEGER NOT NULL,             -- id of the plant
	body  TEXT    NOT NULL              -- what is sent
) WITHOUT ROWID, STRICT;

CREATE TABLE deliveries (
	webhook TEXT    NOT NULL, -- the endpoint
	status  TEXT    NOT NULL, -- waiting, replaying, delivered or failed
	event   TEXT    NOT NULL,
	due     INTEGER NOT NULL, -- milliseconds since 1970: when it is tried, or removed
	bytes   INTEGER NOT NULL, -- length of the body
	log     TEXT    NOT NULL, -- JSON: the tries
	PRIMARY KEY (webhook, status, event)
) WITHOUT ROWID, STRICT;

CREATE INDEX deliveries_due ON deliveries (webhook, status, due);

CREATE TABLE leases (
	name  TEXT    NOT NULL PRIMARY KEY, -- of the work that one process does
	owner TEXT    NOT NULL,             -- the process
	until INTEGER NOT NULL              -- milliseconds since 1970
) WITHOUT ROWID, STRICT;
