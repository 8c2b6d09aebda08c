-- The same as on PostgreSQL.
DROP INDEX deliveries_due;
CREATE INDEX deliveries_due ON deliveries (webhook || status, due);
