package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const secretPrefix = "whsec_"

// NewSecret returns a random secret.
func NewSecret() string {
	key := make([]byte, 32)
	rand.Read(key)
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Sign returns the header webhook-signature of Standard Webhooks 1.0.0, with a signature for each valid secret.
func Sign(secrets []string, id string, at time.Time, body []byte) string {
	var all []string
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		if err != nil {
			continue
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// tolerance is the largest difference between the time of a signature and now.
const tolerance = 5 * time.Minute

// Verify returns an error unless the headers have a signature of the body with the secret, made about now.
func Verify(secret string, header http.Header, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil {
		return errors.New("webhook-timestamp is not a number of seconds")
	}
	at := time.Unix(seconds, 0)
	if at.Sub(now).Abs() > tolerance {
		return errors.New("webhook-timestamp is more than five minutes from now")
	}
	want := Sign([]string{secret}, header.Get("Webhook-Id"), at, body)
	for sent := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
		if want != "" && hmac.Equal([]byte(sent), []byte(want)) {
			return nil
		}
	}
	return errors.New("webhook-signature has no signature of this body with this secret")
}

const eventPrefix = "msg_"

// encoding keeps the order of the bytes that it encodes.
var encoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// newEvent returns the id of an event at a time. Ids sort by their milliseconds. The rest is random, so that a restored
// database repeats none.
func newEvent(at time.Time) string {
	id := eventID(at)
	rand.Read(id[6:])
	return eventPrefix + encoding.EncodeToString(id[:])
}

// firstEvent returns the lowest id of an event at a time or later.
func firstEvent(at time.Time) string {
	id := eventID(at)
	return eventPrefix + encoding.EncodeToString(id[:])
}

// eventID returns an id that has the time in its first 48 bits, and then zeros.
func eventID(at time.Time) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(min(max(at.UnixMilli(), 0), 1<<48-1))<<16)
	return id
}

// timeOf returns the time of an event, or the zero time if the id is invalid.
func timeOf(event string) time.Time {
	text, ok := strings.CutPrefix(event, eventPrefix)
	id, err := encoding.DecodeString(text) // which ignores line breaks
	if !ok || err != nil || len(id) != 16 || len(text) != encoding.EncodedLen(len(id)) {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id) >> 16)).UTC()
}
