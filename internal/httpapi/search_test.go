package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// pagesOf follows the links from a target and returns the ids of each page.
func pagesOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, a *API, target string) (pages [][]int64) {
	t.Helper()
	for target != "" {
		w := send(a, "GET", target, nil)
		var page []struct{ ID int64 }
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %v %.200s", target, w.Code, err, w.Body)
		}
		ids := []int64{}
		for _, p := range page {
			ids = append(ids, p.ID)
		}
		pages = append(pages, ids)
		target, _, _ = strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<"), ">")
	}
	return pages
}

// The pages of a search end at the limit or after the plants that it may examine, and the last one has no link.
func TestSearch(t *testing.T) {
	s := ferns(1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.plants[3] = plant.Content{Name: "Ivy", Tag: new("Climber")}
	s.plants[8] = plant.Content{Name: "climbing rose"}
	s.plants[9] = plant.Content{Name: "Ivy", Tag: new("")}
	for _, test := range []struct {
		query    string
		examined int
		want     string
	}{
		{"q=climb", maxExamined, "[[3 8]]"},
		{"q=CLIMB&limit=1", maxExamined, "[[3] [8] []]"},
		{"q=climb&tag=Climber", maxExamined, "[[3]]"},
		{"q=ivy", maxExamined, "[[3 9]]"},
		{"q=ivy&limit=2", maxExamined, "[[3 9]]"},
		{"tag=climber", maxExamined, "[[]]"},
		{"tag=", maxExamined, "[[9]]"},
		{"tag=shade&limit=3", maxExamined, "[[1 2 4] [5 6 7] []]"},
		{"q=x", maxExamined, "[[]]"},
		{"q=climb&after=3", maxExamined, "[[8]]"},
		{"q=x", 1, "[[] [] [] [] [] [] [] [] []]"},
		{"q=x", 3, "[[] [] []]"},
		{"q=climb", 4, "[[3] [8] []]"},
		{"q=climb", 8, "[[3 8] []]"},
		{"q=climb", 9, "[[3 8]]"},
		{"tag=shade&limit=2", 3, "[[1 2] [4 5] [6 7] []]"},
	} {
		a := newStorageAPI(s)
		a.maxExamined = test.examined
		if got := fmt.Sprint(pagesOf(t, a, "/plants?"+test.query)); got != test.want {
			t.Errorf("%s, examining %d: pages %v, want %v", test.query, test.examined, got, test.want)
		}
	}
	for id := range int64(10_001) {
		s.plants[id] = plant.Content{Name: "x"}
	}
	w := send(newStorageAPI(s), "GET", "/plants?q=y", nil)
	wantHeaders(t, w, "Link", `</plants?after=9999&limit=100&q=y>; rel="next"`)
}

// A link has the parameters of its page, and a search has no count.
func TestSearchHeaders(t *testing.T) {
	s := ferns(1, 2)
	a, _ := newAPI(Config{}, Dependencies{Reader: s, Prefix: "/v"})
	a.maxExamined = 1
	w := send(a, "GET", "/v/plants?q=%C3%84+%26%3E&tag=a%2Fb&limit=5000", nil, "Prefer", "count=exact")
	wantResponse(t, w, 200, "[]")
	wantHeaders(t, w, "Link", `</v/plants?after=1&limit=1000&q=%C3%84+%26%3E&tag=a%2Fb>; rel="next"`,
		"Plants-Count", "", "Preference-Applied", "")
	wantCalls(t, s, "List main start 1000")
	w = send(a, "GET", "/v/plants?q=&limit=2", nil, "Prefer", "count=exact")
	wantHeaders(t, w, "Plants-Count", "2", "Preference-Applied", "count=exact")
}

// Whatever is searched for, following the links returns the plants that match, in order and once each.
func TestSearchReturnsWhatMatches(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("aAkK\u212aßẞ ")), 0, 4, -1)
	tag := rapid.Ptr(text, true)
	rapid.Check(t, func(t *rapid.T) {
		s := ferns()
		for _, id := range rapid.SliceOfN(rapid.Int64Range(-20, 20), 0, 30).Draw(t, "ids") {
			s.plants[id] = plant.Content{Name: text.Draw(t, "name"), Tag: tag.Draw(t, "tag")}
			if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
				s.plants[id] = plant.Content{Name: strings.Repeat("ab", 60<<10), Tag: s.plants[id].Tag}
			}
		}
		q, wantTag := text.Draw(t, "q"), tag.Draw(t, "with tag")
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		a := newStorageAPI(s)
		a.maxExamined = rapid.SampledFrom([]int{1, 2, 5, maxExamined}).Draw(t, "examined")
		query := url.Values{"q": {q}, "limit": {fmt.Sprint(limit)}}
		if wantTag != nil {
			query.Set("tag", *wantTag)
		}
		var want, got []int64
		for _, id := range slices.Sorted(maps.Keys(s.plants)) {
			if plant.NewFilter(wantTag, q).Match(s.plants[id]) {
				want = append(want, id)
			}
		}
		for _, page := range pagesOf(t, a, "/plants?"+query.Encode()) {
			if len(page) > limit {
				t.Fatalf("a page of %d plants", len(page))
			}
			got = append(got, page...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: plants %v, want %v", query, got, want)
		}
	})
}

// A search reads a bounded number of bytes, 256 KiB at a time, and its page has no more than any other.
func TestSearchOfLargePlants(t *testing.T) {
	s := ferns()
	for id := range int64(100) {
		s.plants[id] = plant.Content{Name: strings.Repeat("x", 64<<10)}
	}
	w := send(newStorageAPI(s), "GET", "/plants?q=y", nil)
	wantResponse(t, w, 200, "[]")
	wantHeaders(t, w, "Link", `</plants?after=63&limit=100&q=y>; rel="next"`)
	if lists := s.counts["List"]; lists != 17 {
		t.Errorf("%d lists, want 16 of 256 KiB and one that shows that more follow", lists)
	}
	w = send(newStorageAPI(s), "GET", "/plants?q=x", nil)
	wantHeaders(t, w, "Link", `</plants?after=3&limit=100&q=x>; rel="next"`)
}

// sluggish is a storage of plants without end, each of whose lists takes 1.1 seconds.
type sluggish struct{ *fakeStorage }

func (sluggish) List(ctx context.Context, _ string, after *int64, limit int) (list []plant.Plant, err error) {
	select {
	case <-time.After(1100 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	first := int64(1)
	if after != nil {
		first = *after + 1
	}
	for id := range int64(min(limit, 10)) {
		size := storage.PageBytes / 20
		list = append(list, plant.Plant{ID: first + id, Content: plant.Content{Name: strings.Repeat("x", size)}})
	}
	list[len(list)-1].Name = strings.Repeat("x", storage.PageBytes)
	return list, nil
}

// A search that takes too long returns a short page with its link.
func TestSlowSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newAPI(Config{}, Dependencies{Reader: sluggish{ferns()}})
		start := time.Now()
		w := send(a, "GET", "/plants?q=y", nil)
		wantResponse(t, w, 200, "[]")
		wantHeaders(t, w, "Link", `</plants?after=90&limit=100&q=y>; rel="next"`)
		if took := time.Since(start); took != searchTime {
			t.Errorf("took %v, want %v", took, searchTime)
		}
		// Without any plant that was examined, an empty page would be the end of the list.
		a, _ = newAPI(Config{}, Dependencies{Reader: stalled{ferns(1)}})
		wantError(t, send(a, "GET", "/plants?q=fern", nil), 50303, "the database is unavailable")
	})
}

// stalled is a storage whose lists end only with their context.
type stalled struct{ *fakeStorage }

func (stalled) List(ctx context.Context, _ string, _ *int64, _ int) ([]plant.Plant, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A search of a client that has disconnected ends, whether it runs or waits.
func TestSearchOfDisconnectedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newAPI(Config{}, Dependencies{Reader: sluggish{ferns()}})
		start := time.Now()
		running := make(chan *httptest.ResponseRecorder, maxSearches)
		for n := range maxSearches {
			go func() {
				running <- send(leaving(a, 2500*time.Millisecond), "GET", "/plants?q=y", nil, "Authorization", fmt.Sprint(n))
			}()
		}
		synctest.Wait()
		wantAbandoned(t, leaving(a, time.Second), "GET", "/plants?q=y")
		if took := time.Since(start); took != time.Second {
			t.Errorf("the search that waits took %v", took)
		}
		for range maxSearches {
			wantHeaders(t, <-running, "Link", `</plants?after=20&limit=100&q=y>; rel="next"`)
		}
		if took := time.Since(start); took != 2500*time.Millisecond {
			t.Errorf("the searches that run took %v", took)
		}
	})
}

// ending is a storage whose reads end with their context.
type ending struct{ *fakeStorage }

func (ending) Get(ctx context.Context, _ string, id int64) (plant.Plant, error) {
	return plant.Plant{ID: id}, ctx.Err()
}

func (ending) List(ctx context.Context, _ string, _ *int64, _ int) ([]plant.Plant, error) {
	return nil, ctx.Err()
}

// A client that has closed its sending side after a request still gets a plant or a list.
func TestHalfClosed(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{Reader: ending{ferns(1)}})
	for _, target := range []string{"/plants/1", "/plants"} {
		if w := send(leaving(a, -1), "GET", target, nil, "Authorization", "x"); w.Code != 200 {
			t.Errorf("GET %s = %d %s", target, w.Code, w.Body)
		}
	}
}

// leaving is a handler of requests whose client disconnects after a while.
func leaving(h http.Handler, after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		if after < 0 {
			cancel()
		}
		time.AfterFunc(after, cancel)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// A token that searches on many connections does not delay the searches and lists of others.
func TestSearchesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := authenticator(func(header string) (*token.Token, error) {
			return &token.Token{Hash: token.HashOf(header), Store: header, Scopes: token.Read}, nil
		})
		a, _ := newAPI(Config{AccessLog: LogNone}, Dependencies{Reader: sluggish{ferns()}, Auth: auth})
		start := time.Now()
		statuses := make(chan int, maxWaitingOf+8)
		for range cap(statuses) {
			go func() { statuses <- send(a, "GET", "/plants?q=y", nil, "Authorization", "greedy").Code }()
		}
		synctest.Wait()
		for range 8 { // beyond those that may wait
			select {
			case status := <-statuses:
				if status != 503 {
					t.Errorf("a search that may not wait: %d", status)
				}
			default:
				t.Error("a search waits that may not")
			}
		}
		w := send(a, "GET", "/plants?q=x", nil, "Authorization", "modest")
		if took := time.Since(start); w.Code != 200 || took != 2200*time.Millisecond { // a full page, and whether more follow
			t.Errorf("a search of another token: %d after %v", w.Code, took)
		}
		got := map[int]int{}
		for range maxWaitingOf {
			got[<-statuses]++
		}
		if got[200] == 0 || got[503] == 0 || got[200]+got[503] != maxWaitingOf {
			t.Errorf("statuses of the greedy token: %v", got)
		}
		for range maxWaitingOf {
			if _, ok := a.waiting.Enter(token.HashOf("greedy")); !ok {
				t.Fatal("searches still wait after all responses")
			}
		}
	})
}
