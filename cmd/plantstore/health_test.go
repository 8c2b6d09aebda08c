package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestHealth(t *testing.T) {
	status, body := 200, "ready\n"
	var hang atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("health asks for %s", r.URL)
		}
		if hang.Load() {
			<-r.Context().Done()
		}
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	defer s.Close()
	listen := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := strings.Cut(listen, ":")
	for _, test := range []struct {
		v    variables
		args string
	}{
		{nil, "--url " + s.URL},
		{nil, "--url " + s.URL + "/"},
		{variables{"PLANTSTORE_OPS_LISTEN": listen}, ""},
		{variables{"PLANTSTORE_OPS_LISTEN": "0.0.0.0:" + port}, ""},
		{variables{"PLANTSTORE_OPS_LISTEN": "[::]:" + port}, ""},
		{variables{"PLANTSTORE_OPS_LISTEN": ":" + port}, ""},
		{variables{"PLANTSTORE_OPS_LISTEN": listen, "PLANTSTORE_URL": "http://127.0.0.1:1"}, ""},
		{variables{"PLANTSTORE_OPS_LISTEN": "off"}, "--url " + s.URL},
	} {
		got := plantstore(t, test.v, append([]string{"health"}, strings.Fields(test.args)...)...)
		got.want(t, test.args, 0, "ready\n", "")
	}
	toFullDisk(t, nil, "health", "--url", s.URL)

	status, body = 503, "not ready: the service is stopping\nnot ready: no disk\n"
	plantstore(t, nil, "health", "--url", s.URL).want(t, "not ready", 1, "",
		"plantstore health: not ready: the service is stopping; not ready: no disk\n")
	for status, body = range map[int]string{404: "ready\n", 200: "welcome\n"} {
		plantstore(t, nil, "health", "--url", s.URL).want(t, body, 1, "", "plantstore health: "+s.URL+
			"/readyz is not the health check of a Plant Store: it returned "+
			map[int]string{404: "404 Not Found", 200: "200 OK"}[status]+"\n")
	}
	for _, test := range []struct{ listen, args, want string }{
		{"off", "", "PLANTSTORE_OPS_LISTEN is off: the service has no health checks\n"},
		{"garbage", "", "not ready: http://garbage/readyz: "},
		{"", "--url localhost:1", "not ready: localhost:1/readyz: unsupported protocol scheme"},
		{"", "--timeout 0s", "not ready: http://127.0.0.1:8081/readyz: "},
	} {
		got := plantstore(t, variables{"PLANTSTORE_OPS_LISTEN": test.listen},
			append([]string{"health"}, strings.Fields(test.args)...)...)
		if got.code == 0 || !strings.HasPrefix(got.stderr, "plantstore health: "+test.want) {
			t.Errorf("health %s: %+v, want %s", test.args, got, test.want)
		}
	}
	hang.Store(true)
	plantstore(t, nil, "health", "--url", s.URL, "--timeout", "50ms").want(t, "a service that hangs", 1, "",
		"plantstore health: not ready: "+s.URL+"/readyz: no response within 50ms\n")
	s.Close()
	got := plantstore(t, nil, "health", "--url", s.URL)
	if got.code != 1 || !strings.HasPrefix(got.stderr, "plantstore health: not ready: "+s.URL+"/readyz: ") ||
		!strings.Contains(got.stderr, "connection refused") {
		t.Errorf("health without a service: %+v", got)
	}
}
