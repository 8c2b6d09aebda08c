package token_test

import (
	"errors"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/token"
)

// The forms of a header (RFC 6750) and of a credential, expressed independently of the parser.
var (
	bearerForm = regexp.MustCompile(`^[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*) *$`)
	tokenForm  = regexp.MustCompile(`^plant_([0-9A-Za-z]{30})([0-9A-Za-z]{6})$`)
)

// sumOf returns the checksum of a credential: the CRC32 in base 62, six digits.
func sumOf(secret string) string {
	digits := new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(secret)))).Text(62)
	swapped := strings.Map(func(r rune) rune { // the library orders a…z before A…Z
		switch {
		case r >= 'a':
			return r - 'a' + 'A'
		case r >= 'A':
			return r - 'A' + 'a'
		}
		return r
	}, digits)
	return strings.Repeat("0", 6-len(swapped)) + swapped
}

// verdict returns the expected result for header lines if credential is the only one that exists.
func verdict(headers []string, credential string) error {
	if len(headers) != 1 {
		return token.ErrMalformed
	}
	sent := bearerForm.FindStringSubmatch(headers[0])
	if sent == nil {
		return token.ErrMalformed
	}
	form := tokenForm.FindStringSubmatch(sent[1])
	switch {
	case form == nil || sumOf(form[1]) != form[2]:
		return token.ErrMistyped
	case sent[1] != credential:
		return token.ErrInvalid
	}
	return nil
}

// Each line of the input is a header line.
func FuzzBearer(f *testing.F) {
	secret := strings.Repeat("0aZ", 10) // the same in every run: the corpus contains it
	credential := "plant_" + secret + sumOf(secret)
	known := token.Token{Name: "known", Hash: token.HashOf(credential)}
	f.Fuzz(func(t *testing.T, lines string) {
		a := token.NewAuthenticator(&lookup{token: known}, nil, nil) // without failures
		headers := strings.Split(lines, "\n")
		want := verdict(headers, credential)
		got, err := a.Authenticate(t.Context(), headers, here)
		if !errors.Is(err, want) || (err == nil) != (got != nil && got.Name == "known") {
			t.Fatalf("Authenticate(%q) = %v, %v, want %v", headers, got, err, want)
		}
		for _, h := range headers {
			form := tokenForm.FindStringSubmatch(h)
			if want := form != nil && sumOf(form[1]) == form[2]; token.WellFormed(h) != want {
				t.Fatalf("WellFormed(%q) = %v, want %v", h, !want, want)
			}
		}
	})
}
