package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const runner = "PGTEST_RUNNER" // set in the process that TestStartForRun kills

func TestMain(m *testing.M) {
	if os.Getenv(runner) != "" {
		env, _, err := StartForRun(false)
		fmt.Println(strings.Join(env, " "), err)
		io.ReadAll(os.Stdin)
		return
	}
	os.Exit(Main(m))
}

// The servers of a run are used by other processes and end with the process that has started them, even if it is
// killed. The next one removes their directories.
func TestStartForRun(t *testing.T) {
	binaries(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runner+"=postgres")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	env := strings.Fields(line)
	if err != nil || len(env) < 2 || env[len(env)-1] != "<nil>" {
		t.Fatalf("StartForRun() = %s, %v", line, err)
	}
	var all []*Server
	for _, variable := range env[:len(env)-1] {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
		servers, err := running(name, findBinaries())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, servers...)
	}
	t.Run("database", func(t *testing.T) { all[0].Query(t, Name(all[0].Database(t)), "SELECT 1") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for _, s := range all {
		Eventually(t, "the server ends with the process that has started it", func() bool {
			_, err := s.Attempt("postgres", "SELECT 1")
			return err != nil
		})
	}
	sharedFolder()
	for _, s := range all {
		if _, err := os.Stat(s.dir); memoryFolder() != "" && !os.IsNotExist(err) {
			t.Errorf("the directory of a killed process is left: %v", err)
		}
		os.RemoveAll(s.dir)
	}
}
