package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/store"
)

// Codes of PostgreSQL: appendix A of its manual.
const (
	uniqueViolation      = "23505"
	readOnlyTransaction  = "25006"
	invalidAuthorization = "28000"
	invalidPassword      = "28P01"
	invalidCatalogName   = "3D000"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	insufficientRights   = "42501"
	undefinedTable       = "42P01"
	duplicateObject      = "42710"
	duplicateTable       = "42P07"
	diskFull             = "53100"
	tooManyConnections   = "53300"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014"
	cannotConnectNow     = "57P03"
)

// Classes of codes, their first two characters, all of which say that the server can't serve now.
var unavailableClasses = []string{
	"08", // connection
	"25", // transaction state
	"40", // rolled back, and tried again in vain
	"53", // out of resources
	"55", // object not in the state that is needed
	"57", // operator's intervention
	"58", // system, such as input and output
	"XX", // internal, such as a damaged page
}

// translate gives an error of the driver the meaning that the port knows, by its code.
// Errors that are not the driver's pass as they are. None of the texts holds a password.
func translate(err error) error {
	if err == nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return translateCode(e)
	}
	switch {
	case isTimeout(err):
		return fmt.Errorf("%w: it has not answered in time", store.ErrUnavailable)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: no server listens at its address; start it or correct the address", store.ErrUnavailable)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%w: the name %q of its host can't be resolved", store.ErrUnavailable, e.Name)
	}
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return fmt.Errorf("%w: %s", store.ErrUnavailable, strings.Join(strings.Fields(e.Unwrap().Error()), " "))
	}
	if isLost(err) {
		return fmt.Errorf("%w: the connection was lost", store.ErrUnavailable)
	}
	return err
}

func translateCode(e *pgconn.PgError) error {
	switch e.Code {
	case diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, e)
	case invalidPassword, invalidAuthorization:
		return fmt.Errorf("%w: the server refuses the user or the password", store.ErrUnavailable)
	case invalidCatalogName:
		return fmt.Errorf("%w: the server has no database of this name; create it", store.ErrUnavailable)
	case insufficientRights:
		return fmt.Errorf("%w: the user lacks a right: %w", store.ErrUnavailable, e)
	case undefinedTable:
		return fmt.Errorf("%w: a table is missing; start the service again: %w", store.ErrUnavailable, e)
	case tooManyConnections:
		return fmt.Errorf("%w: the server has no connection left: %w", store.ErrUnavailable, e)
	case lockNotAvailable:
		return fmt.Errorf("%w: another session holds a lock for too long: %w", store.ErrUnavailable, e)
	case readOnlyTransaction:
		return fmt.Errorf("%w: the server is a standby or read only; connect to the primary: %w", store.ErrUnavailable, e)
	case cannotConnectNow:
		return fmt.Errorf("%w: the server is starting or stopping: %w", store.ErrUnavailable, e)
	}
	for _, class := range unavailableClasses {
		if strings.HasPrefix(e.Code, class) {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, e)
		}
	}
	return e
}

// mayBeStored reports whether a write that failed may have been committed all the same, now or
// later: true unless there is proof.
//
// An error of the server proves that it rolled back, with two exceptions that it can raise right
// after a commit: those that end the session, and the cancelling of a statement.
func mayBeStored(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.SeverityUnlocalized != "ERROR" || e.Code == queryCanceled
	}
	return !pgconn.SafeToRetry(err)
}

// isTaken reports whether the server has stored nothing because a key is there already.
func isTaken(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == uniqueViolation
}

// isConflict reports whether the server has rolled back in favour of another transaction.
func isConflict(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == serializationFailure || e.Code == deadlockDetected
	}
	return errors.Is(err, errVanished)
}

// isLost reports whether the connection is gone, or can't be made because the server is.
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

// isReadOnly reports whether the server takes no writes, as a standby or a former primary.
func isReadOnly(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == readOnlyTransaction
}
