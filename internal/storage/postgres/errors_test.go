package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

func serverError(severity, code string) error {
	e := &pgconn.PgError{Severity: "LOCALISED", SeverityUnlocalized: severity, Code: code, Message: "m"}
	return fmt.Errorf("wrapped: %w", e)
}

var translations = []struct {
	name        string
	err         error
	want        error  // nil: unchanged
	text        string // in the message
	mayBeStored bool
}{
	{"unique violation", serverError("ERROR", uniqueViolation), nil, "", false},
	{"syntax error", serverError("ERROR", "42601"), nil, "", false},
	{"class 08", serverError("ERROR", "08006"), storage.ErrUnavailable, "m (SQLSTATE 08006)", false},
	{"read-only", serverError("ERROR", readOnlyTransaction), storage.ErrUnavailable, "connect to the primary", false},
	{"user", serverError("FATAL", "28000"), storage.ErrUnavailable, "rejected the user", true},
	{"database", serverError("FATAL", "3D000"), storage.ErrUnavailable, "no database of this name", true},
	{"serialization failure", serverError("ERROR", serializationFailure), storage.ErrUnavailable, "40001", false},
	{"deadlock", serverError("ERROR", deadlockDetected), storage.ErrUnavailable, "40P01", false},
	{"privilege", serverError("ERROR", "42501"), storage.ErrUnavailable, "lacks a privilege", false},
	{"dropped table", serverError("ERROR", undefinedTable), storage.ErrUnavailable, "restart the service", false},
	{"full disk", serverError("ERROR", diskFull), storage.ErrFull, "m (SQLSTATE 53100)", false},
	{"connections", serverError("FATAL", "53300"), storage.ErrUnavailable, "no more connections", true},
	{"lock", serverError("ERROR", "55P03"), storage.ErrUnavailable, "held a lock", false},
	{"cancelled", serverError("ERROR", QueryCanceled), storage.ErrUnavailable, "m (SQLSTATE 57014)", true},
	{"shutdown", serverError("FATAL", "57P01"), storage.ErrUnavailable, "m (SQLSTATE 57P01)", true},
	{"starting", serverError("FATAL", "57P03"), storage.ErrUnavailable, "starting or stopping", true},
	{"panic", serverError("PANIC", "XX000"), storage.ErrUnavailable, "m (SQLSTATE XX000)", true},
	{"corrupted page", serverError("ERROR", dataCorrupted), storage.ErrUnavailable, "damaged; restore a backup", false},
	{"cut", io.ErrUnexpectedEOF, storage.ErrUnavailable, "connection was lost", true},
	{"nothing sent", safeError{}, storage.ErrUnavailable, "connection was lost", false},
	{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, storage.ErrUnavailable, "connection was lost", true},
	{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, storage.ErrUnavailable, "no server listens", true},
	{"host", &net.DNSError{Name: "h"}, storage.ErrUnavailable, `host name "h" can't be resolved`, true},
	{"timeout", context.DeadlineExceeded, storage.ErrUnavailable, "did not respond in time", true},
	{"cancelled by the caller", context.Canceled, nil, "", true},
	{"domain", plant.ErrNotFound, nil, "", true},
	{"closed", errClosed, storage.ErrUnavailable, "it was closed", true},
}

func TestTranslate(t *testing.T) {
	for _, test := range translations {
		t.Run(test.name, func(t *testing.T) {
			got := Translate(test.err)
			for _, meaning := range []error{storage.ErrUnavailable, storage.ErrFull, storage.ErrUnknown} {
				if is, want := errors.Is(got, meaning), meaning == test.want; is != want {
					t.Errorf("Translate() = %v; is it %q? %v", got, meaning, is)
				}
			}
			if test.want == nil && !errors.Is(got, errors.Unwrap(test.err)) && got != test.err {
				t.Errorf("Translate() = %v, want it unchanged", got)
			}
			if !strings.Contains(got.Error(), test.text) {
				t.Errorf("Translate() = %v, want a message that contains %q", got, test.text)
			}
			if got := mayBeStored(test.err, nil); got != test.mayBeStored {
				t.Errorf("mayBeStored() = %v, want %v", got, test.mayBeStored)
			}
			if again := Translate(got); again.Error() != got.Error() {
				t.Errorf("Translate() twice = %v", again)
			}
		})
	}
	if Translate(nil) != nil {
		t.Error("Translate(nil) is an error")
	}
}

// safeError is an error of pgx that proves that nothing was sent.
type safeError struct{}

func (safeError) Error() string     { return "not sent" }
func (safeError) SafeToRetry() bool { return true }
