package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/storage"
)

// Error codes of PostgreSQL, see appendix A of its manual.
const (
	uniqueViolation      = "23505"
	readOnlyTransaction  = "25006"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	undefinedTable       = "42P01"
	DuplicateTable       = "42P07"
	diskFull             = "53100"
	QueryCanceled        = "57014"
	dataCorrupted        = "XX001"
	indexCorrupted       = "XX002"
)

// reasons say why the server can't process a statement now, by the code of its error.
var reasons = map[string]string{
	"28000":             "the server rejected the user or the password: ",
	"28P01":             "the server rejected the user or the password: ",
	"3D000":             "the server has no database of this name; create the database: ",
	"42501":             "the user lacks a privilege: ",
	undefinedTable:      "a table is missing; restart the service: ",
	"53300":             "the server accepts no more connections: ",
	"55P03":             "another session held a lock for too long: ",
	readOnlyTransaction: "the server is a standby or read-only; connect to the primary: ",
	"57P03":             "the server is starting or stopping: ",
}

// ownErrors are the classes of codes, their first two characters, that blame a statement and not the server: a feature
// that is not supported, data, a constraint, syntax and access.
var ownErrors = []string{"0A", "22", "23", "42"}

// Translate turns an error of pgx into one of package storage, by its code, and returns other errors unchanged.
// No text contains a password.
func Translate(err error) error {
	if err == nil || errors.Is(err, storage.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return translateCode(e)
	}
	switch {
	case isTimeout(err):
		return fmt.Errorf("%w: it did not respond in time", storage.ErrUnavailable)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: no server listens at its address; start it or correct the address", storage.ErrUnavailable)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%w: the host name %q can't be resolved", storage.ErrUnavailable, e.Name)
	}
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return fmt.Errorf("%w: %s", storage.ErrUnavailable, strings.Join(strings.Fields(e.Unwrap().Error()), " "))
	}
	if isLost(err) {
		return fmt.Errorf("%w: the connection was lost", storage.ErrUnavailable)
	}
	return err
}

func translateCode(e *pgconn.PgError) error {
	reason, ok := reasons[e.Code]
	switch {
	case e.Code == diskFull:
		return fmt.Errorf("%w: %w", storage.ErrFull, e)
	case e.Code == dataCorrupted || e.Code == indexCorrupted:
		return fmt.Errorf("%w; restore a backup: %w", storage.ErrDamaged, e)
	case ok || !slices.Contains(ownErrors, e.Code[:min(2, len(e.Code))]):
		return fmt.Errorf("%w: %s%w", storage.ErrUnavailable, reason, e)
	}
	return e
}

// mayBeStored reports whether a write that failed may have been committed, or may still be.
//
// An ERROR of the server proves that it rolled back, except query_canceled: the server can raise it after a
// commit. It can also end the session after a commit, with a FATAL error.
//
// A server of a cluster relays the errors of others as ERRORs of its own, see Cluster.
func mayBeStored(err error, cluster Cluster) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return !pgconn.SafeToRetry(err)
	case e.SeverityUnlocalized != "ERROR" || e.Code == QueryCanceled:
		return true
	}
	return cluster != nil && !cluster.ProvesRollback(e.Code)
}

func hasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, e.Code)
}

// isLost reports whether the connection was lost, or can't be opened because the server is down.
func isLost(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.SeverityUnlocalized != "ERROR" && (strings.HasPrefix(e.Code, "57") || strings.HasPrefix(e.Code, "08"))
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
}
