package transfer

import (
	"strconv"
	"strings"
	"unicode"

	"plantstore/internal/plant"
)

// Format writes files that a Reader and the console read: what is before, between and after the plants, and Append for
// each plant. A file without plants is Empty.
type Format struct {
	Name, Before, Between, After, Empty string
	Append                              func([]byte, plant.New) []byte
}

// Formats returns all formats. The first is the default.
func Formats() []Format {
	appendJSON := func(b []byte, p plant.New) []byte { return p.AppendJSON(b) }
	return []Format{
		{"ndjson", "", "\n", "\n", "", appendJSON},
		{"csv", "id,name,tag\n", "\n", "\n", "id,name,tag\n", appendCSV},
		{"json", "[\n", ",\n", "\n]\n", "[\n]\n", appendJSON},
	}
}

func appendCSV(b []byte, p plant.New) []byte {
	b = append(strconv.AppendInt(b, p.ID, 10), ',')
	b = append(appendField(b, p.Name), ',')
	if p.Tag != nil {
		b = appendField(b, *p.Tag)
	}
	return b
}

// appendField appends text, in quotes if a reader could change it otherwise, or if it is empty.
func appendField(b []byte, text string) []byte {
	isSpace := func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }
	if text != "" && !strings.ContainsAny(text, "\",;\t\r\n") && strings.TrimFunc(text, isSpace) == text {
		return append(b, text...)
	}
	return append(append(append(b, '"'), strings.ReplaceAll(text, `"`, `""`)...), '"')
}
