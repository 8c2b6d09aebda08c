package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode/utf8"

	"plantstore/bench/measure"
	"plantstore/internal/token"
)

// bare is what a create and a get cost with net/http and encoding/json, with the checks of the product: route, token
// and scope, media type, size and content of the body, except for what encoding/json ignores. It sends the response
// that the product would send. It stores nothing, and has no limits on connections, memory and rates, no metrics and no
// log. A get returns the one plant that it has, under the id in the path.
type bare struct {
	tokens map[token.Hash]token.Scope
	plant  barePlant
}

type barePlant struct {
	ID   int64   `json:"id,omitempty"` // 0 in the response to a create, which has none
	Name string  `json:"name"`
	Tag  *string `json:"tag,omitempty"`
}

func serveBare(ctx context.Context, credential string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	tag := measure.Tag
	h := &bare{
		tokens: map[token.Hash]token.Scope{token.HashOf(credential): token.Create | token.Read},
		plant:  barePlant{Name: measure.Name(10), Tag: &tag},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plants", h.allow(token.Create, h.create))
	mux.HandleFunc("GET /plants/{id}", h.allow(token.Read, h.get))
	service := &http.Server{
		ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout, Handler: mux,
	}
	fmt.Printf("net/http serves http://%s\n", l.Addr())
	context.AfterFunc(ctx, func() { service.Close() })
	if err := service.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// allow calls a handler for requests whose token has the scope.
func (h *bare) allow(scope token.Scope, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", strconv.FormatUint(rand.Uint64()|1<<63, 32))
		credential, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch scopes, known := h.tokens[token.HashOf(credential)]; {
		case !isBearer || !known:
			http.Error(w, "unknown token", http.StatusUnauthorized)
		case scopes&scope == 0:
			http.Error(w, "the token lacks the scope", http.StatusForbidden)
		default:
			handle(w, r)
		}
	}
}

func (h *bare) create(w http.ResponseWriter, r *http.Request) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := decode(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.ID = 0
	write(w, p)
}

var errPlant = errors.New("the body must be an object with an id, a name and perhaps a tag, each once")

// decode walks through the tokens of a plant, because encoding/json itself accepts a member that occurs twice.
func decode(body []byte) (p barePlant, err error) {
	if !utf8.Valid(body) {
		return p, errPlant
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return p, errPlant
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return p, err
		}
		name := key.(string)
		if seen[name] {
			return p, errPlant
		}
		seen[name] = true
		var member any
		if err := d.Decode(&member); err != nil {
			return p, err
		}
		ok := true
		switch name {
		case "id":
			var number json.Number
			if number, ok = member.(json.Number); ok {
				p.ID, err = strconv.ParseInt(number.String(), 10, 64)
			}
		case "name":
			p.Name, ok = member.(string)
		case "tag":
			var tag string
			tag, ok = member.(string)
			p.Tag = &tag
		}
		if !ok || err != nil {
			return p, errPlant
		}
	}
	if _, err := d.Token(); err != nil {
		return p, err
	}
	if _, err := d.Token(); err != io.EOF || !seen["id"] || !seen["name"] {
		return p, errPlant
	}
	return p, nil
}

func (h *bare) get(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := h.plant
	content, err := json.Marshal(p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(content)
	w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	p.ID = id
	write(w, p)
}

func write(w http.ResponseWriter, p barePlant) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
