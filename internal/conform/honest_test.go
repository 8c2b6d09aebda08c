package conform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/conform"
)

const credential = "a-fixed-token-for-tests"

// A server that was written from the specification page alone passes that level, in an empty store and in a used one,
// where plants of the first run have the bounds of the ids. The other levels are skipped, because it does not claim
// them.
func TestHonestServer(t *testing.T) {
	s := httptest.NewServer(&honestServer{plants: map[int64]honestPlant{}})
	defer s.Close()
	for _, taken := range []int{0, 2} {
		report := runCases(t, s.URL, conform.Options{})
		passed, skipped := 37-taken, len(conform.Cases())-37+taken
		if n := report.Of(conform.Specification)[conform.Passed]; n != passed || report.Counts[conform.Skipped] != skipped ||
			!report.OK() {
			t.Errorf("%v in the levels %q; want that %d cases of the specification pass, and %d are skipped\n%s",
				report.Counts, report.Levels, passed, skipped, failures(report))
		}
		if !slices.Equal(report.Levels, []string{conform.Specification}) {
			t.Errorf("the levels are %q, want the specification", report.Levels)
		}
	}
}

// The specification has one operation. The response to every other request does not matter, nor whether there is one.
func TestOneOperation(t *testing.T) {
	honest := &honestServer{plants: map[int64]honestPlant{}}
	for name, other := range map[string]func(w http.ResponseWriter){
		"401":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		"close": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method+r.URL.Path != "POST/plants" {
				other(w)
			} else {
				honest.ServeHTTP(w, r)
			}
		}))
		if report := runCases(t, s.URL, conform.Options{}); !report.OK() {
			t.Errorf("%s: %v\n%s", name, report.Counts, failures(report))
		}
		s.Close()
	}
}

// runCases runs the cases against the server at an address.
func runCases(t *testing.T, address string, o conform.Options) conform.Report {
	t.Helper()
	o.URL, _ = url.Parse(address)
	o.Token = credential
	report, err := conform.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// failures returns what a person needs to correct each case that failed.
func failures(r conform.Report) (text string) {
	for _, result := range r.Results {
		if result.Outcome == conform.Failed {
			text += result.ID + "\n  " + strings.Join(result.Lines(), "\n  ") + "\n"
		}
	}
	return text
}

// honestServer does what the specification page states, and has no code of the product.
type honestServer struct {
	mu     sync.Mutex
	plants map[int64]honestPlant
}

// honestPlant has a name, and a tag if one was sent.
type honestPlant map[string]string

func (s *honestServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, message string) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"error": status, "message": message})
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+credential:
		refuse(http.StatusUnauthorized, "the credential is missing or invalid")
	case r.URL.Path != "/plants":
		refuse(http.StatusNotFound, "there is only /plants")
	case r.Method != http.MethodPost:
		refuse(http.StatusMethodNotAllowed, "use POST")
	default:
		plant, err := s.create(r.Body)
		if err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
		json.NewEncoder(w).Encode(plant)
	}
}

// create stores the plant in a body. An id belongs to one plant.
func (s *honestServer) create(body io.Reader) (plant honestPlant, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	var id int64
	var name, tag string
	_, tagged := members["tag"]
	plant, err = honestPlant{}, errors.Join(read(members, "id", &id), read(members, "name", &name))
	if plant["name"] = name; tagged {
		err = errors.Join(err, read(members, "tag", &tag))
		plant["tag"] = tag
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored, ok := s.plants[id]; ok && !maps.Equal(stored, plant) {
		return nil, fmt.Errorf("the id %d belongs to another plant", id)
	}
	s.plants[id] = plant
	return plant, nil
}

// read reads a member that has the type of into, and is not null.
func read(members map[string]json.RawMessage, name string, into any) error {
	value := members[name]
	if value == nil || string(value) == "null" {
		return fmt.Errorf("%s is required", name)
	}
	return json.Unmarshal(value, into)
}
