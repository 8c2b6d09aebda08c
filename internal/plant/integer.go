package plant

import (
	"bytes"
	"errors"
	"strconv"
)

const mustBeInt64 = "must be an integer from -9223372036854775808 to 9223372036854775807"

// parseInt64 parses a JSON number as JSON Schema defines integers: 1.0 and 1e2 are integers, 1.5 is not.
// It uses no float, and its cost depends on the length of the literal, not on the exponent.
// The Reason is 0 unless the number is not an int64.
func parseInt64(number []byte) (int64, Reason) {
	if n, err := strconv.ParseInt(string(number), 10, 64); err == nil {
		return n, 0
	}
	mantissa, exponentText, _ := bytes.Cut(bytes.ToLower(number), []byte("e"))
	mantissa, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))

	// The value is digits × 10^exponent, with no zero at either end of digits.
	digits := append(bytes.Clone(whole), fraction...)
	trimmed := bytes.TrimRight(digits, "0")
	digits = bytes.TrimLeft(trimmed, "0")
	if len(digits) == 0 {
		return 0, 0
	}
	exponent := parseExponent(exponentText) - int64(len(fraction)) + int64(len(whole)+len(fraction)-len(trimmed))
	if exponent < 0 {
		return 0, NotInteger
	}
	const most = 19 // digits of the largest int64
	if int64(len(digits))+exponent > most {
		return 0, OutOfRange
	}
	var literal []byte
	if negative {
		literal = append(literal, '-')
	}
	literal = append(literal, digits...)
	for range exponent {
		literal = append(literal, '0')
	}
	n, err := strconv.ParseInt(string(literal), 10, 64)
	if err != nil {
		return 0, OutOfRange
	}
	return n, 0
}

// parseExponent parses the digits after e. The result saturates beyond the length of any body.
func parseExponent(text []byte) int64 {
	const most = 1 << 40
	n, _ := strconv.ParseInt(string(text), 10, 64) // 0 for no digits, the nearest int64 for too many
	return max(-most, min(most, n))
}

// ParseID parses an id in decimal, in the one form that strconv.FormatInt writes: no plus sign and no
// leading zero.
func ParseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != text {
		return 0, errors.New(mustBeInt64 + ", without a plus sign or leading zeros")
	}
	return id, nil
}
