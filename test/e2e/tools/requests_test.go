package tools

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/httpapi"
	"plantstore/test/testkit"
	"plantstore/test/testkit/missing"
)

const postman = "npx openapi-to-postmanv2 -s openapi.json -o collection.json " +
	"-O folderStrategy=Paths,parametersResolution=Example"

// The requests of a Postman collection succeed with the values that they have, on a new server and on a used one. Those
// that name an endpoint of webhooks return 404, since the service chooses its id. By default, the converter writes the
// type of a value in its place, such as <long>; with parametersResolution=Example it takes the examples.
func testPostman(t *testing.T) {
	s := serve(t)
	dir := filepath.Dir(describe(t, s, "openapi.json"))
	collection, report := filepath.Join(dir, "collection.json"), filepath.Join(dir, "report.json")
	execute(t, dir, postman)
	for range 2 {
		run(t, "newman", "run", collection, "--env-var", "baseUrl="+s.URL, "--env-var", "bearerToken="+s.Token,
			"--reporters", "json", "--reporter-json-export", report)
		sent := decode[struct {
			Run struct {
				Executions []struct {
					Item struct {
						Name    string
						Request struct{ URL struct{ Path []string } }
					}
					Response     struct{ Code int }
					RequestError any
				}
			}
		}](t, read(t, report)).Run.Executions
		if got, want := len(sent), operations(); got != want {
			t.Errorf("newman sent %d requests, want one for each of %d operations", got, want)
		}
		for _, e := range sent {
			path, ok := e.Item.Request.URL.Path, e.Response.Code/100 == 2
			if path[0] == "webhooks" && len(path) > 1 {
				ok = e.Response.Code == 404
			}
			if e.RequestError != nil || !ok {
				t.Errorf("%s: %d, %v", e.Item.Name, e.Response.Code, e.RequestError)
			}
		}
	}
}

// operations is the number of operations that a server without sandboxes describes.
func operations() int {
	return len(slices.DeleteFunc(httpapi.Routes(), func(r httpapi.Route) bool { return r.Sandbox }))
}

// The first request of the description works as it is written.
func TestFirstRequest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, err := exec.LookPath("curl"); err != nil {
		missing.Optional(t, "curl is not installed")
	}
	text := read(t, describe(t, s, "openapi.json"))
	prose := decode[struct{ Info struct{ Description string } }](t, text).Info.Description
	_, prose, _ = strings.Cut(prose, "```sh\n")
	script, _, _ := strings.Cut(prose, "```\n")
	script = testkit.ReplaceOnce(t, script, "<ACCESS_TOKEN>", s.Token)
	out, err := exec.Command("bash", "-c", script).Output()
	if want := `{"name":"Monstera deliciosa","tag":"climber"}`; err != nil || string(out) != want {
		t.Errorf("%s\nprints %s, %v; want %s", script, out, err, want)
	}
}
