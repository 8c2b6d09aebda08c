// Package api embeds the published OpenAPI description of the service.
package api

import (
	"bytes"
	_ "embed"
)

//go:embed openapi.yaml
var openapiYAML []byte

//go:embed openapi.json
var openapiJSON []byte

// sampleURL is the server in the files, which the real one replaces.
const sampleURL = "http://127.0.0.1:8080"

// YAML returns the description with base as its server.
func YAML(base string) []byte { return bytes.ReplaceAll(openapiYAML, []byte(sampleURL), []byte(base)) }

// JSON returns the same description in JSON.
func JSON(base string) []byte { return bytes.ReplaceAll(openapiJSON, []byte(sampleURL), []byte(base)) }
