package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
)

// readBody appends the request's body to buf after it has checked that the headers announce JSON.
func (a *API) readBody(x *exchange, r *http.Request, buf []byte) ([]byte, error) {
	if err := checkType(r.Header["Content-Type"]); err != nil {
		return buf, err
	}
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return buf, fmt.Errorf("%w, found %.32q", errEncoding, encoding)
		}
	}
	if r.ContentLength > a.maxBody {
		return buf, fmt.Errorf("%w: expected at most %d bytes, found %d", errTooLarge, a.maxBody, r.ContentLength)
	}
	// One byte more than allowed tells a body that is too large from one that just fits.
	body := io.LimitedReader{R: r.Body, N: a.maxBody + 1}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
			if err := x.hold(cap(buf)); err != nil {
				return buf, err
			}
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > a.maxBody:
			return buf, fmt.Errorf("%w: expected at most %d bytes, found more", errTooLarge, a.maxBody)
		case err == io.EOF:
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return buf, errSlow
		case err != nil:
			return buf, errBroken
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
		return fmt.Errorf("%w, found %.64q", errWrongType, values[0])
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return fmt.Errorf("%w with no parameter but charset=utf-8, found %.64q", errWrongType, values[0])
		}
	}
	return nil
}
