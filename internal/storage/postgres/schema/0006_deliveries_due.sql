-- Processes of version 5 keep working. They read all waiting deliveries of an endpoint to find those that are due.
--
-- A search by webhook, status and event can't use this index. It could use the former one, and without fresh statistics
-- the server preferred it to the primary key and read all waiting deliveries.
DROP INDEX deliveries_due;
CREATE INDEX deliveries_due ON deliveries ((webhook || status), due);
