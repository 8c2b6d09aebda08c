// Command mutate measures how many random faults the tests of a package detect. It changes one
// expression or statement at a time, passes the changed file to the compiler with -overlay, so that
// the working tree stays untouched, and runs the tests.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".", "`directory` of the module")
	flag.IntVar(&o.count, "n", 40, "mutants per package")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the random choice")
	flag.Float64Var(&o.min, "min", 0, "fail if a package scores less than this `percentage`")
	flag.Parse()
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	dir   string
	count int
	seed  uint64
	min   float64
}

// judges lists packages whose tests run a package that has no tests of its own.
var judges = map[string][]string{
	"plantstore/internal/storage/storagetest": {"plantstore/internal/storage/sqlite"},
}

type pkg struct {
	Dir, ImportPath string
	GoFiles         []string
	TestGoFiles     []string
	XTestGoFiles    []string
}

func run(o options, patterns []string, out io.Writer) error {
	packages, err := list(o.dir, patterns)
	if err != nil {
		return err
	}
	var total score
	var errs []error
	for _, p := range packages {
		s, err := judge(o, p, out)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.ImportPath, err))
			continue
		}
		fmt.Fprintf(out, "%-40s %v\n", p.ImportPath, s)
		total.caught += s.caught
		total.all += s.all
		if s.all > 0 && s.percentage() < o.min {
			errs = append(errs, fmt.Errorf("%s: score %.1f %% is below %.1f %%", p.ImportPath, s.percentage(), o.min))
		}
	}
	fmt.Fprintf(out, "%-40s %v\n", "total", total)
	return errors.Join(errs...)
}

type score struct{ caught, all int }

func (s score) percentage() float64 { return 100 * float64(s.caught) / float64(max(s.all, 1)) }

func (s score) String() string {
	return fmt.Sprintf("%3d of %3d caught  %5.1f %%", s.caught, s.all, s.percentage())
}

// list returns the packages that have files other than tests for this system.
func list(dir string, patterns []string) ([]pkg, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []pkg
	for d := json.NewDecoder(strings.NewReader(string(stdout))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		if len(p.GoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

// judge runs the tests of p against o.count mutants and prints those that no test detects.
func judge(o options, p pkg, out io.Writer) (score, error) {
	tests, err := judgesOf(o.dir, p)
	if err != nil {
		return score{}, err
	}
	mutants, err := find(p)
	if err != nil {
		return score{}, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return score{}, err
	}
	defer os.RemoveAll(tmp)
	j := judging{dir: o.dir, tmp: tmp, tests: tests, limit: 10 * time.Minute}
	started := time.Now()
	if result, output := j.try(nil); result != survived {
		return score{}, fmt.Errorf("the tests fail without a mutation (%s):\n%s", result, output)
	}
	j.limit = 20*time.Second + 5*time.Since(started)

	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(mutants), func(i, k int) { mutants[i], mutants[k] = mutants[k], mutants[i] })
	var s score
	for _, m := range mutants {
		if s.all == o.count {
			break
		}
		switch result, output := j.try(&m); result {
		case failed:
			return s, fmt.Errorf("%s: %s", m, output)
		case survived:
			s.all++
			fmt.Fprintf(out, "survived  %s\n", m.in(o.dir))
		case caught:
			s.all++
			s.caught++
		}
	}
	return s, nil
}

func judgesOf(dir string, p pkg) ([]pkg, error) {
	if others := judges[p.ImportPath]; others != nil {
		return list(dir, others)
	}
	if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
		return nil, nil
	}
	return []pkg{p}, nil
}

type result string

const (
	survived result = "survived"
	caught   result = "caught"
	invalid  result = "does not compile"
	failed   result = "failed to run"
)

// judging is what all mutants of a package share.
type judging struct {
	dir, tmp string
	tests    []pkg
	limit    time.Duration // of one run of the tests
}

// try returns how the tests react to a mutant, or to the unchanged source if m is nil.
func (j judging) try(m *mutant) (result, string) {
	overlay, err := j.overlay(m)
	if err != nil {
		return failed, err.Error()
	}
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -pgo=off -overlay=" + overlay)
	// Tests that build the product themselves get the mutant too.
	env := append(os.Environ(), "GOFLAGS="+flags)
	for _, p := range j.tests {
		binary := filepath.Join(j.tmp, "test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-o", binary, p.ImportPath)
		build.Dir, build.Env = j.dir, env
		if output, err := build.CombinedOutput(); err != nil {
			return invalid, string(output)
		}
		if output, err := j.test(p, binary, env); err != nil {
			return caught, fmt.Sprintf("%s\n%v", output, err)
		}
	}
	return survived, ""
}

// overlay writes the mutated file and the overlay that puts it in the place of the original.
func (j judging) overlay(m *mutant) (string, error) {
	replace := map[string]string{}
	if m != nil {
		replace[m.file] = filepath.Join(j.tmp, "mutant.go")
		if err := os.WriteFile(replace[m.file], m.source(), 0o644); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(j.tmp, "overlay.json")
	return path, os.WriteFile(path, content, 0o644)
}

// test runs a test binary in its package's directory, as go test does. A mutant may allocate without
// end or leave processes and files behind: memory is limited, the rest is removed.
func (j judging) test(p pkg, binary string, env []string) (string, error) {
	tmp, err := os.MkdirTemp("", "m")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o777); err != nil { // PostgreSQL runs as another user.
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8388608; exec "$@"`, "sh",
		binary, "-test.failfast", "-test.timeout="+j.limit.String())
	cmd.Dir, cmd.Env = p.Dir, append(env, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	if cmd.Process != nil {
		_ = kill() // The group may be empty already.
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // A child kept the output open; the test itself passed.
	}
	return string(output), err
}

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	*t = (*t)[max(0, len(*t)-4096):]
	return len(b), nil
}

// in returns the description of a mutant with its path relative to dir.
func (m mutant) in(dir string) string {
	root, _ := filepath.Abs(dir)
	path, err := filepath.Rel(root, m.file)
	if err != nil {
		path = m.file
	}
	return fmt.Sprintf("%s:%d\n\t- %s\n\t+ %s", path, m.line, m.excerpt(false), cmp.Or(m.excerpt(true), "(removed)"))
}

func (m mutant) String() string { return m.in("/") }
