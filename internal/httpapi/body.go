package httpapi

import (
	"errors"
	"io"
	"mime"
	"os"
	"strings"
)

// readBody reads the body of the request into the buffer, after it has checked that the headers announce JSON.
func (a *API) readBody(x *exchange) error {
	r, most := x.request, a.cfg.MaxBody
	if err := checkType(r.Header["Content-Type"]); err != nil {
		return err
	}
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return Failf(errEncoding, "Content-Encoding must be absent or identity, but is %.32q", encoding)
		}
	}
	if r.ContentLength > most {
		return Failf(errTooLarge, "the body must have at most %d bytes, but has %d", most, r.ContentLength)
	}
	// One more byte than allowed shows that a body is too large.
	x.buf = x.buf[:0]
	body := io.LimitedReader{R: r.Body, N: most + 1}
	for {
		if len(x.buf) == cap(x.buf) {
			x.buf = append(x.buf, 0)[:len(x.buf)]
			if err := x.reserve(cap(x.buf)); err != nil {
				return err
			}
		}
		n, err := body.Read(x.buf[len(x.buf):cap(x.buf)])
		x.buf = x.buf[:len(x.buf)+n]
		switch {
		case int64(len(x.buf)) > most:
			return Failf(errTooLarge, "the body must have at most %d bytes, but has more", most)
		case err == io.EOF:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSlow
		case err != nil:
			return errBroken
		}
	}
}

func checkType(values []string) error {
	switch {
	case len(values) == 0:
		return errNoType
	case len(values) > 1:
		return errRepeatedType
	case values[0] == "application/json":
		return nil
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != "application/json" {
		return Failf(errWrongType, "Content-Type must be application/json, but is %.64q", values[0])
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return Failf(errWrongType, "Content-Type must have no parameter except charset=utf-8, but is %.64q", values[0])
		}
	}
	return nil
}
