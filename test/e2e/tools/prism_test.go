package tools

import (
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

const (
	mock  = "npx @stoplight/prism-cli mock openapi.json"
	proxy = "npx @stoplight/prism-cli proxy openapi.json URL --errors"
)

// As a mock of either description, Prism creates a plant.
func testMock(t *testing.T) {
	for _, description := range []string{describe(t, serve(t), "openapi.json"), write(t, "openapi.json", sample(t))} {
		to := startPrism(t, mock, description, "")
		a, err := to.Send("POST", "/plants", `{"id":1,"name":"Fern"}`)
		if err != nil || a.Status != 200 || decode[struct{ Name string }](t, []byte(a.Body)).Name == "" {
			t.Errorf("the mock responds to a create with %d %s, %v; want a plant", a.Status, a.Body, err)
		}
	}
}

// As a proxy, Prism finds that the responses are as they are described.
func testProxy(t *testing.T) {
	s := serve(t)
	to := startPrism(t, proxy, describe(t, s, "openapi.json"), s.URL)
	to.Token = s.Token
	want := func(method, path, body string, status int, response string) {
		t.Helper()
		a, err := to.Send(method, path, body)
		if found := a.Header.Get("sl-violations"); err != nil || found != "" {
			t.Errorf("%s %s: %v, with the violations %s", method, path, err, found)
		}
		testkit.WantResponse(t, method+" "+path, a, status, response)
	}
	want("POST", "/plants", `{"id":1,"name":"Fern"}`, 200, `{"name":"Fern"}`)
	want("GET", "/plants?limit=10", "", 200, `[{"id":1,"name":"Fern"}]`)
	want("POST", "/plants", `{"id":1,"name":"Moss"}`, 400,
		`{"error":40009,"message":"id 1 already belongs to a plant with a different name or tag","field":"id"}`)
}

// startPrism starts Prism and waits until it listens.
func startPrism(t *testing.T, command, description, target string) testkit.Target {
	t.Helper()
	address := testkit.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	words := strings.Fields(strings.NewReplacer("npx @stoplight/prism-cli ", "", "openapi.json", description,
		"URL", target).Replace(command))
	cmd := exec.CommandContext(t.Context(), filepath.Join(npm(t), ".bin", "prism"), append(words, "--port", port)...)
	var log testkit.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() }) // the context ended
	testkit.WaitFor(t, "Prism", func() bool {
		response, err := http.Get("http://" + address + "/plants")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
	return testkit.Target{URL: "http://" + address, Token: "any"}
}
