package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
)

// The requests of a Postman collection succeed with the values that they have, on a new server and on a used one. By
// default, the converter writes the type of a value in its place, such as <long>; with parametersResolution=Example it
// takes the examples.
func TestPostman(t *testing.T) {
	t.Parallel()
	s := serve(t)
	collection, report := filepath.Join(t.TempDir(), "collection.json"), filepath.Join(t.TempDir(), "report.json")
	run(t, "openapi2postmanv2", "-s", describe(t, s, "openapi.json"), "-o", collection,
		"-O", "folderStrategy=Paths,parametersResolution=Example")
	for range 2 {
		run(t, "newman", "run", collection, "--env-var", "baseUrl="+s.URL, "--env-var", "bearerToken="+s.Token,
			"--reporters", "json", "--reporter-json-export", report)
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		sent := decode[struct {
			Run struct {
				Executions []struct {
					Item         struct{ Name string }
					Response     struct{ Code int }
					RequestError any
				}
			}
		}](t, text).Run.Executions
		if got, want := len(sent), len(testkit.Operations()); got != want {
			t.Errorf("newman sent %d requests, want one for each of %d operations", got, want)
		}
		for _, e := range sent {
			if e.RequestError != nil || e.Response.Code < 200 || e.Response.Code > 299 {
				t.Errorf("%s: %d, %v; want 2xx", e.Item.Name, e.Response.Code, e.RequestError)
			}
		}
	}
}

// The first request of the description works as it is written.
func TestFirstRequest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, err := exec.LookPath("curl"); err != nil {
		missing.Optional(t, "curl is not installed")
	}
	text, err := os.ReadFile(describe(t, s, "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	prose := decode[struct{ Info struct{ Description string } }](t, text).Info.Description
	_, prose, _ = strings.Cut(prose, "```sh\n")
	script, _, _ := strings.Cut(prose, "```\n")
	script = testkit.ReplaceOnce(t, script, "<ACCESS_TOKEN>", s.Token)
	out, err := exec.Command("bash", "-c", script).Output()
	if want := `{"name":"Monstera deliciosa","tag":"climber"}`; err != nil || string(out) != want {
		t.Errorf("%s\nprints %s, %v; want %s", script, out, err, want)
	}
}

// A client of the public sample creates, lists and removes plants, and each response is one that the sample describes.
func TestPublicSample(t *testing.T) {
	t.Parallel()
	s := serve(t)
	base := prism(t, "proxy", "--errors", filepath.Join(testkit.Root(), "api", "testdata", "sample.yaml"), s.URL)
	for _, r := range []struct {
		method, path, body string
		status             int
		response           string
	}{
		{"POST", "/plants", `{"id":1,"name":"Monstera deliciosa","tag":"climber"}`, 200,
			`{"name":"Monstera deliciosa","tag":"climber"}`},
		{"POST", "/plants", `{"id":2,"name":"Fern"}`, 200, `{"name":"Fern"}`},
		{"POST", "/plants", `{"id":2,"name":"Ivy"}`, 400,
			`{"error":40009,"message":"id 2 already belongs to a plant with a different name or tag"}`},
		{"GET", "/plants?limit=1", "", 200, `[{"id":1,"name":"Monstera deliciosa","tag":"climber"}]`},
		{"GET", "/plants?limit=2000000000", "", 200,
			`[{"id":1,"name":"Monstera deliciosa","tag":"climber"},{"id":2,"name":"Fern"}]`},
		{"DELETE", "/plants/1", "", 204, ""},
		{"GET", "/plants", "", 200, `[{"id":2,"name":"Fern"}]`},
	} {
		a, err := testkit.Target{URL: base, Token: s.Token}.Send(r.method, r.path, r.body)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantResponse(t, r.method+" "+r.path, a, r.status, r.response)
	}
}

var listening = regexp.MustCompile(`Prism is listening on (\S+)\n`)

// prism starts Prism on a free port and returns its address. It is killed at the end of the test.
func prism(t *testing.T, args ...string) string {
	t.Helper()
	cmd := command(t, "prism", append(args, "--host", "127.0.0.1", "--port", "0")...)
	out := new(testkit.Output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("prism %q:\n%s", args, out)
		}
	})
	testkit.WaitFor(t, "Prism to listen", func() bool {
		select {
		case <-ended:
			t.Fatalf("prism %q ended:\n%s", args, out)
		default:
		}
		return listening.MatchString(out.String())
	})
	return listening.FindStringSubmatch(out.String())[1]
}
