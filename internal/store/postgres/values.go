package postgres

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// Citus sends the rows of INSERT … VALUES to the shards that they belong to. If all belong to one shard, the insert is
// one statement there with a one-phase commit. The rows of INSERT … SELECT unnest are collected on the node that
// received them, and a key that exists is reported as an internal error. PostgreSQL takes the same time for both,
// but the text of a statement with arrays does not depend on the number of rows, so it can be prepared.

const maxValues = 65535 / 4 // rows of four parameters

var valuesTypes = slices.Repeat([]uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID}, maxValues)

var valuesSQL sync.Map // texts by valuesKey

type valuesKey struct {
	rows   int
	suffix string
}

// insertValues returns an insert of n rows that ends with a suffix, and the types of its parameters.
func insertValues(n int, suffix string) (sql string, types []uint32) {
	types = valuesTypes[:4*n]
	if cached, ok := valuesSQL.Load(valuesKey{n, suffix}); ok {
		return cached.(string), types
	}
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("($%d,$%d,$%d,$%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
	}
	sql = insertInto + "VALUES " + strings.Join(rows, ",") + suffix
	valuesSQL.Store(valuesKey{n, suffix}, sql)
	return sql, types
}

// encodeValues sets b.values to the parameters of insertValues.
func (b *batch) encodeValues(firsts []int) {
	size := 0
	for _, first := range firsts {
		r := &b.records[first]
		size += len(r.Store) + 8 + r.Size()
	}
	buffer := slices.Grow(b.columns[0][:0], size) // so that slices of it stay valid
	add := func(text string) {
		start := len(buffer)
		buffer = append(buffer, text...)
		b.values = append(b.values, buffer[start:])
	}
	b.values = b.values[:0]
	for _, first := range firsts {
		r := &b.records[first]
		add(r.Store)
		start := len(buffer)
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(r.ID))
		b.values = append(b.values, buffer[start:])
		add(r.Name)
		if r.Tag == nil {
			b.values = append(b.values, nil)
		} else {
			add(*r.Tag)
		}
	}
	b.columns[0] = buffer
}
