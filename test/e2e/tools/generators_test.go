package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"plantstore/client"
	"plantstore/test/testkit"
)

// generator generates clients. The program in its folder of testdata uses the client.
type generator struct {
	folder, packages string // separated by spaces
	command          string
	build, start     string
	large            string            // the id that it sends as 2^53 + 1
	sample           *strings.Replacer // replaces the names of our operations, since the sample has no operationId
}

const oapiCodegen = "v2.8.2"

var generators = []generator{
	{
		"oapi-codegen", "", "go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@" + oapiCodegen +
			" -generate types,client -package main -o client.go openapi.json",
		"go vet -mod=mod .", "go run -mod=mod .", "9007199254740993",
		strings.NewReplacer("CreatePlantWithResponse(ctx, &CreatePlantParams{}, ", "PostPlantsWithResponse(ctx, ",
			"ListPlants", "GetPlants", `"shade", 10`, `"shade", int32(10)`),
	},
	{
		"openapi-typescript", "openapi-typescript openapi-fetch", "npx openapi-typescript openapi.json -o schema.ts",
		tsc, node, rounded, strings.NewReplacer(),
	},
	{"hey-api", "@hey-api/openapi-ts", "npx @hey-api/openapi-ts -i openapi.json -o client", tsc, node, rounded, imports},
	{"orval", "orval", "npx orval --input openapi.json --output client.ts --client fetch", tsc, node, rounded, imports},
	{
		"swagger-typescript-api", "swagger-typescript-api",
		"npx swagger-typescript-api generate --path openapi.json --name client.ts", tsc, node, rounded,
		strings.NewReplacer("createPlant", "plantsCreate", "listPlants", "plantsList"),
	},
	{"kubb", "@kubb/cli @kubb/plugin-client", "npx kubb generate", tsc, node, rounded, imports},
}

const tsc, node, rounded = "npx tsc", "node program.js", "9007199254740992"

var imports = strings.NewReplacer("{ createPlant,", "{ postPlants as createPlant,", " listPlants }",
	" getPlants as listPlants }")

// faults make the first create fail twice, although it is executed each time.
const faults = `[{"method":"POST","path":"/plants","code":503,"when":"after","times":1},` +
	`{"method":"POST","path":"/plants","drop":true,"when":"after","times":1}]`

// conversation is what a program must send, and the statuses that it gets: it repeats a create that fails, creates the
// plant again, lists, gets an error, and stores what it read in these responses as the name of another plant. The id
// of that plant is 2^53 + 1.
const conversation = `POST /plants {"id":1,"name":"Fern","tag":"shade"} 503
POST /plants {"id":1,"name":"Fern","tag":"shade"} 0
POST /plants {"id":1,"name":"Fern","tag":"shade"} 200
POST /plants {"id":1,"name":"Fern","tag":"shade"} 200
GET /plants?limit=10 200
POST /plants {"id":1,"name":"Moss"} 400
POST /plants {"id":LARGE,"name":"Fern, 1 plant, error 40009"} 200
`

const stored = `[{"id":1,"name":"Fern","tag":"shade"},{"id":LARGE,"name":"Fern, 1 plant, error 40009"}]`

// check generates a client from a description, builds the program, and runs it with a sandbox.
func (g generator) check(t *testing.T, service string, description []byte, names *strings.Replacer) {
	t.Helper()
	dir, box := t.TempDir(), newSandbox(t, service)
	copyFiles(t, "testdata", dir, names)
	copyFiles(t, filepath.Join("testdata", g.folder), dir, names)
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), description, 0o644); err != nil {
		t.Fatal(err)
	}
	box.send(t, "PUT", "/faults", faults)
	execute(t, dir, g.command)
	execute(t, dir, g.build)
	execute(t, dir, g.start+" "+service+" "+box.Token)
	if got, want := box.conversation(t), strings.ReplaceAll(conversation, "LARGE", g.large); got != want {
		t.Errorf("the program sent\n%swant\n%s", got, want)
	}
	if got, want := box.send(t, "GET", "/plants", ""), strings.ReplaceAll(stored, "LARGE", g.large); got != want {
		t.Errorf("stored are %s, want %s", got, want)
	}
}

// copyFiles copies the files of a folder of testdata. The names of Go files end with .txt there.
func copyFiles(t *testing.T, from, to string, names *strings.Replacer) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob(%s) = %v, %v", from, files, err)
	}
	for _, file := range files {
		to := filepath.Join(to, strings.TrimSuffix(filepath.Base(file), ".txt"))
		if err := os.WriteFile(to, []byte(names.Replace(string(read(t, file)))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sandbox is an empty store, and the requests that were sent to it.
type sandbox struct{ testkit.Target }

func newSandbox(t *testing.T, service string) sandbox {
	t.Helper()
	box, err := client.NewSandbox(t.Context(), service, client.WithSandbox("empty", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return sandbox{testkit.Target{URL: service, Token: box.Token}}
}

// send returns the body of the response to a request that must succeed.
func (s sandbox) send(t *testing.T, method, path, body string) string {
	t.Helper()
	a, err := s.Send(method, path, body)
	if err != nil || a.Status != 200 {
		t.Fatalf("%s %s: %d %s, %v", method, path, a.Status, a.Body, err)
	}
	return a.Body
}

// conversation returns the requests that were sent so far, oldest first, each with the status of its response.
func (s sandbox) conversation(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	type request struct {
		Method, Path, Query, Body string
		Status                    int
	}
	for _, r := range slices.Backward(decode[[]request](t, []byte(s.send(t, "GET", "/requests", "")))) {
		line := fmt.Sprintf("%s %s?%s %s %d\n", r.Method, r.Path, r.Query, r.Body, r.Status)
		all.WriteString(strings.NewReplacer("? ", " ", "  ", " ").Replace(line))
	}
	return all.String()
}

// sample returns the public sample as JSON.
func sample(t *testing.T) []byte {
	t.Helper()
	var document any
	if err := yaml.Unmarshal(read(t, "../../../api/testdata/sample.yaml"), &document); err != nil {
		t.Fatal(err)
	}
	converted, _ := json.Marshal(document) // It cannot fail for a document of YAML.
	return converted
}
