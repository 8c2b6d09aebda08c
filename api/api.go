// Package api embeds the published OpenAPI description of the service.
package api

import (
	"bytes"
	"embed"
)

//go:embed openapi.yaml openapi.json openapi.sandbox.yaml openapi.sandbox.json
var files embed.FS

// sampleURL is the server in the files, which the real one replaces.
const sampleURL = "http://127.0.0.1:8080"

// Description returns the description of a server with or without sandboxes, with base as its server. The format is
// json or yaml.
func Description(format, base string, sandbox bool) []byte {
	name := "openapi." + format
	if sandbox {
		name = "openapi.sandbox." + format
	}
	text, _ := files.ReadFile(name) // It is embedded.
	return bytes.ReplaceAll(text, []byte(sampleURL), []byte(base))
}
