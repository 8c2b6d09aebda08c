package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addSandbox = `
		INSERT INTO sandboxes (store, hash, seed, created, expires, used, plants, bytes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	changeSandboxes = `
		UPDATE sandboxes SET expires = least(sandboxes.expires, sent.expires), used = greatest(sandboxes.used, sent.used),
			plants = sandboxes.plants + sent.plants, bytes = sandboxes.bytes + sent.bytes
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
			AS sent (store, expires, used, plants, bytes)
		WHERE sandboxes.store = sent.store`
	sandboxColumns = "SELECT store, hash, seed, created, expires, used, plants, bytes FROM sandboxes"
	sandboxByHash  = sandboxColumns + " WHERE hash = $1"
	allSandboxes   = sandboxColumns + " ORDER BY created, store"
	forgetSandbox  = `
		WITH hooks AS (UPDATE webhooks SET enabled = false, removed = $2 WHERE store = $1 AND removed IS NULL)
		DELETE FROM sandboxes WHERE store = $1`
)

func (s *Storage) AddSandbox(_ context.Context, b storage.Sandbox) error {
	return s.change(true, nil, addSandbox, b.Store, b.Hash[:], b.Seed, b.Created.UnixMilli(), b.Expires.UnixMilli(),
		b.Used.UnixMilli(), b.Plants, b.Bytes)
}

func (s *Storage) ChangeSandboxes(_ context.Context, changes []storage.Sandbox) error {
	var stores []string
	var expires, used, plants, bytes []int64
	for _, b := range changes {
		stores, expires = append(stores, b.Store), append(expires, b.Expires.UnixMilli())
		used, plants, bytes = append(used, b.Used.UnixMilli()), append(plants, b.Plants), append(bytes, b.Bytes)
	}
	return s.change(true, nil, changeSandboxes, stores, expires, used, plants, bytes)
}

func (s *Storage) ForgetSandbox(_ context.Context, store string) error {
	return s.change(true, nil, forgetSandbox, store, time.Now().UnixMilli())
}

func (s *Storage) SandboxByHash(ctx context.Context, hash token.Hash) (storage.Sandbox, error) {
	return storage.ByHash(collect(ctx, s, s.tokenSlots, scanSandbox, sandboxByHash, hash[:]))
}

func (s *Storage) Sandboxes(ctx context.Context) ([]storage.Sandbox, error) {
	return collect(ctx, s, s.otherSlots, scanSandbox, allSandboxes)
}

func scanSandbox(row pgx.CollectableRow) (b storage.Sandbox, err error) {
	var hash []byte
	var created, expires, used int64
	err = row.Scan(&b.Store, &hash, &b.Seed, &created, &expires, &used, &b.Plants, &b.Bytes)
	copy(b.Hash[:], hash)
	b.Created, b.Expires = time.UnixMilli(created).UTC(), time.UnixMilli(expires).UTC()
	b.Used = time.UnixMilli(used).UTC()
	return b, err
}
