package testkit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
)

// Binary is the path of the product, once Main or Build has built it.
var Binary string

// Main builds the product, runs the tests of a package, stops the PostgreSQL server that they shared, and returns the
// exit code. Call it from TestMain.
func Main(m *testing.M) int {
	if err := Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !Race() {
		return pgtest.Main(m)
	}
	return failAfterRace(func() int { return pgtest.Main(m) })
}

// Race reports whether the product is built with the race detector. make test-all does so for some packages.
func Race() bool { return os.Getenv("PLANTSTORE_TEST_RACE") != "" }

// NotWithRace skips a test of what the race detector changes, such as memory and the form of the binary.
func NotWithRace(t testing.TB) {
	t.Helper()
	if Race() {
		t.Skip("the product is built with the race detector")
	}
}

// failAfterRace returns 1 if a process that the tests started had a data race, however that process ended. The detector
// writes its reports to files, because no test reads the standard error of every process.
func failAfterRace(run func() int) (code int) {
	folder, err := os.MkdirTemp("", "plantstore-race-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	os.Setenv("GORACE", "halt_on_error=1 exitcode=66 log_path="+filepath.Join(folder, "report"))
	code = run()
	reports, err := filepath.Glob(filepath.Join(folder, "report.*"))
	if err != nil {
		panic(err)
	}
	for _, path := range reports {
		report, _ := os.ReadFile(path)
		fmt.Fprintf(os.Stderr, "the product has a data race:\n%s", report)
		code = 1
	}
	return code
}

var notInNames = regexp.MustCompile(`[^0-9A-Za-z]+`)

// Build builds the product and sets Binary. All test packages share the file: go build does not write it again if it is
// up to date, and processes that build at the same time wait for each other. GOFLAGS have folders of their own, so that
// none replaces the binary of another.
func Build() error {
	kind, flags := "", []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version=v0.0.0-test"}
	cgo := "CGO_ENABLED=0"
	if Race() { // The translated C code of SQLite is not ours, and would be five times as slow.
		kind, flags = "race", append(flags, "-race", "-gcflags=modernc.org/sqlite/lib=-race=false")
		cgo = "CGO_ENABLED=1"
	}
	variant := strings.Trim(notInNames.ReplaceAllString(os.Getenv("GOFLAGS")+"-"+kind, "-"), "-")
	folder := filepath.Join(Root(), "bin", "test", cmp.Or(variant, "default"))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // which releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	Binary = filepath.Join(folder, "plantstore")
	cmd := exec.Command("go", append(flags, "-o", Binary, "plantstore/cmd/plantstore")...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the product: %w\n%s", err, out)
	}
	return nil
}

// watchSources walks over what the product is built from. go test records which folders a test reads; without this it
// would return an old result from its cache after a change of the product.
var watchSources = sync.OnceFunc(func() {
	for _, folder := range []string{"api", "client", "cmd", "internal"} {
		filepath.WalkDir(filepath.Join(Root(), folder), func(string, fs.DirEntry, error) error { return nil })
	}
})

// Root is the folder of the module. Tests run in the folder of their package, somewhere below it.
func Root() string {
	folder, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			panic(errors.New("no go.mod in any parent folder"))
		}
		folder = filepath.Dir(folder)
	}
}
