package httpapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore/internal/plant"
)

// Every number is once in the catalogue, in order and under its own status.
func TestCatalogue(t *testing.T) {
	last := int32(0)
	for _, f := range Catalogue() {
		if f.Number <= last || http.StatusText(f.Status()) == "" || f.Meaning == "" {
			t.Errorf("after %d: %+v", last, f)
		}
		last = f.Number
	}
	for number := range fields {
		if ErrorOf(int(number)) == nil {
			t.Errorf("%d has a field, but is not in the catalogue", number)
		}
	}
	for reason := plant.Empty; reason <= plant.OtherID; reason++ {
		if f, _ := classify(&plant.Invalid{Reason: reason}); f.Status() != 400 {
			t.Errorf("reason %d of the decoder is not in the catalogue", reason)
		}
	}
	if f, _ := classify(&plant.Invalid{}); f.Number != 50001 {
		t.Errorf("an unknown reason has the number %d", f.Number)
	}
}

func TestLibraryFailure(t *testing.T) {
	for status, want := range map[int]string{
		400: `{"error":40024,"message":"the request is not valid HTTP/1.1"}`,
		404: `{"error":40402,"message":"the path does not exist"}`,
		405: `{"error":40501,"message":"the path does not support this method"}`,
		417: `{"error":40030,"message":"the Expect header must be absent or 100-continue","field":"Expect"}`,
		426: `{"error":40024,"message":"the service accepts only TLS; use https:// in place of http://"}`,
		431: `{"error":43101,"message":"the request line and headers are too large; send fewer or shorter headers"}`,
		501: `{"error":50101,"message":"Transfer-Encoding must be absent or chunked","field":"Transfer-Encoding"}`,
		505: `{"error":50501,"message":"the HTTP version is not supported; use HTTP/1.1"}`,
	} {
		f, body, ok := LibraryFailure(status)
		if !ok || string(body) != want || !strings.HasPrefix(want, fmt.Sprintf(`{"error":%d,`, f.Number)) {
			t.Errorf("LibraryFailure(%d) = %d, %s, %v", status, f.Number, body, ok)
		}
	}
	for _, status := range []int{200, 403, 406, 500} {
		if f, body, ok := LibraryFailure(status); ok || body != nil || f != (Failure{}) {
			t.Errorf("LibraryFailure(%d) = %v, %s, %v", status, f, body, ok)
		}
	}
}

func TestRefusal(t *testing.T) {
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(Refusal())), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || !response.Close || len(response.Header.Get("X-Request-Id")) < 10 {
		t.Errorf("refusal %v, %v, close %v", response.Header, err, response.Close)
	}
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	w.Write(body)
	wantError(t, w, 50301, "all connections are in use; retry later")
}

// The field of an error is the member, parameter or header that is wrong, if it is exactly one of this API.
func TestField(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{Reader: ferns(1)})
	for _, test := range []struct{ method, target, body, header, field string }{
		{"POST", "/plants", `{}`, "", "id"},
		{"POST", "/plants", `{"id":1,"name":null}`, "", "name"},
		{"POST", "/plants", `{"id":1,"name":"x","tag":1}`, "", "tag"},
		{"POST", "/plants", `{"id":1,"name":"\ud800"}`, "", "name"},
		{"POST", "/plants", `{"id":1,"id":1}`, "", "id"},
		{"POST", "/plants", `{"limit":1,"limit":1}`, "", ""},
		{"POST", "/plants", `{"id":x}`, "", "id"},
		{"POST", "/plants", `{"id":"1"}`, "", "id"},
		{"POST", "/plants", `{"id":1e99}`, "", "id"},
		{"POST", "/plants", `[]`, "", ""},
		{"POST", "/plants", `{}`, "Content-Type: text/plain", "Content-Type"},
		{"POST", "/plants", `{}`, "Content-Encoding: gzip", "Content-Encoding"},
		{"PUT", "/plants/1", `{"id":2,"name":"x"}`, "", "id"},
		{"PUT", "/plants/1", `{"name":"x"}`, "If-Match: x", "If-Match"},
		{"DELETE", "/plants/1", "", "If-None-Match: ", "If-None-Match"},
		{"DELETE", "/plants/1", "", `If-Match: "x"`, ""},
		{"GET", "/plants/x", "", "", "id"},
		{"GET", "/plants/2", "", "", ""},
		{"GET", "/plants?limit=0", "", "", "limit"},
		{"GET", "/plants?after=x", "", "", "after"},
		{"GET", "/plants?q=%00", "", "", "q"},
		{"GET", "/plants?tag=1&tag=1", "", "", "tag"},
		{"GET", "/plants?id=1", "", "", ""},
	} {
		name, value, _ := strings.Cut(test.header, ": ")
		w := send(a, test.method, test.target, strings.NewReader(test.body), []string{name, value}[:2*min(len(name), 1)]...)
		_, got, _ := strings.Cut(strings.TrimSuffix(w.Body.String(), `"}`), `","field":"`)
		if w.Code < 400 || got != test.field {
			t.Errorf("%s %s %s %s: %s, want the field %q", test.method, test.target, test.body, test.header, w.Body, test.field)
		}
	}
}

// A message is valid JSON whatever a client with a valid token has sent.
func TestMessagesAreSafe(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{Reader: ferns()})
	wantError(t, send(a, "GET", "/plants?a%22b%ff", nil), 40033,
		`the query parameter "a\"b\xff" is unknown; use limit, after, tag or q`)
}
