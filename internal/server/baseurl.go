package server

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// CheckBaseURL returns an error if Run would refuse Config.BaseURL.
func CheckBaseURL(text string) error {
	_, err := baseURL(text, new(net.TCPAddr), false)
	return err
}

// baseURL parses the public address and removes a slash at the end of its path. If text is empty, it is the address
// that the service listens on, or localhost if it listens on every address of the machine.
func baseURL(text string, listening net.Addr, secure bool) (*url.URL, error) {
	if text == "" && secure {
		text = "https://" + hostPort(listening, "localhost")
	} else if text == "" {
		text = "http://" + hostPort(listening, "localhost")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("base URL %q must be an address such as https://plants.example/some/prefix", text)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("base URL %q must have no user, query or fragment", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if strings.ContainsAny(u.Path, "{} ") || u.RawPath != "" || u.Path != "" && path.Clean(u.Path) != u.Path {
		return nil, fmt.Errorf("base URL %q must have a path of plain segments", text)
	}
	return u, nil
}

// hostPort returns the address that the service listens on. If its host is [::] or 0.0.0.0, which no client can use,
// every replaces the host.
func hostPort(listening net.Addr, every string) string {
	if tcp, ok := listening.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return every + ":" + strconv.Itoa(tcp.Port)
	}
	return listening.String()
}
