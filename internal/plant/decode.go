package plant

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Reason is the way in which a body violates the published description. The HTTP API has an error number for each.
type Reason uint8

const (
	Empty         Reason = iota + 1 // no bytes, or white space alone
	Syntax                          // not JSON
	InvalidUTF8                     // bytes that are not UTF-8
	ByteOrderMark                   // a byte order mark before the value
	LoneSurrogate                   // half of a \uD800–\uDFFF pair
	Trailing                        // bytes after the value
	DuplicateName                   // a member name twice in an object
	TooDeep                         // more nested than the decoder supports
	NotObject                       // a value other than an object
	Missing                         // no id or no name
	Null                            // null in place of an id, name or tag
	NotInteger                      // an id that is not an integer
	OutOfRange                      // an integer that does not fit into an int64
	NotString                       // a name or tag that is not a string
	ZeroCharacter                   // U+0000 in a name or tag
	OtherID                         // an id that differs from the one in the path
)

// Error makes a Reason an error, which errors.Is finds in an Invalid.
func (r Reason) Error() string { return "the body is invalid" }

// Invalid is the error of a body that the published description forbids.
type Invalid struct {
	Reason  Reason
	Pointer string // RFC 6901; empty for the whole body
	Problem string // continues the sentence that the name of the value starts
}

func (e *Invalid) Error() string {
	if e.Pointer == "" {
		return "the body " + e.Problem
	}
	return cmp.Or(e.Field(), e.Pointer) + " " + e.Problem
}

// Field returns the member of the body that is wrong, or "" if it is none of a plant.
func (e *Invalid) Field() string {
	switch e.Pointer {
	case "/id", "/name", "/tag":
		return e.Pointer[1:]
	}
	return ""
}

func (e *Invalid) Unwrap() error { return e.Reason }

// Decode reads the body of a create: one JSON object with a required integer id, a required
// string name and an optional string tag. Other members are ignored. Every error is an *Invalid.
func Decode(body []byte) (Plant, error) {
	var p Plant
	err := decode(body, &p, nil)
	return p, err
}

// DecodePlant reads the body of a replace of the plant with this id. An id in the body must be the same.
func DecodePlant(body []byte, id int64) (Content, error) {
	var p Plant
	err := decode(body, &p, &id)
	return p.Content, err
}

type decoder struct {
	*jsontext.Decoder
	buf  bytes.Buffer
	text []byte // the last string, unescaped
}

// decoders are used again: new ones would be most of the garbage of a create.
var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.Decoder = jsontext.NewDecoder(&d.buf)
	return d
}}

// decode reads a body into p. The id is required if want is nil; otherwise it is optional and must be *want.
func decode(body []byte, p *Plant, want *int64) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	d.buf = *bytes.NewBuffer(body)
	d.Reset(&d.buf)

	if d.PeekKind() != '{' {
		found, err := d.ReadValue()
		if err != nil {
			return diagnose(body, err)
		}
		return &Invalid{NotObject, "", "must be a JSON object, but is " + describe(found)}
	}
	d.ReadToken() // the { that PeekKind has checked
	var hasID, hasName bool
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return diagnose(body, err)
		}
		d.unquote(name)
		switch string(d.text) {
		case "id":
			hasID, err = true, d.readID(&p.ID)
		case "name":
			hasName, err = true, d.readString("/name", &p.Name)
		case "tag":
			p.Tag = new(string)
			err = d.readString("/tag", p.Tag)
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return diagnose(body, err)
		}
	}
	d.ReadToken() // the } that PeekKind has checked; without it, rest would start with it
	if rest := bytes.TrimLeft(body[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		if !utf8.Valid(rest) {
			return diagnose(body, nil)
		}
		return &Invalid{Trailing, "", fmt.Sprintf("must end after the JSON object, but has %s at byte %d",
			excerpt(rest), len(body)-len(rest))}
	}
	switch {
	case !hasID && want == nil:
		return &Invalid{Missing, "/id", "is required and must be an integer"}
	case hasID && want != nil && p.ID != *want:
		return &Invalid{OtherID, "/id", fmt.Sprintf("must be absent or %d, the id in the path, but is %d", *want, p.ID)}
	case !hasName:
		return &Invalid{Missing, "/name", "is required and must be a string"}
	}
	return nil
}

// unquote sets text. It cannot fail, because ReadValue has checked the escapes and the UTF-8 of v.
func (d *decoder) unquote(v jsontext.Value) { d.text, _ = jsontext.AppendUnquote(d.text[:0], v) }

func (d *decoder) readID(id *int64) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	const integer = mustBeInt64 + ", but is "
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
		problem := "must be a string, but is null"
		if pointer == "/tag" {
			problem += "; omit it for a plant without a tag"
		}
		return &Invalid{Null, pointer, problem}
	case '"':
		d.unquote(v)
		if i := bytes.IndexByte(d.text, 0); i >= 0 {
			return &Invalid{ZeroCharacter, pointer, fmt.Sprintf("must not contain the character U+0000, but does at byte %d", i)}
		}
		*s = string(d.text)
		return nil
	}
	return &Invalid{NotString, pointer, "must be a string, but is " + describe(v)}
}

// surrogate matches an escape \uD800 to \uDFFF at the start of a text.
var surrogate = regexp.MustCompile(`^\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// maxDepth is the nesting that the decoder supports.
const maxDepth = 10_000

// diagnose returns the Invalid that names the cause of an error of the decoder.
func diagnose(body []byte, err error) error {
	if invalid, ok := err.(*Invalid); ok {
		return invalid
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return &Invalid{Empty, "", "is empty; send a JSON object"}
	}
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return &Invalid{ByteOrderMark, "", "starts with a byte order mark; send it without one"}
	}
	if !utf8.Valid(body) {
		at := bytes.IndexByte(bytes.ToValidUTF8(body, []byte{0xff}), 0xff) // the byte is in no UTF-8
		return &Invalid{InvalidUTF8, "", fmt.Sprintf("must be UTF-8, but is not at byte %d", at)}
	}
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok { // the input ended before the value did
		return incomplete("", body)
	}
	pointer := string(syntactic.JSONPointer)
	duplicate := errors.Is(err, jsontext.ErrDuplicateName)
	if strings.Count(pointer, "/") >= maxDepth && !duplicate {
		return &Invalid{TooDeep, "", fmt.Sprintf("has more than %d levels of nesting; send fewer", maxDepth)}
	}
	if len(pointer) > 64 {
		pointer = ""
	}
	at := min(int(syntactic.ByteOffset), len(body))
	switch {
	case duplicate && pointer == "":
		return &Invalid{DuplicateName, "", "has an object with a member name twice; send each name once"}
	case duplicate:
		return &Invalid{DuplicateName, pointer, "appears twice in its object; send it once"}
	case surrogate.Match(body[at:]):
		return &Invalid{LoneSurrogate, pointer, fmt.Sprintf("has half of a surrogate pair, %s, at byte %d; send both halves",
			body[at:at+6], at)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return incomplete(pointer, body)
	}
	return &Invalid{Syntax, pointer, fmt.Sprintf("is not valid JSON: unexpected %s at byte %d", excerpt(body[at:]), at)}
}

func incomplete(pointer string, body []byte) error {
	return &Invalid{Syntax, pointer, fmt.Sprintf("is not complete JSON: the input ends at byte %d", len(body))}
}

// describe returns the kind of a value and, where it has no members, the value itself.
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

// excerpt returns the first characters of b, which is UTF-8: at most 32 bytes.
func excerpt(b []byte) string {
	const most = 32
	if len(b) <= most {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:most]), "") + "…"
}
