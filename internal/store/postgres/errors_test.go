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
		{"read only", server("ERROR", readOnlyTransaction), plant.ErrUnavailable, false},
		{"password", server("FATAL", invalidPassword), plant.ErrUnavailable, true},
		{"serialization", server("ERROR", serializationFailure), plant.ErrUnavailable, false},
		{"deadlock", server("ERROR", deadlockDetected), plant.ErrUnavailable, false},
		{"rights", server("ERROR", insufficientRights), plant.ErrUnavailable, false},
		{"table dropped", server("ERROR", undefinedTable), plant.ErrUnavailable, false},
		{"disk full", server("ERROR", diskFull), plant.ErrFull, false},
		{"out of memory", server("ERROR", "53200"), plant.ErrUnavailable, false},
		{"connections", server("FATAL", tooManyConnections), plant.ErrUnavailable, true},
		{"lock", server("ERROR", lockNotAvailable), plant.ErrUnavailable, false},
		{"cancelled", server("ERROR", queryCanceled), plant.ErrUnavailable, true},
		{"shut down", server("FATAL", "57P01"), plant.ErrUnavailable, true},
		{"crash of another session", server("FATAL", "57P02"), plant.ErrUnavailable, true},
		{"starting", server("FATAL", cannotConnectNow), plant.ErrUnavailable, true},
		{"disk error", server("ERROR", "58030"), plant.ErrUnavailable, false},
		{"panic", server("PANIC", "XX000"), plant.ErrUnavailable, true},
		{"cut", io.ErrUnexpectedEOF, plant.ErrUnavailable, true},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, plant.ErrUnavailable, true},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, plant.ErrUnavailable, true},
		{"time-out", context.DeadlineExceeded, plant.ErrUnavailable, true},
		{"the caller has gone", context.Canceled, none, true},
		{"domain", plant.ErrNotFound, none, true},
		{"closed", errClosed, plant.ErrUnavailable, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := translate(test.err)
			for _, meaning := range []error{plant.ErrUnavailable, plant.ErrFull, plant.ErrUnknown} {
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
	err := fmt.Errorf("%w: %w", plant.ErrUnknown, withoutMeaning(translate(io.ErrUnexpectedEOF)))
	if errors.Is(err, plant.ErrUnavailable) || !errors.Is(err, plant.ErrUnknown) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("%v is ErrUnavailable too", err)
	}
}
