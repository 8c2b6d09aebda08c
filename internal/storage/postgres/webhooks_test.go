package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/tables"
)

// The server finds the deliveries that are due, and those to remove, by an index, however many wait: what is
// due also without statistics.
func TestSearchesDeliveriesByIndex(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := openStorage(t, address)
	for _, table := range []string{"deliveries", "events", "webhooks"} {
		sqlQuery(t, address, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
	}
	sqlQuery(t, address, `
		INSERT INTO webhooks SELECT 'wh_' || n, 'main', true, NULL, 0, '{}' FROM generate_series(1, 4) AS n`)
	sqlQuery(t, address, `
		INSERT INTO deliveries SELECT 'wh_1', 'waiting', 'msg_' || 100000 + n, n, 30, '' FROM generate_series(1, 50000) AS n`)
	sqlQuery(t, address, "INSERT INTO events SELECT event, 'main', due, '{}' FROM deliveries")
	indexed := func(sql string, args ...any) {
		t.Helper()
		var plan []string
		err := s.read(t.Context(), s.otherSlots, time.Minute, func(ctx context.Context, conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, "EXPLAIN "+sql, args...)
			if err == nil {
				plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		})
		all := strings.Join(plan, "\n")
		if err != nil || strings.Contains(all, "Seq Scan on deliveries") || strings.Contains(all, "Sort Key") {
			t.Errorf("%v; the plan of %s\nis\n%s", err, sql, all)
		}
	}
	indexed(tables.DueDeliveries, "wh_1", "waiting", time.Now().UnixMilli(), 16)
	sqlQuery(t, address, "ANALYZE")
	indexed(tables.DueDeliveries, "wh_1", "waiting", time.Now().UnixMilli(), 16)
	indexed(expiredDeliveries, time.Now().UnixMilli(), 200)
	indexed(tables.RemoveEvent, "msg_100001")
	indexed(tables.ForgetWebhooks, 0)
}
