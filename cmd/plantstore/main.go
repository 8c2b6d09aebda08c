// Command plantstore serves the Plant Store API, manages its tokens and calls a running service.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/storage"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
)

func main() {
	env := environment{os.Stdout, os.Stderr, map[string]string{}, openStorage}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		env.variables[name] = value
	}
	os.Exit(env.run(context.Background(), os.Args[1:]))
}

// version is set by the build.
var version string

// environment is what a command uses besides its options.
type environment struct {
	stdout, stderr io.Writer
	variables      map[string]string
	openStorage    func(ctx context.Context, db string, use access, unsafeDurability bool) (storage.Storage, error)
}

func (env environment) run(ctx context.Context, args []string) int {
	root := env.commands()
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	args = negativesLast(root, args)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitCode(err)
	text := oneLine(err.Error())
	if text == "" {
		return code
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		text += "; to trust another authority, set SSL_CERT_FILE to its certificate"
	} else if code == unreachable {
		text += "; check --url, and that the service is running"
	}
	env.readVariables(cmd.Flags()) // which a wrong command line prevented
	if dash := slices.Index(args, "--"); dash >= 0 {
		args = args[:dash]
	}
	asJSON, noFlag := cmd.Flags().GetBool("json")      // false in a command without it
	asJSON = asJSON || slices.Contains(args, "--json") // also after a flag that is invalid
	line := newJSONError(err, text)
	line.Exit = code
	env.printError(asJSON && noFlag == nil, line, cmd.CommandPath()+": "+text)
	return code
}

const notFound, unreachable = 3, 5 // the codes that commands look at

// exitError ends the process with the exit code of another program. If it has no text, nothing is printed.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

// exitCode returns the code that the help describes.
func exitCode(err error) int {
	ended, isExit := errors.AsType[exitError](err)
	_, isUsage := errors.AsType[usageError](err)
	e, isResponse := errors.AsType[*client.Error](err)
	_, isTransport := errors.AsType[*url.Error](err)
	switch {
	case isExit:
		return ended.code
	case isUsage:
		return 2
	case errors.Is(err, client.ErrUnknown):
		return 1
	case errors.Is(err, token.ErrUnknown), errors.Is(err, errUnknownStore),
		isResponse && (e.Number == 40401 || e.Number == 40403):
		return notFound
	case errors.Is(err, token.ErrNameTaken),
		isResponse && (e.Number == 40009 || e.Status == http.StatusConflict || e.Status == http.StatusPreconditionFailed):
		return 4
	case !isResponse && isTransport && !errors.Is(err, context.Canceled):
		return unreachable
	case isResponse && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden ||
		e.Status == http.StatusTooManyRequests):
		return 6
	}
	return 1
}

// jsonError is an error as --json prints it.
type jsonError struct {
	Line    int    `json:"line,omitzero"`  // of a file
	Error   int32  `json:"error,omitzero"` // the error code of the response
	Message string `json:"message"`
	Exit    int    `json:"exit,omitzero"`
}

// newJSONError returns an error whose text may start with the error code of the response.
func newJSONError(err error, text string) jsonError {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || errors.Is(err, client.ErrUnknown) {
		return jsonError{Message: text}
	}
	return jsonError{Error: e.Number, Message: strings.TrimPrefix(text, fmt.Sprintf("%d: ", e.Number))}
}

// printError prints an error as JSON, or a text, in one write, because rows are imported in parallel.
func (env environment) printError(asJSON bool, e jsonError, text string) {
	if asJSON {
		quoted, _ := json.Marshal(e)
		text = string(quoted)
	}
	fmt.Fprint(env.stderr, text+"\n")
}

// oneLine returns the text of joined errors in one line that cannot control a terminal.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	return telemetry.Escape(strings.Join(lines, "; "))
}

// negativesLast moves negative numbers that are arguments, such as ids, to the end, after "--". They would be read as
// flags otherwise.
func negativesLast(root *cobra.Command, args []string) []string {
	cmd, _, _ := root.Find(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if isNegative := len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9'; i == 0 || !isNegative {
			continue
		}
		name, isFlag := strings.CutPrefix(args[i-1], "--")
		if fl := cmd.Flags().Lookup(name); !isFlag || fl == nil || fl.NoOptDefVal != "" {
			others := negativesLast(root, slices.Concat(args[:i], args[i+1:]))
			if !slices.Contains(others, "--") {
				others = append(others, "--")
			}
			return append(others, arg)
		}
	}
	return append([]string{}, args...) // cobra reads os.Args for nil
}

// untilSignal returns a context that ends with the first signal to stop. A second SIGINT or SIGTERM ends the process. A
// second SIGHUP does not, because a terminal that is closed may send it several times.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE) // the service outlives the reader of its log
	signals := stopSignals()
	if slices.Contains(signals, os.Signal(syscall.SIGHUP)) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // stop then does not restore the default
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// stopSignals returns the signals that ask the process to stop.
func stopSignals() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) { // it is ignored under nohup
		return []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
}
