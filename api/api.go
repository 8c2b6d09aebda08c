// Package api embeds the published OpenAPI description of the service, and the cases of plantstore conform.
package api

import (
	"bytes"
	"embed"
)

//go:embed openapi.yaml openapi.json openapi.sandbox.yaml openapi.sandbox.json conform.json
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

// Conform returns the cases that a server of the API must pass, as JSON. conform.yaml says what they mean.
func Conform() []byte {
	text, _ := files.ReadFile("conform.json") // It is embedded.
	return text
}
