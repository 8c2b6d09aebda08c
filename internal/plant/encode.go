package plant

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends the plant as in the response to a create: without an id.
func (c Content) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	return c.appendMembers(b)
}

// AppendJSON appends the plant as in the response to a read: with its id.
func (p Plant) AppendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), p.ID, 10)
	return p.appendMembers(append(b, ','))
}

func (c Content) appendMembers(b []byte) []byte {
	b = appendString(append(b, `"name":`...), c.Name)
	if c.Tag != nil {
		b = appendString(append(b, `,"tag":`...), *c.Tag)
	}
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil { // decoders and engines accept only UTF-8
		panic("plant: not UTF-8: " + strconv.Quote(s))
	}
	return b
}
