// Package token handles credentials: it generates them, authenticates requests and defines scopes.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"time"

	"plantstore/internal/rate"
)

// Token is what is stored about a credential. The credential itself is shown once, when it is made, and never
// stored.
type Token struct {
	Name    string // unique, chosen by the operator
	Hash    Hash   // of the credential
	Store   string // the one store that it gives access to
	Scopes  Scope
	Tail    string // the last four characters of the credential, to recognise it by
	Created time.Time
	Expires time.Time  // zero: never
	Revoked time.Time  // zero: not revoked
	Rate    rate.Limit // zero: the default of the service
	Sandbox bool       // its store is a sandbox

	LastUsed time.Time // cut to the minute, and written some time later; zero: never
}

// Valid reports whether the token is neither revoked nor expired.
func (t *Token) Valid(now time.Time) bool { return t.check(now) == nil }

// ExpiresWithin reports whether the token is valid and expires within a time from now.
func (t *Token) ExpiresWithin(d time.Duration, now time.Time) bool {
	return t.Valid(now) && !t.Expires.IsZero() && t.Expires.Sub(now) < d
}

// Hash is the SHA-256 of a credential, which is what is stored and looked up.
type Hash [sha256.Size]byte

// HashOf returns the hash of a credential.
func HashOf(credential string) Hash { return sha256.Sum256([]byte(credential)) }

// Scope is a set of rights.
type Scope uint8

const (
	Create   Scope = 1 << iota // plants:create
	Read                       // plants:read
	Write                      // plants:write: replace and remove
	Webhooks                   // webhooks:manage

	PlantScopes = Create | Read | Write // of a token that names no scope
	AllScopes   = PlantScopes | Webhooks
)

// scopeNames has the names in the order of the bits.
var scopeNames = []string{"plants:create", "plants:read", "plants:write", "webhooks:manage"}

// Names returns the names of the scopes in s in a fixed order.
func (s Scope) Names() []string {
	names := []string{}
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s Scope) String() string { return strings.Join(s.Names(), " ") }

// ParseScopes parses scope names separated by commas or spaces.
func ParseScopes(text string) (Scope, error) {
	var s Scope
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		i := slices.Index(scopeNames, word)
		if i < 0 {
			return 0, fmt.Errorf("scope %q is unknown: use %s", word, strings.Join(scopeNames, ","))
		}
		s |= 1 << i
	}
	if s == 0 {
		return 0, fmt.Errorf("at least one scope is required: use %s", strings.Join(scopeNames, ","))
	}
	return s, nil
}

// StoredScopes parses what String returned. It ignores unknown scopes, which a newer version of the service may
// have stored.
func StoredScopes(text string) Scope {
	var s Scope
	for word := range strings.FieldsSeq(text) {
		known, _ := ParseScopes(word)
		s |= known
	}
	return s
}

// DefaultStore is the store of a token that names no other.
const DefaultStore = "main"

// SandboxPrefix starts the names of stores that expire: see package sandbox. No other store has such a name.
const SandboxPrefix = "sandbox:"

// IsSandbox reports whether a store is a sandbox.
func IsSandbox(store string) bool { return strings.HasPrefix(store, SandboxPrefix) }

// CheckName returns an error if a name is hard to type or to read. Its kind is token or store.
func CheckName(kind, name string) error {
	if len(name) == 0 || len(name) > 64 {
		return fmt.Errorf("the %s name %q must have 1 to 64 characters", kind, name)
	}
	if kind == "store" && IsSandbox(name) {
		return fmt.Errorf("the store name %q is reserved for a sandbox: choose another", name)
	}
	for _, r := range name {
		if !strings.ContainsRune(base62+"._-", r) {
			return fmt.Errorf("the %s name %q contains %q: use letters, digits, '.', '_' and '-'", kind, name, r)
		}
	}
	return nil
}

var (
	// ErrNameTaken means that another token has the name.
	ErrNameTaken = errors.New("a token with this name exists")
	// ErrChanged means that the token was changed, rotated or revoked meanwhile.
	ErrChanged = errors.New("the token was changed by another command")
	// ErrUnknown means that no token has the name or hash.
	ErrUnknown = errors.New("no such token")
)

const (
	prefix    = "plant_"
	base62    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	secretLen = 30
	sumLen    = 6
)

// Generate returns a new credential: a prefix that secret scanners recognise, 30 random base62 characters
// (178 bits) and a checksum that detects typos without a lookup.
func Generate() string {
	n, _ := rand.Int(rand.Reader, secrets) // rand.Reader never fails
	digits := n.Text(62)
	secret := strings.Repeat("0", secretLen-len(digits)) + digits
	return prefix + secret + string(checksum(secret))
}

// secrets is how many secrets there are.
var secrets = new(big.Int).Exp(big.NewInt(62), big.NewInt(secretLen), nil)

// wellFormed reports whether a credential has the form and the checksum of a generated one.
func wellFormed(credential string) bool {
	body, ok := strings.CutPrefix(credential, prefix)
	return ok && len(body) == secretLen+sumLen && string(checksum(body[:secretLen])) == body[secretLen:]
}

func checksum(secret string) []byte {
	n := crc32.ChecksumIEEE([]byte(secret))
	var sum [sumLen]byte
	for i := sumLen - 1; i >= 0; i-- {
		sum[i] = base62[n%62]
		n /= 62
	}
	return sum[:]
}

// New returns a token and its credential. The caller stores the token and shows the credential once.
func New(name, store string, scopes Scope, now, expires time.Time) (t Token, credential string) {
	credential = Generate()
	return Token{
		Name: name, Hash: HashOf(credential), Store: store, Scopes: scopes,
		Tail: credential[len(credential)-4:], Created: now, Expires: expires,
	}, credential
}
