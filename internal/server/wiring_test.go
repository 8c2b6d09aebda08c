package server

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"plantstore/api"
	"plantstore/internal/listen"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

func TestBaseURL(t *testing.T) {
	listening := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	for text, want := range map[string]string{
		"":                           "http://127.0.0.1:8080",
		"http://plants.example":      "http://plants.example",
		"https://plants.example/":    "https://plants.example",
		"https://plants.example/a/b": "https://plants.example/a/b",
		"https://[::1]:8080/a//":     "https://[::1]:8080/a",

		"plants.example":                "must be an address",
		"ftp://plants.example":          "must be an address",
		"https://plants.example:x":      "must be an address",
		"https://me@plants.example":     "must have no user, query or fragment",
		"https://plants.example/?a=b":   "must have no user, query or fragment",
		"https://plants.example/#a":     "must have no user, query or fragment",
		"https://plants.example/{a}":    "must have a path of plain segments",
		"https://plants.example/a%20b":  "must have a path of plain segments",
		"https://plants.example/a/../b": "must have a path of plain segments",
		"https://plants.example//a":     "must have a path of plain segments",
	} {
		got, err := baseURL(text, listening, false)
		if strings.HasPrefix(want, "must") {
			if err == nil || !strings.HasPrefix(err.Error(), "base URL \""+text+"\" "+want) {
				t.Errorf("baseURL(%q) = %v, %v, want an error", text, got, err)
			}
		} else if err != nil || got.String() != want {
			t.Errorf("baseURL(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
	for _, every := range []net.IP{net.IPv4zero, net.IPv6unspecified} { // no client can use these
		got, err := baseURL("", &net.TCPAddr{IP: every, Port: 8443}, true)
		if err != nil || got.String() != "https://localhost:8443" {
			t.Errorf("baseURL() on %v = %v, %v", every, got, err)
		}
	}
}

func openStorage(t *testing.T) storage.Storage {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func TestFixedToken(t *testing.T) {
	log := new(bytes.Buffer)
	for text, want := range map[string]string{
		"": "none", "sixteen-letters.": "fixed", strings.Repeat("x", 300): "fixed",
		"fifteen-letters": "error", "sixteen letters.": "error", "sixteen-lettersü": "error",
	} {
		cfg := Config{Token: text, TokenFrom: "SOURCE", Log: slog.New(slog.NewJSONHandler(log, nil))}
		switch got, err := fixedToken(cfg); {
		case (err != nil) != (want == "error"), (got != nil) != (want == "fixed"):
			t.Errorf("fixedToken(%q) = %v, %v, want %s", text, got, err, want)
		case got != nil && (got.Hash != token.HashOf(text) || got.Store != token.DefaultStore ||
			got.Scopes != token.AllScopes):
			t.Errorf("fixedToken(%q) = %+v", text, got)
		}
	}
	text := log.String()
	if strings.Count(text, `"fixed token in use, with every scope","from":"SOURCE"`) != 2 ||
		strings.Contains(text, "sixteen") {
		t.Errorf("log: %s", text)
	}
}

// taken is a store where another process issues the first token.
type taken struct{ storage.Storage }

func (taken) AddToken(context.Context, token.Token) error { return token.ErrNameTaken }

func TestWelcome(t *testing.T) {
	base := &url.URL{Scheme: "http", Host: "plants.example"}
	st := openStorage(t)
	print := func(st storage.Storage, hasFixed bool) string {
		out := new(bytes.Buffer)
		if err := welcome(t.Context(), Config{Out: out}, st, base, hasFixed); err != nil {
			t.Error(err)
		}
		text, ok := strings.CutPrefix(out.String(), "Plant Store serves http://plants.example\n"+
			"Console: http://plants.example/\nReference: http://plants.example/docs\n")
		if !ok {
			t.Errorf("printed %q", out)
		}
		return text
	}
	if err := welcome(t.Context(), Config{}, st, base, false); err != nil {
		t.Error(err)
	}
	if all, err := st.Tokens(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("without an output: %d tokens, %v", len(all), err)
	}
	if text := print(st, true); text != "" {
		t.Errorf("with a fixed token: %q", text)
	}
	if text := print(taken{st}, false); text != "" {
		t.Errorf("another process was first: %q", text)
	}
	first := print(st, false)
	_, credential, _ := strings.Cut(first, "Bearer ")
	credential, _, _ = strings.Cut(credential, "'")
	got, err := st.TokenByHash(t.Context(), token.HashOf(credential))
	if err != nil || got.Store != token.DefaultStore || got.Scopes != token.AllScopes || !got.Expires.IsZero() {
		t.Errorf("the first token %q: %+v, %v", credential, got, err)
	}
	if !strings.Contains(first, "\n\n  "+credential+"\n\n") ||
		!strings.Contains(first, "curl -i http://plants.example/plants ") {
		t.Errorf("printed %q", first)
	}
	pruned := openStorage(t)
	if _, err := pruned.CreateBatch(t.Context(), []plant.Record{storagetest.Record("main", 1, "Fern", "-")}); err != nil {
		t.Fatal(err)
	}
	if text := print(pruned, false); !strings.HasPrefix(text, "Another token: plantstore token issue") {
		t.Errorf("with plants, and without tokens: %q", text)
	}
	second := print(st, false)
	if !strings.HasPrefix(second, "Another token: plantstore token issue") || strings.Contains(second, credential) {
		t.Errorf("the second time: %q", second)
	}
}

func TestMaxBodies(t *testing.T) {
	for _, c := range []struct{ memory, body, want int64 }{
		{math.MaxInt64, 64 << 10, 64 << 20}, {512 << 20, 64 << 10, 64 << 20}, {256 << 20, 64 << 10, 32 << 20},
		{1 << 20, 64 << 10, 256 << 10}, {math.MaxInt64, 64 << 20, 256 << 20},
	} {
		if got := maxBodies(c.memory, c.body); got != c.want {
			t.Errorf("maxBodies(%d, %d) = %d, want %d", c.memory, c.body, got, c.want)
		}
	}
}

// The environment of the process comes before our settings of the collector.
func TestTuneCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, c := range []struct {
		gogc, limit    string
		memory, bodies int64
		conns          int
		percent        int
		wantLimit      int64
	}{
		{"", "", 256 << 20, 64 << 20, 1024, 400, 128 << 20},
		{"", "", math.MaxInt64, 64 << 20, 1024, 400, 192 << 20},
		{"", "", math.MaxInt64, 256 << 20, 4096, 400, 672 << 20},
		{"50", "1GiB", 1 << 30, 64 << 20, 1024, 100, math.MaxInt64},
		{"50", "", 1 << 30, 64 << 20, 1024, 100, 192 << 20},
	} {
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.limit)
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		tuneCollector(c.memory, c.bodies, c.conns)
		if percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); percent != c.percent || limit != c.wantLimit {
			t.Errorf("%+v: percent %d, limit %d", c, percent, limit)
		}
	}
}

// The description names the address of this server.
func TestDescription(t *testing.T) {
	s := &service{address: "https://plants.example/v"}
	for _, format := range []string{"json", "yaml"} {
		w := httptest.NewRecorder()
		s.pages("/v")["GET /v/openapi."+format].ServeHTTP(w, httptest.NewRequest("GET", "/v/openapi."+format, nil))
		h, want := w.Header(), string(api.Description(format, s.address, false))
		if h.Get("Content-Type") != "application/"+format || h.Get("Content-Length") != strconv.Itoa(len(want)) ||
			w.Body.String() != want {
			t.Errorf("openapi.%s has %v and %d bytes", format, h, w.Body.Len())
		}
	}
}

// /healthz is for a load balancer: it fails from the signal to stop on.
func TestHealthz(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{conns: listen.New(l, listen.Config{Max: 1})}
	want := func(status int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		s.pages("/v")["GET /v/healthz"].ServeHTTP(w, httptest.NewRequest("GET", "/v/healthz", nil))
		if w.Code != status || w.Body.String() != body || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("/healthz = %d %q %v, want %d %q", w.Code, w.Body, w.Header(), status, body)
		}
	}
	want(200, "ok\n")
	s.conns.Close()
	want(503, "")
}
