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

	"plantstore/internal/store/postgres/pgtest"
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
	return pgtest.Main(m)
}

// Build builds the product and sets Binary. All test packages share the file: go build does not write it again if it is
// up to date.
func Build() (err error) {
	Binary, err = BuildCommand("plantstore", "plantstore/cmd/plantstore", "-ldflags", "-X main.version=v0.0.0-test")
	return err
}

var notInNames = regexp.MustCompile(`[^0-9A-Za-z]+`)

// BuildCommand builds a command of this module as a static binary under bin/test and returns its path. Processes that
// build at the same time wait for each other. Those with other GOFLAGS have a folder of their own, so that they do not
// replace the binary.
func BuildCommand(name, pkg string, flags ...string) (path string, err error) {
	variant := cmp.Or(strings.Trim(notInNames.ReplaceAllString(os.Getenv("GOFLAGS"), "-"), "-"), "default")
	folder := filepath.Join(Root(), "bin", "test", variant)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path = filepath.Join(folder, name)
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, flags...)
	build := exec.Command("go", append(args, pkg)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
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
