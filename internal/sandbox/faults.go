package sandbox

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/httpapi"
)

const (
	maxRules = 32
	maxDelay = 30_000 // ms
	maxTimes = 1_000_000
)

// rule is a fault, and the requests that get it. In a Prefer header, it is the fault of one request.
type rule struct {
	Method   string `json:"method,omitzero"` // "" is any
	Path     string `json:"path,omitzero"`   // as in the description; "" is any
	Code     int    `json:"code,omitzero"`   // a status or an error code
	Delay    *int   `json:"delay,omitzero"`  // ms
	Drop     bool   `json:"drop,omitzero"`
	Truncate bool   `json:"truncate,omitzero"`
	When     string `json:"when,omitzero"`  // before or after; "" is before
	Times    int    `json:"times,omitzero"` // 0: until it is removed
	Left     *int   `json:"left,omitzero"`  // of Times

	text  []string // of the preferences with the same fault
	fault httpapi.Fault
}

// afterNumbers are the error codes of a fault after a change, by code: a real failure with another one stores nothing.
var afterNumbers = map[int]int{500: 50001, 50001: 50001, 503: 50302, 50302: 50302}

// members are the members of a JSON object, by name.
type members = map[string]jsontext.Value

// decodeRule returns a rule, or what is wrong with it.
func decodeRule(m members) (r *rule, problem string) {
	r = new(rule)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if problem = r.set(name, m[name]); problem != "" {
			return nil, name + " " + problem
		}
	}
	after, isCode := r.When == "after", m["code"] != nil
	known := httpapi.ErrorOf(r.Code)
	injected := known
	if after {
		injected = httpapi.ErrorOf(afterNumbers[r.Code])
	}
	switch {
	case len(r.text) == 0:
		return nil, "code, delay, drop or truncate is required"
	case isCode && known == nil:
		return nil, fmt.Sprintf("code must be a status or an error code of this API, such as 503 or 42901, but is %d", r.Code)
	case isCode && injected == nil:
		return nil, fmt.Sprintf("code with when=after must be 500 or 503, but is %d", r.Code)
	case isCode && r.Drop, isCode && r.Truncate, r.Drop && r.Truncate:
		return nil, "code, drop and truncate exclude each other; send one of them"
	}
	r.fault = httpapi.Fault{Err: injected, Drop: r.Drop, Truncate: r.Truncate, After: after}
	r.fault.Text = strings.Join(r.text, ", ")
	if r.Delay != nil {
		r.fault.Delay = time.Duration(*r.Delay) * time.Millisecond
	}
	if after {
		r.fault.Text += "; when=after"
	}
	return r, ""
}

// set sets a member of a rule, or returns what is wrong with it.
func (r *rule) set(name string, v jsontext.Value) (problem string) {
	switch name {
	case "method":
		r.Method, problem = word(v, "GET", "POST", "PUT", "DELETE")
	case "path":
		r.Path, problem = word(v, "/plants", "/plants/{id}")
	case "when":
		r.When, problem = word(v, "before", "after")
	case "code":
		r.Code, problem = integer(v, 1, math.MaxInt32)
		r.text = append(r.text, fmt.Sprintf("code=%d", r.Code))
	case "delay":
		r.Delay = new(int)
		*r.Delay, problem = integer(v, 0, maxDelay)
		r.text = append(r.text, fmt.Sprintf("delay=%d", *r.Delay))
	case "times":
		r.Times, problem = integer(v, 1, maxTimes)
		r.Left = new(r.Times)
	case "drop", "truncate":
		if string(v) != "true" {
			return "must be true"
		}
		r.Drop, r.Truncate = r.Drop || name == "drop", r.Truncate || name == "truncate"
		r.text = append(r.text, name)
	default:
		return "is unknown; use method, path, code, delay, drop, truncate, when or times"
	}
	return problem
}

// integer returns a whole number from least to most. Like 1.0, it may have a fraction of zero.
func integer(v jsontext.Value, least, most int) (n int, problem string) {
	var f float64
	err := json.Unmarshal(v, &f)
	if err != nil || v.Kind() != '0' || f != math.Trunc(f) || f < float64(least) || f > float64(most) {
		return 0, fmt.Sprintf("must be an integer from %d to %d", least, most)
	}
	return int(f), ""
}

// word returns one of the words.
func word(v jsontext.Value, words ...string) (text, problem string) {
	if err := json.Unmarshal(v, &text); err != nil || !slices.Contains(words, text) {
		return "", "must be " + strings.Join(words, " or ")
	}
	return text, ""
}

var (
	parameter = regexp.MustCompile(`(?:[^;"]|"(?:[^"\\]|\\.)*"?)+`) // of a preference
	digits    = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
)

// parsePrefer reads the fault of Prefer headers (RFC 7240), or returns nil. Unknown preferences are ignored, and the
// first of several with the same name counts.
func parsePrefer(headers []string) (*rule, error) {
	m := members{}
	for _, preference := range httpapi.Preferences(headers) {
		for i, part := range parameter.FindAllString(preference, -1) {
			name, value, _ := strings.Cut(part, "=")
			name, value = strings.ToLower(strings.TrimSpace(name)), strings.Trim(strings.TrimSpace(value), `"`)
			isKnown := slices.Contains([]string{"code", "delay", "drop", "truncate", "when"}, name)
			if i == 0 && (m[name] != nil || !isKnown) {
				break // with its parameters
			}
			if m[name] != nil || !isKnown {
				continue
			}
			switch {
			case value == "":
				value = "true"
			case value != "true" && !digits.MatchString(value):
				value = strconv.Quote(value)
			}
			m[name] = jsontext.Value(value)
		}
	}
	if len(m) == 0 || len(m) == 1 && (string(m["when"]) == `"before"` || string(m["when"]) == `"after"`) {
		return nil, nil
	}
	r, problem := decodeRule(m)
	if problem != "" {
		return nil, httpapi.Failf(httpapi.ErrPreference, "the fault in the Prefer header is invalid: %s", problem)
	}
	return r, nil
}

// Fault returns the fault in the header of the request or, if it has none, that of the first rule that matches.
func (s *Sandboxes) Fault(store string, r *http.Request, route string) (*httpapi.Fault, error) {
	own, err := parsePrefer(r.Header["Prefer"])
	if err != nil {
		return nil, err
	}
	if own != nil {
		return &own.fault, nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rule := range s.box(store).rules {
		matches := (rule.Method == "" || rule.Method == method) && (rule.Path == "" || rule.Path == route)
		if !matches || rule.Left != nil && *rule.Left == 0 {
			continue
		}
		if rule.Left != nil {
			rule.Left = new(*rule.Left - 1)
		}
		return &rule.fault, nil
	}
	return nil, nil
}

func (s *Sandboxes) Faults(c httpapi.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []rule{}
	for _, r := range s.box(c.Token.Store).rules {
		all = append(all, *r)
	}
	return all, nil
}

func (s *Sandboxes) SetFaults(c httpapi.Call) (any, error) {
	var sent []members
	if err := json.Unmarshal(c.Body, &sent); err != nil || sent == nil || len(sent) > maxRules {
		return nil, httpapi.Failf(httpapi.ErrRules, "the body must be a JSON array of at most %d objects", maxRules)
	}
	rules := make([]*rule, len(sent))
	for i, m := range sent {
		var problem string
		if rules[i], problem = decodeRule(m); problem != "" {
			return nil, httpapi.Failf(httpapi.ErrRules, "rule %d: %s", i+1, problem)
		}
	}
	s.mu.Lock()
	s.box(c.Token.Store).rules = rules
	s.mu.Unlock()
	return s.Faults(c)
}

func (s *Sandboxes) ClearFaults(c httpapi.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box(c.Token.Store).rules = nil
	return nil, nil
}
