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
	"plantstore/internal/store"
)

func TestTranslate(t *testing.T) {
	server := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "LOCALISED", SeverityUnlocalized: severity, Code: code, Message: "m"})
	}
	var none error
	tests := []struct {
		name        string
		err         error
		want        error // nil: passes as it is
		mayBeStored bool
	}{
		{"unique violation is a bug of ours", server("ERROR", uniqueViolation), none, false},
		{"syntax error is a bug of ours", server("ERROR", "42601"), none, false},
		{"read only", server("ERROR", readOnlyTransaction), store.ErrUnavailable, false},
		{"password", server("FATAL", invalidPassword), store.ErrUnavailable, true},
		{"serialization", server("ERROR", serializationFailure), store.ErrUnavailable, false},
		{"deadlock", server("ERROR", deadlockDetected), store.ErrUnavailable, false},
		{"rights", server("ERROR", insufficientRights), store.ErrUnavailable, false},
		{"table dropped", server("ERROR", undefinedTable), store.ErrUnavailable, false},
		{"disk full", server("ERROR", diskFull), store.ErrFull, false},
		{"out of memory", server("ERROR", "53200"), store.ErrUnavailable, false},
		{"connections", server("FATAL", tooManyConnections), store.ErrUnavailable, true},
		{"lock", server("ERROR", lockNotAvailable), store.ErrUnavailable, false},
		{"cancelled", server("ERROR", queryCanceled), store.ErrUnavailable, true},
		{"shut down", server("FATAL", "57P01"), store.ErrUnavailable, true},
		{"crash of another session", server("FATAL", "57P02"), store.ErrUnavailable, true},
		{"starting", server("FATAL", cannotConnectNow), store.ErrUnavailable, true},
		{"disk error", server("ERROR", "58030"), store.ErrUnavailable, false},
		{"panic", server("PANIC", "XX000"), store.ErrUnavailable, true},
		{"cut", io.ErrUnexpectedEOF, store.ErrUnavailable, true},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, store.ErrUnavailable, true},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, store.ErrUnavailable, true},
		{"time-out", context.DeadlineExceeded, store.ErrUnavailable, true},
		{"the caller has gone", context.Canceled, none, true},
		{"domain", plant.ErrNotFound, none, true},
		{"closed", errClosed, store.ErrUnavailable, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := translate(test.err)
			for _, meaning := range []error{store.ErrUnavailable, store.ErrFull, store.ErrUnknown} {
				if is, want := errors.Is(got, meaning), meaning == test.want; is != want {
					t.Errorf("translate() = %v; is it %q? %v", got, meaning, is)
				}
			}
			if test.want == none && !errors.Is(got, errors.Unwrap(test.err)) && got != test.err {
				t.Errorf("translate() = %v, want it to pass", got)
			}
			if got := mayBeStored(test.err); got != test.mayBeStored {
				t.Errorf("mayBeStored() = %v, want %v", got, test.mayBeStored)
			}
			if again := translate(got); again.Error() != got.Error() {
				t.Errorf("translate() twice = %v", again)
			}
		})
	}
	if translate(nil) != nil {
		t.Error("translate(nil) is an error")
	}
}

// An outcome that is not known is nothing else: whoever asks for ErrUnavailable first would
// believe that nothing was stored.
func TestUnknownMeansNothingElse(t *testing.T) {
	err := fmt.Errorf("%w: %w", store.ErrUnknown, withoutMeaning(translate(io.ErrUnexpectedEOF)))
	if errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("%v is ErrUnavailable too", err)
	}
}
