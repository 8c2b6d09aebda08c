package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"plantstore/internal/plant"
)

// etag returns the entity tag of a plant, which depends only on its name and tag.
func etag(p plant.Plant) string {
	sum := sha256.Sum256(p.AppendJSON(nil))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// entityTags parses If-Match and If-None-Match. The tags of plants contain no comma, so a comma ends one.
func entityTags(headers []string) (tags []string, err error) {
	for tag := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		tag = strings.TrimSpace(tag)
		opaque := strings.TrimPrefix(tag, "W/")
		switch {
		case tag == "":
		case tag == "*", len(opaque) >= 2 && strings.HasPrefix(opaque, `"`) && strings.HasSuffix(opaque, `"`):
			tags = append(tags, tag)
		default:
			return nil, failf(errBadPrecondition, `If-Match must be * or a list of entity tags such as "x", but has %.64q`, tag)
		}
	}
	return tags, nil
}

func matches(tags []string, tag string) bool {
	return slices.Contains(tags, "*") || slices.Contains(tags, tag)
}

// notModified reports whether If-None-Match has the entity tag, by the weak comparison of RFC 9110.
func notModified(headers []string, tag string) bool {
	tags, err := entityTags(headers)
	return err == nil && (matches(tags, tag) || matches(tags, "W/"+tag))
}

// precondition returns the plant that If-Match allows an edit to change, or nil where it allows any. The store
// compares again in the transaction of the edit, so a concurrent edit is not overwritten.
func (a *API) precondition(x *exchange, id int64) (*plant.Plant, error) {
	tags, err := entityTags(x.request.Header["If-Match"])
	if err != nil || len(tags) == 0 {
		return nil, err
	}
	p, err := a.deps.Reader.Get(x.context(), x.token.Store, id)
	if err != nil {
		return nil, err
	}
	if tags[0] == "*" {
		return nil, nil
	}
	if !matches(tags, etag(p.Plant)) {
		return nil, plant.ErrChanged
	}
	return &p.Plant, nil
}
