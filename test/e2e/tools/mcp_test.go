package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const mcpGenerator = "npx openapi-mcp-generator --input openapi.json --output server"

// A generated MCP server has a tool for each operation. The tool that creates plants does so.
func testMCP(t *testing.T) {
	s := serve(t, "--sandbox")
	dir, box := filepath.Dir(describe(t, s, "openapi.json")), newSandbox(t, s.URL)
	execute(t, dir, mcpGenerator)
	execute(t, dir, "npx tsc -p server")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	cmd := exec.CommandContext(ctx, "node", "server/build/index.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "API_BASE_URL="+s.URL, "BEARER_TOKEN_BEARERAUTH="+box.Token)
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal(err, err2, cmd)
	}
	defer cmd.Wait()
	defer cancel()
	responses := json.NewDecoder(out)
	call := func(id int, method, params string) (result json.RawMessage) {
		t.Helper()
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		var response struct {
			ID     int
			Result json.RawMessage
			Error  any
		}
		if err := responses.Decode(&response); err != nil || response.ID != id || response.Error != nil {
			t.Fatalf("%s: %v, %+v", method, err, response)
		}
		return response.Result
	}
	call(1, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	listed := decode[struct{ Tools []struct{ Name string } }](t, call(2, "tools/list", `{}`)).Tools
	if want := strings.Count(string(read(t, filepath.Join(dir, "openapi.json"))), `"operationId"`); len(listed) != want {
		t.Errorf("the server has the tools %v, want one for each of %d operations", listed, want)
	}
	result := call(3, "tools/call", `{"name":"createPlant","arguments":{"requestBody":{"id":1,"name":"Fern"}}}`)
	if got, want := box.conversation(t), `POST /plants {"name":"Fern","id":1} 200`+"\n"; got != want {
		t.Errorf("the server sent %q, want %q; the tool returned %s", got, want, result)
	}
}
