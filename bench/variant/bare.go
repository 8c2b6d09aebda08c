package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"plantstore/bench/measure"
	"plantstore/internal/plant"
)

// bare is the least that net/http needs for a create or a get: it compares the token, decodes a create with the
// product's decoder and sends the response that the product would send. It stores nothing and has no limits, timeouts,
// routes or metrics. A get returns the one plant that it has, under the id in the path.
type bare struct {
	authorization []byte // the expected header
	plant         plant.Content
}

// Headers of the product. A get has an ETag of this length; the id of a request is not random here.
var (
	jsonType  = []string{"application/json"}
	requestID = []string{"b1hrjn2hnbd90"}
	entityTag = []string{`"ArITCxIlDeGAorSc"`}
)

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func serveBare(ctx context.Context, token string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	tag := measure.Tag
	h := &bare{[]byte("Bearer " + token), plant.Content{Name: measure.Name(10), Tag: &tag}}
	service := &http.Server{Handler: h}
	fmt.Printf("net/http serves http://%s\n", l.Addr())
	context.AfterFunc(ctx, func() { service.Close() })
	if err := service.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (h *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), h.authorization) != 1 {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := *buffer
	var err error
	switch id, isGet := strings.CutPrefix(r.URL.Path, "/plants/"); {
	case isGet && r.Method == http.MethodGet:
		w.Header()["Etag"] = entityTag
		b, err = h.get(b, id)
	case r.Method == http.MethodPost && r.URL.Path == "/plants" && r.ContentLength >= 0:
		b, err = create(b, r)
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	*buffer = b
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	header := w.Header()
	header["Content-Type"], header["X-Request-Id"] = jsonType, requestID
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(http.StatusOK)
	w.Write(b)
}

// create reads the body into b, decodes it and returns the response in the same buffer.
func create(b []byte, r *http.Request) ([]byte, error) {
	if n := int(min(r.ContentLength, maxBody)); cap(b) < n {
		b = make([]byte, n)
	} else {
		b = b[:n]
	}
	if _, err := io.ReadFull(r.Body, b); err != nil {
		return b, err
	}
	p, err := plant.Decode(b)
	if err != nil {
		return b, err
	}
	return p.Content.AppendJSON(b[:0]), nil
}

func (h *bare) get(b []byte, id string) ([]byte, error) {
	n, err := plant.ParseID(id)
	if err != nil {
		return b, err
	}
	return plant.Plant{ID: n, Content: h.plant}.AppendJSON(b[:0]), nil
}
