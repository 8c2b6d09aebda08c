package ledger

import (
	"net/http"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		fakeResponse
		number  int
		outcome outcome
		wrong   bool
	}{
		{fakeResponse{status: 200, body: "{}\n"}, 200, acked, false},
		{fakeResponse{status: 201, body: "{}"}, 201, unknown, true},
		{failure(40009), 40009, refused, false},
		{failure(50301), 50301, refused, false},
		{failure(50302), 50302, unknown, false},
		{failure(50306), 50306, unknown, false},
		{fakeResponse{503, failure(40009).body, failure(40009).header}, 503, unknown, true},
		{fakeResponse{503, failure(50301).body, http.Header{"Content-Type": {"application/json"}}}, 50301, refused, true},
		{fakeResponse{503, failure(50301).body, nil}, 503, unknown, true},
		{fakeResponse{503, "gone", failure(50301).header}, 503, unknown, true},
	} {
		response := &http.Response{StatusCode: test.status, Header: test.header}
		number, received := classify(response, []byte(test.body))
		a := attempt{kind: fresh, number: number, received: received}
		if number != test.number || a.outcome() != test.outcome || test.number != 200 && test.wrong != (received != "") {
			t.Errorf("classify(%d %s) = %d %s, outcome %d", test.status, test.body, number, received, a.outcome())
		}
	}
}
