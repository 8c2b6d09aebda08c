package plant

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends the plant as the answer to a create shows it: the name, and the tag where
// there is one.
func (p Plant) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	return p.appendMembers(b)
}

// AppendJSON appends the plant as a read shows it: with its id.
func (p New) AppendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), p.ID, 10)
	return p.appendMembers(append(b, ','))
}

func (p Plant) appendMembers(b []byte) []byte {
	b = appendString(append(b, `"name":`...), p.Name)
	if p.Tag != nil {
		b = appendString(append(b, `,"tag":`...), *p.Tag)
	}
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil { // not UTF-8: no decoder and no engine lets that in
		panic("plant: text that is not UTF-8: " + strconv.Quote(s))
	}
	return b
}
