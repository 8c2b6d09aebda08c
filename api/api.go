// Package api holds the contract and the published description of the service.
package api

import (
	"bytes"
	_ "embed"
)

//go:embed openapi.yaml
var openapiYAML []byte

//go:embed openapi.json
var openapiJSON []byte

// sampleURL is the server that the files name; what is served names the real one.
const sampleURL = "http://127.0.0.1:8080"

// YAML is the published description with base as its server.
func YAML(base string) []byte { return bytes.ReplaceAll(openapiYAML, []byte(sampleURL), []byte(base)) }

// JSON is the same description in JSON.
func JSON(base string) []byte { return bytes.ReplaceAll(openapiJSON, []byte(sampleURL), []byte(base)) }
