-- Processes of version 1 keep working: their statements name the columns that they read and write.
ALTER TABLE tokens
	ADD COLUMN rate  text COLLATE "C", -- such as 100/s; NULL: the default of serve
	ADD COLUMN burst bigint;           -- requests at once; NULL if rate is
