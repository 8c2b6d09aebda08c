package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"plantstore/internal/plant"
)

// etag returns the entity tag of a plant, which depends only on its name and tag.
func etag(p plant.Content) string {
	sum := sha256.Sum256(p.AppendJSON(nil))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

var entityTag = regexp.MustCompile(`^(W/)?"[^"\x00-\x20\x7f]*"`)

// entityTags parses If-Match or If-None-Match as RFC 9110 defines it: "*", which must be alone, or a list of entity
// tags, in which elements may be empty. A request without the header has no tags.
func entityTags(r *http.Request, name string) (tags []string, err error) {
	headers := r.Header[name]
	if len(headers) == 0 {
		return nil, nil
	}
	list := strings.Join(headers, ",")
	if list == "*" {
		return []string{"*"}, nil
	}
	for rest := strings.TrimLeft(list, " \t,"); rest != ""; {
		tag := entityTag.FindString(rest)
		after := strings.TrimLeft(rest[len(tag):], " \t")
		if tag == "" || after != "" && after[0] != ',' {
			return nil, FailField(errBadPrecondition, name,
				`must be * or a list of entity tags such as "x", but has %.64q`, rest)
		}
		tags = append(tags, tag)
		rest = strings.TrimLeft(after, " \t,")
	}
	if len(tags) == 0 {
		return nil, FailField(errEmptyPrecondition, name, "is empty; send the ETag of the plant, or omit the header")
	}
	return tags, nil
}

// matchesWeakly reports whether a value of If-None-Match has the entity tag, by the weak comparison of RFC 9110.
func matchesWeakly(tags []string, tag string) bool {
	return slices.Contains(tags, "*") || slices.Contains(tags, tag) || slices.Contains(tags, "W/"+tag)
}

// precondition returns the plant that If-Match and If-None-Match allow an edit to change, or nil where they allow any.
// The engine compares again in the transaction of the edit, so a concurrent edit is not overwritten. An edit never
// creates a plant, so If-Match: * restricts nothing.
func (a *API) precondition(x *exchange, id int64) (*plant.Content, error) {
	match, err := entityTags(x.request, "If-Match")
	if err != nil {
		return nil, err
	}
	noneMatch, err := entityTags(x.request, "If-None-Match")
	if err != nil {
		return nil, err
	}
	anyMatch := match == nil || match[0] == "*"
	if anyMatch && noneMatch == nil {
		return nil, nil
	}
	p, err := a.deps.Reader.Get(x.ctx, x.token.Store, id)
	if err != nil {
		return nil, err
	}
	tag := etag(p.Content)
	switch {
	case !anyMatch && !slices.Contains(match, tag):
		return nil, plant.ErrChanged
	case matchesWeakly(noneMatch, tag):
		return nil, errMatches
	}
	return &p.Content, nil
}
