-- Processes of version 4 keep working. Citus does not distribute the tables: there are no webhooks in a cluster.
CREATE TABLE webhooks (
	id       text COLLATE "C" NOT NULL PRIMARY KEY,
	store    text COLLATE "C" NOT NULL,
	enabled  boolean          NOT NULL, -- creates write deliveries
	removed  bigint,                    -- milliseconds since 1970; if not NULL, its deliveries are removed, and then it
	created  bigint           NOT NULL, -- milliseconds since 1970
	settings text COLLATE "C" NOT NULL  -- JSON: URL, secrets and all else that SQL does not need
);

CREATE INDEX webhooks_store ON webhooks (store);

CREATE TABLE events (
	id    text COLLATE "C" NOT NULL PRIMARY KEY, -- webhook-id, in the order of time
	store text COLLATE "C" NOT NULL,
	plant bigint           NOT NULL,             -- id of the plant
	body  text COLLATE "C" NOT NULL              -- what is sent
);

CREATE TABLE deliveries (
	webhook text COLLATE "C" NOT NULL, -- the endpoint
	status  text COLLATE "C" NOT NULL, -- waiting, replaying, delivered or failed
	event   text COLLATE "C" NOT NULL,
	due     bigint           NOT NULL, -- milliseconds since 1970: when it is tried, or removed
	bytes   bigint           NOT NULL, -- length of the body
	log     text COLLATE "C" NOT NULL, -- JSON: the tries
	PRIMARY KEY (webhook, status, event)
);

CREATE INDEX deliveries_due ON deliveries (webhook, status, due);

CREATE TABLE leases (
	name  text COLLATE "C" NOT NULL PRIMARY KEY, -- of the work that one process does
	owner text COLLATE "C" NOT NULL,             -- the process
	until bigint           NOT NULL              -- milliseconds since 1970
);
