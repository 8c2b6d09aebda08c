package tables

import (
	"cmp"
	"context"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addSandbox = `
		INSERT INTO sandboxes (store, hash, seed, created, expires, used, plants, bytes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	changeSandbox = `
		UPDATE sandboxes SET expires = CASE WHEN $1 < expires THEN $1 ELSE expires END,
			used = CASE WHEN $2 > used THEN $2 ELSE used END, plants = plants + $3, bytes = bytes + $4
		WHERE store = $5`
	selectSandboxes  = "SELECT store, hash, seed, created, expires, used, plants, bytes FROM sandboxes"
	sandboxByHash    = selectSandboxes + " WHERE hash = $1"
	allSandboxes     = selectSandboxes + " ORDER BY created, store"
	forgetSandbox    = "DELETE FROM sandboxes WHERE store = $1"
	removeWebhooksOf = "UPDATE webhooks SET enabled = $1, removed = $2 WHERE store = $3 AND removed IS NULL"
)

func (t Tables) AddSandbox(_ context.Context, b storage.Sandbox) error {
	return t.change(true, nil, addSandbox, b.Store, b.Hash[:], b.Seed, b.Created.UnixMilli(), b.Expires.UnixMilli(),
		b.Used.UnixMilli(), b.Plants, b.Bytes)
}

func (t Tables) ChangeSandboxes(_ context.Context, changes []storage.Sandbox) error {
	return writeEach(t, changes, byStore, func(b storage.Sandbox) Statement {
		args := []any{b.Expires.UnixMilli(), b.Used.UnixMilli(), b.Plants, b.Bytes, b.Store}
		return Statement{changeSandbox, args}
	})
}

func byStore(a, b storage.Sandbox) int { return cmp.Compare(a.Store, b.Store) }

func (t Tables) ForgetSandbox(_ context.Context, store string) error {
	_, err := t.db.Write(true, Statement{forgetSandbox, []any{store}},
		Statement{removeWebhooksOf, []any{false, time.Now().UnixMilli(), store}})
	return err
}

func (t Tables) SandboxByHash(ctx context.Context, hash token.Hash) (storage.Sandbox, error) {
	return readOne(ctx, t, Lookup, token.ErrUnknown, sandboxOf, sandboxByHash, hash[:])
}

func (t Tables) Sandboxes(ctx context.Context) ([]storage.Sandbox, error) {
	return read(ctx, t, Ordinary, sandboxOf, allSandboxes)
}

func sandboxOf(row *row) storage.Sandbox {
	return storage.Sandbox{
		Store: row.text(0), Hash: row.hash(1), Seed: row.text(2), Created: row.time(3), Expires: row.time(4),
		Used: row.time(5), Plants: row.number(6), Bytes: row.number(7),
	}
}
