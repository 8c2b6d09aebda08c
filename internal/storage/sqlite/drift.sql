-- Lines of store.Drift. tbl_name of a trigger is spelled as in CREATE TRIGGER, so its case may differ.
WITH names AS (
	VALUES ('plants'), ('tokens'), ('sandboxes'), ('webhooks'), ('events'), ('deliveries'), ('leases')),
ours AS (SELECT * FROM pragma_table_list WHERE schema = 'main' AND name IN (SELECT column1 FROM names))
SELECT format('%s: is a %s and not a table; move it away, or restore a backup', name, type)
	FROM ours WHERE type <> 'table'
UNION ALL SELECT format('%s: has the trigger %s; run DROP TRIGGER "%w"', lower(tbl_name), name, name)
	FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) IN (SELECT column1 FROM names)
UNION ALL SELECT format('%s: has a clause %s, which can replace or mix up rows; restore a backup', name, words.column1)
	FROM sqlite_schema JOIN (VALUES ('COLLATE'), ('ON CONFLICT')) AS words ON sql LIKE '%' || words.column1 || '%'
	WHERE type = 'table' AND name IN (SELECT column1 FROM names)
UNION ALL SELECT format('%s: column %s %s%s%s', ours.name, c.name, upper(c.type),
		iif(c."notnull", ' NOT NULL', ''), iif(c.dflt_value IS NULL, '', ' DEFAULT'))
	FROM ours JOIN pragma_table_info(ours.name) AS c
UNION ALL SELECT format('%s: key (%s)%s%s', ours.name, group_concat(c.name, ', ' ORDER BY c.pk),
		iif(wr, ' WITHOUT ROWID', ''), iif(strict, ' STRICT', ''))
	FROM ours JOIN pragma_table_info(ours.name) AS c WHERE c.pk > 0 GROUP BY ours.name
UNION ALL SELECT format('%s: key UNIQUE (%s)', ours.name, group_concat(c.name, ', ' ORDER BY c.seqno))
	FROM ours JOIN pragma_index_list(ours.name) AS i JOIN pragma_index_info(i.name) AS c
	WHERE i.origin = 'u' GROUP BY i.name
