ALTER TABLE tokens ADD COLUMN rate  TEXT;    -- such as 100/s; NULL: what serve gives every token
ALTER TABLE tokens ADD COLUMN burst INTEGER; -- requests at once; NULL as the rate
