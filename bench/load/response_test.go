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
			head{200, 70, 2}, true, false},
		"body is missing":   {"HTTP/1.1 200 OK\r\nContent-Length: 32768\r\n\r\n", head{200, 42, 32768}, true, false},
		"other case":        {"HTTP/1.1 503 Busy\r\ncontent-length:7\r\n\r\n", head{503, 39, 7}, true, false},
		"no content":        {"HTTP/1.1 204 No Content\r\nDate: today\r\n\r\n", head{204, 40, 0}, true, false},
		"first bytes":       {"HTTP/1.1 200 O", head{}, false, false},
		"incomplete head":   {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", head{}, false, false},
		"chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", head{200, 47, chunked}, true, false},
		"no length":         {"HTTP/1.1 200 OK\r\nDate: today\r\n\r\n", head{}, false, true},
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

func TestResponseInParts(t *testing.T) {
	for name, test := range map[string]struct {
		response string
		body     int
	}{
		"with a length": {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1,23]", 6},
		"in chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n3\r\n23]\r\n0\r\n\r\n", 6},
		"no content":    {"HTTP/1.1 204 No Content\r\n\r\n", 0},
	} {
		for size := 1; size <= len(test.response); size++ {
			c := client{response: make([]byte, 0, maxKept)}
			for i := 0; i < len(test.response); i += size {
				end := min(i+size, len(test.response))
				complete, err := c.read([]byte(test.response[i:end]))
				if err != nil || complete != (end == len(test.response)) {
					t.Fatalf("%s: read = %v, %v after %d of %d bytes", name, complete, err, end, len(test.response))
				}
			}
			if c.body != test.body {
				t.Errorf("%s: a body of %d bytes, want %d", name, c.body, test.body)
			}
		}
	}
	c := client{response: make([]byte, 0, maxKept)}
	if _, err := c.read([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n[]")); err == nil {
		t.Error("a byte after the body gave no error")
	}
}
