package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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

	"plantstore/bench/measure"
	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// bare is what a create and a get cost on net/http alone, with the checks of the product: route, token and scope, media
// type, size and content of the body. It uses the product's decoder and sends the response that the product would send,
// under the same timeouts. It stores nothing, and has no limits on connections, memory and rates, no metrics and no log.
// A get returns the one plant that it has, under the id in the path.
type bare struct {
	tokens map[token.Hash]token.Scope
	plant  plant.Content
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
		plant:  plant.Content{Name: measure.Name(10), Tag: &tag},
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
	p, err := plant.Decode(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	write(w, p.Content.AppendJSON(nil))
}

func (h *bare) get(w http.ResponseWriter, r *http.Request) {
	id, err := plant.ParseID(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sum := sha256.Sum256(h.plant.AppendJSON(nil))
	w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	write(w, plant.Plant{ID: id, Content: h.plant}.AppendJSON(nil))
}

func write(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
