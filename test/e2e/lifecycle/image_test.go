package lifecycle

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// instruction returns the arguments of the last instruction of a kind in a Containerfile.
func instruction(t *testing.T, file, name string) string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^`+name+` (.*)$`).FindAllStringSubmatch(file, -1)
	if len(all) == 0 {
		t.Fatalf("the Containerfile has no %s", name)
	}
	return all[len(all)-1][1]
}

func command(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return words
}

// The image is a file system with the program and a folder for data. Its command and its health check run there
// as its user, with its variables, and with nothing else.
func TestImage(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		testkit.Unavailable(t, "only root can run a program in a file system of its own")
	}
	file := testkit.DeployFile(t, "Containerfile")
	user := instruction(t, file, "USER")
	root := t.TempDir()
	program, err := os.ReadFile(testkit.Binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "plantstore"), program, 0o755),
		os.Mkdir(filepath.Join(root, "data"), 0o755),
		os.Chown(filepath.Join(root, "data"), 65534, 65534),
		os.Chmod(root, 0o755), os.Chmod(filepath.Dir(root), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if user != "65534:65534" || !strings.Contains(file, "COPY --from=build --chown="+user+" /data /data\n") {
		t.Errorf("the image runs as %s, want nobody, who owns /data", user)
	}

	var env []string
	for _, m := range regexp.MustCompile(`(?m)^ENV (\w+=)(.*)$`).FindAllStringSubmatch(file, -1) {
		if host, _, err := net.SplitHostPort(m[2]); err == nil { // each test has its own ports
			_, port, _ := net.SplitHostPort(testkit.FreeAddress(t))
			m[2] = net.JoinHostPort(host, port)
		}
		env = append(env, m[1]+m[2])
	}
	inImage := func(args ...string) *exec.Cmd {
		cmd := exec.Command("chroot", append([]string{"--userspec=" + user, root}, args...)...)
		cmd.Env = env
		return cmd
	}
	check := command(t, regexp.MustCompile(`^.*CMD `).ReplaceAllString(instruction(t, file, "HEALTHCHECK"), ""))
	if out, err := inImage(check...).CombinedOutput(); err == nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%q before the start: %v\n%s", check, err, out)
	}
	s := testkit.Launch(t, inImage(append(command(t, instruction(t, file, "ENTRYPOINT")),
		command(t, instruction(t, file, "CMD"))...)...))
	s.WaitServing()
	testkit.WaitFor(t, "the health check of the image to succeed", func() bool { return inImage(check...).Run() == nil })
	testkit.WantResponse(t, "in the image", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
	if info, err := os.Stat(filepath.Join(root, "data", "plantstore.db")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the database: %v, %v", info, err)
	}
	s.Kill()
	if err := inImage(check...).Run(); err == nil {
		t.Errorf("%q succeeds after the end", check)
	}
}

// The build of the image needs no file that .dockerignore leaves out.
func TestImageContext(t *testing.T) {
	testkit.Long(t)
	ignore, err := os.ReadFile(filepath.Join(testkit.Root(), ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	context := t.TempDir()
	for _, m := range regexp.MustCompile(`(?m)^!(\S+)$`).FindAllStringSubmatch(string(ignore), -1) {
		out, err := exec.Command("cp", "-r", filepath.Join(testkit.Root(), m[1]), context).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", m[1], err, out)
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "-trimpath", "-o", os.DevNull, "./cmd/plantstore")
	cmd.Dir = context
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
