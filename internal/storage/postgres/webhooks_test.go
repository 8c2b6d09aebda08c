package postgres

import (
	"strconv"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
)

// Without an event, a create uses no table of webhooks: a store without endpoints pays nothing for them.
func TestCreateWithoutEvent(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := openStorage(t, address)
	sqlQuery(t, address, "DROP TABLE webhooks, events, deliveries")
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Created, plant.Created)
	withEvent := record(3)
	withEvent.Event = "msg_3"
	if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{withEvent}); err == nil {
		t.Errorf("CreateBatch() with an event = %v: the tables are still there", outcomes)
	}
}

// A batch whose reply is lost is sent again, and has its deliveries once.
func TestDeliveriesOfRepeatedBatch(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t)
	w := storage.Webhook{ID: "wh_1", Store: "main", Enabled: true, Settings: "{}", Created: time.UnixMilli(1)}
	if err := s.AddWebhook(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	create := func(id int, event string, want plant.Outcome) {
		r := record(id)
		r.Event = event
		outcomes, err := s.CreateBatch(t.Context(), []plant.Record{r})
		wantOutcomes(t, outcomes, err, want)
	}
	create(1, "msg_1", plant.Created) // prepares the statements
	p.Set(loseReply())
	create(2, "msg_2", plant.Same)
	f := storage.DeliveryFilter{Webhook: "wh_1", Status: storage.Waiting, Before: "~", Limit: 10}
	if found, err := s.Deliveries(t.Context(), f); len(found) != 2 || found[0].Event != "msg_2" || err != nil {
		t.Errorf("the deliveries are %+v, %v, want one for each plant", found, err)
	}
}

// The server finds deliveries by an index, however many wait and whatever its statistics say.
func TestSearchesDeliveriesByIndex(t *testing.T) {
	t.Parallel()
	const (
		rounds = 8 // the server may plan a statement again after five executions
		many   = `INSERT INTO events SELECT 'msg_' || 100000 + n, 'main', n, '{}' FROM generate_series(1, 50000) AS n;
			INSERT INTO deliveries SELECT 'wh_1', 'waiting', id, plant, 2, '' FROM events WHERE id ~ 'msg'`
		few = `INSERT INTO events SELECT 'old_' || n, 'main', n, '{}' FROM generate_series(1, 300) AS n;
			INSERT INTO deliveries SELECT 'wh_' || plant % 2 + 1, 'delivered', id, plant, 2, '' FROM events`
	)
	for name, steps := range map[string][]string{
		"no statistics":               {few, many},
		"statistics from before them": {few, "ANALYZE", many},
		"fresh statistics":            {few, many, "ANALYZE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.Database(t)
			openStorage(t, address).Close()
			for _, table := range []string{"deliveries", "events", "webhooks"} {
				sqlQuery(t, address, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
			}
			sqlQuery(t, address, `INSERT INTO webhooks
				SELECT 'wh_' || n, 'main', true, CASE WHEN n > 1 THEN 0 END, 0, '{}' FROM generate_series(1, 4) AS n`)
			for _, sql := range steps {
				sqlQuery(t, address, sql)
			}
			waitForCounts(t, address)
			sqlQuery(t, address, "SELECT pg_stat_reset()")
			s := openStorage(t, address)
			for range rounds {
				searchDeliveries(t, s)
			}
			s.Close()
			waitForCounts(t, address)
			const sql = `
				SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit FROM pg_statio_user_tables
				WHERE relname = 'deliveries'`
			pages, err := strconv.Atoi(sqlQuery(t, address, sql)[0][0])
			t.Logf("%d pages in each round", pages/rounds)
			if err != nil || pages == 0 || pages/rounds > 650 {
				t.Errorf("%d pages, %v", pages, err)
			}
		})
	}
}

// waitForCounts waits until connections have ended, which then have added what they have read to the counts of the
// server.
func waitForCounts(t *testing.T, address string) {
	t.Helper()
	const others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	for len(sqlQuery(t, address, others)) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// searchDeliveries uses each search for deliveries whose cost must not depend on their number.
func searchDeliveries(t *testing.T, s *Storage) {
	t.Helper()
	all, err := s.Webhooks(t.Context(), "")
	if err != nil || all[0].Oldest == "" {
		t.Errorf("the endpoints are %+v, %v", all, err)
	}
	f := storage.DeliveryFilter{Webhook: "wh_1", Status: storage.Waiting, Before: "~", Limit: 10}
	newest, err := s.Deliveries(t.Context(), f)
	if err != nil || len(newest) != f.Limit {
		t.Errorf("the newest deliveries are %+v, %v", newest, err)
	}
	f.Due = time.Now()
	due, err := s.Deliveries(t.Context(), f)
	if err != nil || len(due) != f.Limit {
		t.Fatalf("the due deliveries are %+v, %v", due, err)
	}
	change := storage.DeliveryChange{Delivery: due[0], From: storage.Waiting}
	change.Status = storage.Failed
	if err := s.ChangeDeliveries(t.Context(), []storage.DeliveryChange{change}); err != nil {
		t.Error(err)
	}
	if n, err := s.RemoveDeliveries(t.Context(), time.Now(), f.Limit); n != f.Limit || err != nil {
		t.Errorf("removed %d deliveries, %v", n, err)
	}
}
