package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// startStandby copies the files of a server that runs, as the manual of PostgreSQL describes it under "Making a
// Base Backup Using the Low Level API". Not every distribution of PostgreSQL has pg_basebackup.
func startStandby(primary *Server) (*Server, error) {
	return newServer(primary.bin, os.TempDir(), primary.settings, func(s *Server) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := pgx.Connect(ctx, primary.SocketURL("postgres"))
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', true)"); err != nil {
			return err
		}
		if err := s.copyData(primary.data(), false); err != nil {
			return err
		}
		var label string
		if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
			return err
		}
		for name, text := range map[string]string{
			"backup_label":         label,
			"standby.signal":       "",
			"postgresql.auto.conf": fmt.Sprintf("primary_conninfo = '%s'\n", primary.SocketURL("postgres")),
		} {
			if err := s.writeData(name, []byte(text)); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyData copies a data directory, except the files of the running process and, if wal is false, the log.
func (s *Server) copyData(from string, wal bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, from)
		switch {
		case errors.Is(err, fs.ErrNotExist), strings.HasPrefix(entry.Name(), "postmaster."):
			return nil // a file that was removed meanwhile is not needed
		case err != nil:
			return err
		case entry.IsDir():
			if err := os.Mkdir(s.data()+name, 0o700); err != nil {
				return err
			}
			return changeOwner(s.data() + name)
		case strings.HasPrefix(name, "/pg_wal/") && !wal:
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.writeData(name, text)
	})
}

func (s *Server) writeData(name string, text []byte) error {
	path := filepath.Join(s.data(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return changeOwner(path)
}
