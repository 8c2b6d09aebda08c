package citus

import (
	"fmt"
	"strings"

	"plantstore/internal/plant"
)

// Insert returns INSERT … VALUES, whose rows Citus sends to the shards that they belong to. If all belong to one shard,
// the insert is one statement there with a commit of one phase. The rows of INSERT … SELECT unnest are collected on the
// node that received them, and a key that exists is reported as an internal error.
//
// The values are literals: Citus writes a new statement for the shard anyway, and with parameters it takes longer.
func (c *cluster) Insert(plants []*plant.Record) string {
	var sql strings.Builder
	separator := "INSERT INTO plants (store, id, name, tag) VALUES "
	for _, r := range plants {
		tag := "NULL"
		if r.Tag != nil {
			tag = literal(*r.Tag)
		}
		fmt.Fprintf(&sql, "%s(%s,'%d',%s,%s)", separator, literal(r.Store), r.ID, literal(r.Name), tag)
		separator = ","
	}
	return sql.String()
}

// literal returns a text as an SQL literal. It depends on standard_conforming_strings, which every session sets: then
// only the quote is special.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
