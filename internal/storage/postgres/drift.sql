-- Lines of store.Drift about the relations in ours. Triggers of Citus are internal, and so are those of foreign keys.
SELECT format('%s: is not an ordinary table (relkind %s); move it away, or restore a backup', relname, relkind) AS line
	FROM ours WHERE relkind <> 'r'
UNION ALL SELECT format('%s: is UNLOGGED, so a crash empties it; run ALTER TABLE %1$I SET LOGGED', relname)
	FROM ours WHERE relpersistence <> 'p'
UNION ALL SELECT format('%s: has row security; run ALTER TABLE %1$I DISABLE ROW LEVEL SECURITY', relname)
	FROM ours WHERE relrowsecurity
UNION ALL SELECT format('%s: has the rule %I; run DROP RULE %2$I ON %1$I', relname, rulename)
	FROM ours JOIN pg_rewrite ON ev_class = ours.oid WHERE relkind = 'r'
UNION ALL SELECT format('%s: has the trigger %I; run DROP TRIGGER %2$I ON %1$I', relname, tgname)
	FROM ours JOIN pg_trigger ON tgrelid = ours.oid WHERE NOT tgisinternal
UNION ALL SELECT concat(relname, ': column ', attname, ' ', format_type(atttypid, atttypmod),
		' COLLATE "' || (SELECT collname FROM pg_collation WHERE oid = attcollation) || '"',
		CASE WHEN attnotnull THEN ' NOT NULL' END,
		CASE WHEN atthasdef OR attidentity <> '' THEN ' DEFAULT' END)
	FROM ours JOIN pg_attribute ON attrelid = ours.oid WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT relname || ': key ' || pg_get_constraintdef(pg_constraint.oid)
	FROM ours JOIN pg_constraint ON conrelid = ours.oid WHERE contype IN ('p', 'u')
UNION ALL SELECT format('%s: has the foreign key %I; run ALTER TABLE %1$I DROP CONSTRAINT %2$I', relname, conname)
	FROM ours JOIN pg_constraint ON conrelid = ours.oid WHERE contype = 'f'
