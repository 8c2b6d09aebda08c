package sqlite

import (
	"cmp"
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addSandbox = `
		INSERT INTO sandboxes (store, hash, seed, created, expires, used, plants, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	changeSandbox = `
		UPDATE sandboxes SET expires = min(expires, ?), used = max(used, ?), plants = plants + ?, bytes = bytes + ?
		WHERE store = ?`
	sandboxColumns = "SELECT store, hash, seed, created, expires, used, plants, bytes FROM sandboxes"
	sandboxByHash  = sandboxColumns + " WHERE hash = ?"
	allSandboxes   = sandboxColumns + " ORDER BY created, store"
	forgetSandbox  = "DELETE FROM sandboxes WHERE store = ?"
)

func (s *Storage) AddSandbox(_ context.Context, b storage.Sandbox) error {
	return s.change(nil, addSandbox, b.Store, b.Hash[:], b.Seed, b.Created.UnixMilli(), b.Expires.UnixMilli(),
		b.Used.UnixMilli(), b.Plants, b.Bytes)
}

func (s *Storage) ChangeSandboxes(_ context.Context, changes []storage.Sandbox) error {
	return changeEach(s, changeSandbox, changes, func(b storage.Sandbox) []any {
		return []any{b.Expires.UnixMilli(), b.Used.UnixMilli(), b.Plants, b.Bytes, b.Store}
	})
}

func (s *Storage) ForgetSandbox(_ context.Context, store string) error {
	return s.writer.tx(func() error {
		return cmp.Or(
			exec(s.writer.conn, forgetSandbox, store),
			exec(s.writer.conn, removeWebhooksOf, time.Now().UnixMilli(), store),
		)
	})
}

func (s *Storage) SandboxByHash(ctx context.Context, hash token.Hash) (storage.Sandbox, error) {
	return storage.ByHash(collect(ctx, s.readers, sandboxOf, sandboxByHash, hash[:]))
}

func (s *Storage) Sandboxes(ctx context.Context) ([]storage.Sandbox, error) {
	return collect(ctx, s.readers, sandboxOf, allSandboxes)
}

// sandboxOf reads a row of sandboxColumns.
func sandboxOf(row *sqlite.Stmt) (storage.Sandbox, error) {
	b := storage.Sandbox{
		Store: row.ColumnText(0), Seed: row.ColumnText(2), Created: milliseconds(row, 3), Expires: milliseconds(row, 4),
		Used: milliseconds(row, 5), Plants: row.ColumnInt64(6), Bytes: row.ColumnInt64(7),
	}
	row.ColumnBytes(1, b.Hash[:])
	return b, storage.CheckText(&b.Store, &b.Seed)
}
