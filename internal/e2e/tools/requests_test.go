package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
)

// exchange is a request that newman sent, with its response.
type exchange struct {
	Request struct {
		Method string
		URL    struct{ Path []string }
		Header []header
		Body   struct{ Raw string }
	}
	Response struct {
		Code   int
		Header []header
		Stream struct{ Data []int }
	}
	RequestError any
}

type header struct{ Key, Value string }

func (e exchange) String() string {
	return fmt.Sprintf("%s /%s: %d %.500s", e.Request.Method, strings.Join(e.Request.URL.Path, "/"), e.Response.Code,
		e.body())
}

func (e exchange) body() string {
	var b bytes.Buffer
	for _, c := range e.Response.Stream.Data {
		b.WriteByte(byte(c))
	}
	return b.String()
}

func headers(list []header) http.Header {
	h := http.Header{}
	for _, e := range list {
		h.Add(e.Key, e.Value)
	}
	return h
}

// collection converts a description into a Postman collection. By default, the converter writes the type of a value in
// its place, such as <long>; with parametersResolution=Example it takes the examples.
func collection(t *testing.T, description string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "collection.json")
	run(t, "openapi2postmanv2", "-s", description, "-o", path, "-O", "folderStrategy=Paths,parametersResolution=Example")
	return path
}

// send sends every request of a collection, in order, and checks that each returns 2xx.
func send(t *testing.T, collection, base, token string) []exchange {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	run(t, "newman", "run", collection, "--env-var", "baseUrl="+base, "--env-var", "bearerToken="+token,
		"--reporters", "json", "--reporter-json-export", path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := decode[struct {
		Run struct{ Executions []exchange }
	}](t, text).Run.Executions
	if got, want := len(all), len(testkit.Operations()); got != want {
		t.Errorf("newman sent %d requests, want one for each of %d operations", got, want)
	}
	for _, e := range all {
		if e.RequestError != nil || e.Response.Code < 200 || e.Response.Code > 299 {
			t.Errorf("%s, %v; want 2xx", e, e.RequestError)
		}
	}
	return all
}

// The requests of a Postman collection succeed with the values that they have, on a new server and on a used one.
func TestPostman(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := collection(t, describe(t, s, "openapi.json"))
	for range 2 {
		send(t, c, s.URL, s.Token)
	}
}

// The responses of a mock server are those of the description, and JavaScript can represent their numbers.
func TestPrismMock(t *testing.T) {
	t.Parallel()
	s := serve(t)
	description := describe(t, s, "openapi.json")
	base := prism(t, "mock", description)
	for _, e := range send(t, collection(t, description), base, s.Token) {
		r, err := http.NewRequest(e.Request.Method, "http://x/"+strings.Join(e.Request.URL.Path, "/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = headers(e.Request.Header)
		response := testkit.Response{Status: e.Response.Code, Header: headers(e.Response.Header), Body: e.body()}
		testkit.Check(t, r, e.Request.Body.Raw, response)
		d := json.NewDecoder(strings.NewReader(e.body()))
		d.UseNumber()
		for token, err := d.Token(); err == nil; token, err = d.Token() {
			if n, ok := token.(json.Number); ok {
				if v, err := n.Int64(); err != nil || v > 1<<53 || v < -1<<53 {
					t.Errorf("%s has the number %s", e, n)
				}
			}
		}
	}
}

// A proxy that checks every request and response against the description finds no violation.
func TestPrismProxy(t *testing.T) {
	t.Parallel()
	s := serve(t)
	description := describe(t, s, "openapi.json")
	base := prism(t, "proxy", "--errors", description, s.URL)
	for _, e := range send(t, collection(t, description), base, s.Token) {
		if v := headers(e.Response.Header).Get("sl-violations"); v != "" {
			t.Errorf("%s: %s", e, v)
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
