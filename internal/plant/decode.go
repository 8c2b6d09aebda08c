package plant

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Reason says in which way a body is not what the description allows.
// The edge maps every reason to a catalogue number of its own.
type Reason uint8

const (
	Empty         Reason = iota + 1 // no bytes, or white space alone
	Syntax                          // not JSON
	InvalidUTF8                     // bytes that are not UTF-8
	ByteOrderMark                   // a BOM before the value
	LoneSurrogate                   // half of a \uD800–\uDFFF pair
	Trailing                        // bytes after the value
	DuplicateName                   // a member name given twice
	TooDeep                         // nested past what the decoder follows
	NotObject                       // a value, but not an object
	Missing                         // a required member is not there
	Null                            // null where a value is required
	NotInteger                      // an id that is not an integer
	OutOfRange                      // an integer that an int64 does not hold
	NotString                       // a name or tag that is not a string
	ZeroCharacter                   // U+0000 in a name or tag
)

// Invalid is the error of a body that the description forbids.
type Invalid struct {
	Reason  Reason
	Pointer string // RFC 6901; empty for the whole body
	Detail  string // what was expected and what was found
}

func (e *Invalid) Error() string {
	if e.Pointer == "" {
		return "the body: " + e.Detail
	}
	return e.Pointer + ": " + e.Detail
}

// Decode reads the body of a create: one JSON object with a required integer id, a required
// string name and an optional string tag. Other members are ignored. Every error is an *Invalid.
func Decode(body []byte) (New, error) {
	var p New
	err := decode(body, &p.Plant, &p.ID)
	return p, err
}

// DecodePlant reads a body without an id: what a replace takes.
func DecodePlant(body []byte) (Plant, error) {
	var p Plant
	err := decode(body, &p, nil)
	return p, err
}

type decoder struct {
	*jsontext.Decoder
	buf bytes.Buffer
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.Decoder = jsontext.NewDecoder(&d.buf)
	return d
}}

func decode(body []byte, p *Plant, id *int64) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	d.buf = *bytes.NewBuffer(body)
	d.Reset(&d.buf)
	defer func() { d.buf = bytes.Buffer{} }()

	if d.PeekKind() != '{' {
		found, err := d.ReadValue()
		if err != nil {
			return diagnose(body, err)
		}
		return &Invalid{NotObject, "", "expected an object, found " + describe(found)}
	}
	if _, err := d.ReadToken(); err != nil {
		return diagnose(body, err)
	}
	var hasID, hasName bool
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return diagnose(body, err)
		}
		switch m := memberOf(name); {
		case m == "id" && id != nil:
			hasID, err = true, d.readID(id)
		case m == "name":
			hasName, err = true, d.readString("/name", &p.Name)
		case m == "tag":
			p.Tag = new(string)
			err = d.readString("/tag", p.Tag)
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return diagnose(body, err)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return diagnose(body, err)
	}
	if rest := bytes.TrimLeft(body[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		if !utf8.Valid(rest) {
			return diagnose(body, nil)
		}
		return &Invalid{Trailing, "", fmt.Sprintf("expected nothing after the object, found %s at byte %d", excerpt(rest), len(body)-len(rest))}
	}
	if id != nil && !hasID {
		return &Invalid{Missing, "/id", "expected an integer, found no such member"}
	}
	if !hasName {
		return &Invalid{Missing, "/name", "expected a string, found no such member"}
	}
	return nil
}

// memberOf is the member that a raw name stands for, or "" when it is none of ours.
func memberOf(raw jsontext.Value) string {
	switch string(raw) {
	case `"id"`:
		return "id"
	case `"name"`:
		return "name"
	case `"tag"`:
		return "tag"
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return ""
	}
	name, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(name)
}

func (d *decoder) readID(id *int64) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	const integer = "expected an integer from -9223372036854775808 to 9223372036854775807, found "
	switch v.Kind() {
	case 'n':
		return &Invalid{Null, "/id", integer + "null"}
	case '0':
		n, reason := parseInt64(v)
		if reason != 0 {
			return &Invalid{reason, "/id", integer + excerpt(v)}
		}
		*id = n
		return nil
	}
	return &Invalid{NotInteger, "/id", integer + describe(v)}
}

func (d *decoder) readString(pointer string, s *string) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case 'n':
		return &Invalid{Null, pointer, "expected a string, found null"}
	case '"':
		if raw := v[1 : len(v)-1]; bytes.IndexByte(raw, '\\') < 0 {
			*s = string(raw)
		} else {
			text, err := jsontext.AppendUnquote(nil, v)
			if err != nil {
				return err
			}
			*s = string(text)
		}
		if i := strings.IndexByte(*s, 0); i >= 0 {
			return &Invalid{ZeroCharacter, pointer, fmt.Sprintf("expected text without the character U+0000, found one at byte %d", i)}
		}
		return nil
	}
	return &Invalid{NotString, pointer, "expected a string, found " + describe(v)}
}

// maxDepth is how deep the decoder follows nested values.
const maxDepth = 10_000

// diagnose turns an error of the decoder into the reason that a person can act on.
func diagnose(body []byte, err error) error {
	if invalid, ok := err.(*Invalid); ok {
		return invalid
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return &Invalid{Empty, "", "expected a JSON object, found nothing"}
	}
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return &Invalid{ByteOrderMark, "", "expected JSON without a byte order mark, found one at byte 0"}
	}
	if !utf8.Valid(body) {
		return &Invalid{InvalidUTF8, "", fmt.Sprintf("expected UTF-8, found a byte that is not at byte %d", firstInvalid(body))}
	}
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok { // the input ended where the decoder still wanted more
		return &Invalid{Syntax, "", fmt.Sprintf("expected a complete JSON object, found its end at byte %d", len(body))}
	}
	pointer := string(syntactic.JSONPointer)
	duplicate := errors.Is(err, jsontext.ErrDuplicateName)
	if strings.Count(pointer, "/") >= maxDepth && !duplicate {
		return &Invalid{TooDeep, "", fmt.Sprintf("expected at most %d levels of nesting, found more", maxDepth)}
	}
	if len(pointer) > 64 {
		pointer = ""
	}
	at := min(int(syntactic.ByteOffset), len(body))
	switch {
	case duplicate:
		return &Invalid{DuplicateName, pointer, "expected each member name once, found it again"}
	case isSurrogate(body[at:]):
		return &Invalid{LoneSurrogate, pointer, fmt.Sprintf("expected surrogates in pairs, found %s alone at byte %d", body[at:at+6], at)}
	case errors.Is(err, io.ErrUnexpectedEOF) || at == len(body):
		return &Invalid{Syntax, pointer, fmt.Sprintf("expected a complete JSON object, found its end at byte %d", len(body))}
	}
	return &Invalid{Syntax, pointer, fmt.Sprintf("expected JSON, found %s at byte %d", excerpt(body[at:]), at)}
}

// isSurrogate reports whether b starts with an escape \uD800 to \uDFFF.
func isSurrogate(b []byte) bool {
	const hex = "0123456789abcdefABCDEF"
	return len(b) >= 6 && b[0] == '\\' && b[1] == 'u' && (b[2]|0x20) == 'd' && strings.IndexByte(hex[8:], b[3]) >= 0 &&
		strings.IndexByte(hex, b[4]) >= 0 && strings.IndexByte(hex, b[5]) >= 0
}

func firstInvalid(body []byte) int {
	for i := 0; i < len(body); {
		r, n := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(body)
}

// describe names a value for a person: its kind and, where that is short, the value itself.
func describe(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		return "the string " + excerpt(v)
	case '0':
		return "the number " + excerpt(v)
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return string(v)
}

// excerpt is the beginning of b, whole characters, at most 32 bytes.
func excerpt(b []byte) string {
	const most = 32
	if len(b) <= most {
		return string(b)
	}
	end := most
	for end > 0 && !utf8.RuneStart(b[end]) {
		end--
	}
	return string(b[:end]) + "…"
}
