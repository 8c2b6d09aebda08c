-- Processes of the version before go on beside this: they name the columns that they read and write.
ALTER TABLE tokens
	ADD COLUMN rate  text COLLATE "C", -- such as 100/s; NULL: what serve gives every token
	ADD COLUMN burst bigint;           -- requests at once; NULL as the rate
