package tools

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// Each generator of clients works with our description and with the public sample, and each other tool with ours.
func TestWorksWith(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sandbox")
	ours, err := os.ReadFile(describe(t, s, "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	large := map[string]string{}
	t.Run("tools", func(t *testing.T) {
		for _, g := range generators {
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				id := g.check(t, s.URL, ours, strings.NewReplacer())
				mu.Lock()
				defer mu.Unlock()
				large[g.name] = id
			})
			t.Run(g.name+" with the sample", func(t *testing.T) {
				t.Parallel()
				g.check(t, s.URL, sample(t), g.sample)
			})
		}
		for _, tool := range tools {
			t.Run(tool.name, func(t *testing.T) {
				t.Parallel()
				tool.test(t)
			})
		}
	})
	t.Log(large)
}

var tools = []struct {
	name, packageName, how string
	test                   func(t *testing.T)
}{
	{"Prism as a mock", "@stoplight/prism-cli", mock, testMock},
	{"Prism as a proxy", "@stoplight/prism-cli", proxy, testProxy},
	{"Swagger UI", "swagger-ui-dist", swaggerUI, testSwaggerUI},
	{"Redoc", "redoc", redoc, testRedoc},
	{"MCP", "openapi-mcp-generator", mcpGenerator, testMCP},
}
