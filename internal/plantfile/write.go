package plantfile

import (
	"strconv"
	"strings"
	"unicode"

	"plantstore/internal/plant"
)

// Format is how plants are written to a file: a header, and a line for each plant.
type Format struct {
	Name, Header string
	Append       func([]byte, plant.Plant) []byte
}

// Formats returns all formats. The first is the default.
func Formats() []Format {
	return []Format{
		{"ndjson", "", func(b []byte, p plant.Plant) []byte { return append(p.AppendJSON(b), '\n') }},
		{"csv", "id,name,tag\n", appendCSV},
	}
}

func appendCSV(b []byte, p plant.Plant) []byte {
	b = append(strconv.AppendInt(b, p.ID, 10), ',')
	b = append(appendField(b, p.Name), ',')
	if p.Tag != nil {
		b = appendField(b, *p.Tag)
	}
	return append(b, '\n')
}

// appendField appends text, in quotes if a reader could change it otherwise, or if it is empty: encoding/csv would
// write an empty tag and none alike.
func appendField(b []byte, text string) []byte {
	isSpace := func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }
	if text != "" && !strings.ContainsAny(text, "\",;\t\r\n") && strings.TrimFunc(text, isSpace) == text {
		return append(b, text...)
	}
	return append(append(append(b, '"'), strings.ReplaceAll(text, `"`, `""`)...), '"')
}
