//go:build linux

package main

import "testing"

func TestParseHead(t *testing.T) {
	for name, test := range map[string]struct {
		in       string
		want     head
		complete bool
		fails    bool
	}{
		"whole response": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
			head{200, 72, 2}, true, false},
		"body is missing":   {"HTTP/1.1 200 OK\r\nContent-Length: 32768\r\n\r\n", head{200, 32810, 32768}, true, false},
		"other case":        {"HTTP/1.1 503 Busy\r\ncontent-length:7\r\n\r\n", head{503, 46, 7}, true, false},
		"no content":        {"HTTP/1.1 204 No Content\r\nDate: today\r\n\r\n", head{204, 40, 0}, true, false},
		"first bytes":       {"HTTP/1.1 200 O", head{}, false, false},
		"incomplete head":   {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", head{}, false, false},
		"no length":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", head{}, false, true},
		"length in letters": {"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", head{}, false, true},
		"not HTTP":          {"220 mail.example ESMTP ready\r\n\r\n", head{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, complete, err := parseHead([]byte(test.in))
			if complete != test.complete || (err != nil) != test.fails {
				t.Fatalf("parseHead = complete %v, error %v; want complete %v, error %v",
					complete, err, test.complete, test.fails)
			}
			if complete && got != test.want {
				t.Errorf("parseHead = %+v, want %+v", got, test.want)
			}
		})
	}
}
