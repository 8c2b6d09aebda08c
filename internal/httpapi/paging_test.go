package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func TestParsePage(t *testing.T) {
	for _, test := range []struct {
		query string
		want  string // limit, after and the parameters of the filter, or the number and the message of the error
	}{
		{"", "100 start"},
		{"limit=1", "1 start"},
		{"limit=1000", "1000 start"},
		{"limit=0", `40026 limit must be an integer of at least 1, but is "0"`},
		{"limit=-1", `40026 limit must be an integer of at least 1, but is "-1"`},
		{"limit=1001", "1000 start"},
		{"limit=99999999999999999999999999", "1000 start"},
		{"limit=-99999999999999999999999999",
			`40026 limit must be an integer of at least 1, but is "-99999999999999999999999999"`},
		{"limit=+1", `40026 limit must be an integer of at least 1, but is " 1"`},
		{"limit=1.0", `40026 limit must be an integer of at least 1, but is "1.0"`},
		{"limit=", `40026 limit must be an integer of at least 1, but is ""`},
		{"limit=01", `40026 limit must be an integer of at least 1, but is "01"`},
		{"limit=" + strings.Repeat("x", 33),
			`40026 limit must be an integer of at least 1, but is "` + strings.Repeat("x", 32) + `"`},
		{"after=0", "100 0"},
		{"after=9223372036854775807&limit=2", "2 9223372036854775807"},
		{"limit=2&after=-9223372036854775808", "2 -9223372036854775808"},
		{"after=9223372036854775808", `40027 after ` + mustBeInt64 + `, but is "9223372036854775808"`},
		{"after=x", `40027 after ` + mustBeInt64 + `, but is "x"`},
		{"after=1&after=2", "40029 after appears more than once in the query string; send it once"},
		{"limit=1&limit=1", "40029 limit appears more than once in the query string; send it once"},
		{"&", "100 start"},
		{"q=", "100 start"},
		{"q=%ff", "40029 q in the query string must be UTF-8 without U+0000"},
		{"tag=%ed%a0%80", "40029 tag in the query string must be UTF-8 without U+0000"},
		{"tag=a%00", "40029 tag in the query string must be UTF-8 without U+0000"},
		{"tag=a&tag=a", "40029 tag appears more than once in the query string; send it once"},
		{"q=&q=", "40029 q appears more than once in the query string; send it once"},
		{"q=a%2Bb&limit=2", `2 start </plants?after=0&limit=2&q=a%2Bb>; rel="next"`},
		{"tag=&q=&after=1", `100 1 </plants?after=0&limit=100&tag=>; rel="next"`},
		{"q=x&tag=%F0%9F%8C%B5", `100 start </plants?after=0&limit=100&q=x&tag=%F0%9F%8C%B5>; rel="next"`},
	} {
		query, _ := url.ParseQuery(test.query)
		p, err := parsePage(query)
		got := fmt.Sprint(p.limit, " start")
		if p.after != nil {
			got = fmt.Sprint(p.limit, " ", *p.after)
		}
		if !p.filter.All() {
			got += " " + newStorageAPI(ferns()).link(p, 0)
		}
		if err != nil {
			f, message := classify(err)
			got = fmt.Sprint(f.Number, " ", message)
		}
		if got != test.want {
			t.Errorf("parsePage(%q) = %s, want %s", test.query, got, test.want)
		}
	}
}

// Pages have the plants in order, and a link exactly when more follow.
func TestList(t *testing.T) {
	all := func(from, to int64) (ids []int64) {
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
		return ids
	}
	for _, test := range []struct {
		name, query string
		stored      []int64
		want        []int64
		link        string
		calls       []string
	}{
		{"nothing", "", nil, nil, "", []string{"List main start 101"}},
		{"a whole page", "?limit=2", all(1, 2), all(1, 2), "", []string{"List main start 3"}},
		{"one more than a page", "?limit=2", all(1, 3), all(1, 2), "limit=2&after=2", []string{"List main start 3"}},
		{"a later page", "?limit=2&after=2", all(1, 3), all(3, 3), "", []string{"List main 2 3"}},
		{"the default limit", "", all(1, 101), all(1, 100), "limit=100&after=100", []string{"List main start 101"}},
		{"the largest page", "?limit=1000", all(1, 1001), all(1, 1000), "limit=1000&after=1000",
			[]string{"List main start 1001"}},
		{"the largest ids", "?limit=1", []int64{math.MaxInt64 - 1, math.MaxInt64}, []int64{math.MaxInt64 - 1},
			"limit=1&after=9223372036854775806", []string{"List main start 2"}},
		{"after the largest id", "?after=9223372036854775807", []int64{math.MaxInt64}, nil, "",
			[]string{"List main 9223372036854775807 101"}},
		{"after the smallest id", "?after=-9223372036854775808&limit=1", []int64{math.MinInt64, math.MinInt64 + 1},
			[]int64{math.MinInt64 + 1}, "", []string{"List main -9223372036854775808 2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := ferns(test.stored...)
			a, _ := newAPI(Config{}, Dependencies{Reader: s, Prefix: "/v"})
			w := send(a, "GET", "/v/plants"+test.query, nil)
			want := []string{}
			for _, id := range test.want {
				want = append(want, fmt.Sprintf(`{"id":%d,%s`, id, fern[1:]))
			}
			wantResponse(t, w, 200, "["+strings.Join(want, ",")+"]")
			link := ""
			if test.link != "" {
				limit, after, _ := strings.Cut(test.link, "&")
				link = fmt.Sprintf(`</v/plants?%s&%s>; rel="next"`, after, limit)
			}
			wantHeaders(t, w, "Link", link, "Plants-Count", "", "Preference-Applied", "")
			wantCalls(t, s, test.calls...)
		})
	}
}

// A page of large plants ends early. The link leads to the rest exactly when there is one.
func TestLargePages(t *testing.T) {
	const size = 100 << 10
	for _, stored := range []int64{2, 3, 4, 7} {
		s := ferns()
		for id := range stored {
			s.plants[id] = plant.Content{Name: strings.Repeat("x", size)}
		}
		var all []int64
		for i, page := range pagesOf(t, newStorageAPI(s), "/plants") {
			if want := min(3, int(stored)-3*i); len(page) != want {
				t.Errorf("page %d of %d plants has %d, want %d", i, stored, len(page), want)
			}
			all = append(all, page...)
		}
		if int64(len(all)) != stored || !slices.IsSorted(all) {
			t.Errorf("%d plants: %v", stored, all)
		}
		if stored == 3 { // one more plant is requested, which shows that none follows
			wantCalls(t, s, "List main start 101", "List main 2 1")
		}
	}
}

func TestCount(t *testing.T) {
	for prefer, want := range map[string]string{
		"count=exact": "12", "respond-async, Count=Exact": "12", " count=exact ,x": "12",
		`count="exact"`: "12", "count = exact": "12", "count\t=\t\"Exact\" ;x": "12", "count=exact;foo=bar, x": "12",
		`respond-async, wait=10;x="a, \", b", count=exact`: "12", "count=exact, count=none": "12", ", ,count=exact": "12",
		"": "", "count": "", "count=": "", `count=""`: "", "count=exactly": "", `count="exact`: "", `count="exact;x"`: "",
		"discount=exact": "", "x count=exact": "", "x;count=exact": "", `x="a, count=exact, b"`: "",
		"count=none, count=exact": "", "count, count=exact": "", "count=exact x": "", "count==exact": "",
		`count="exact"x`: "", `x="a\", count=exact, b"`: "", `x="a\\", count=exact`: "12",
	} {
		a := newStorageAPI(ferns(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
		w := send(a, "GET", "/plants?limit=1", nil, "Prefer", prefer)
		applied := ""
		if want != "" {
			applied = "count=exact"
		}
		if w.Code != 200 {
			t.Errorf("Prefer %q: %d", prefer, w.Code)
		}
		wantHeaders(t, w, "Plants-Count", want, "Preference-Applied", applied)
	}
}

// counted requests a list with its count.
func counted(a *API, token string) *httptest.ResponseRecorder {
	return send(a, "GET", "/plants", nil, "Prefer", "count=exact", "Authorization", token)
}

const fernPage = `[{"id":1,"name":"Fern","tag":"shade"}]`

// wantUncounted checks that a response is the page without a count.
func wantUncounted(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	wantResponse(t, w, 200, fernPage)
	wantHeaders(t, w, "Plants-Count", "", "Preference-Applied", "", "Retry-After", "")
}

// stuck is a storage whose counts of "greedy" run until their context ends.
type stuck struct{ Reader }

func (stuck) List(context.Context, string, *int64, int) ([]plant.Plant, error) {
	return []plant.Plant{{ID: 1, Content: plant.Content{Name: "Fern", Tag: new("shade")}}}, nil
}

func (stuck) Count(ctx context.Context, name string) (int64, error) {
	if name == "greedy" {
		<-ctx.Done()
	}
	return 1, ctx.Err()
}

// A token that counts on many connections does not delay the lists and counts of others. Its own lists are returned
// without counts, and none of its counts runs for longer than 20 seconds.
func TestCountsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := authenticator(func(header string) (*token.Token, error) {
			return &token.Token{Hash: token.HashOf(header), Store: header, Scopes: token.Read}, nil
		})
		a, _ := newAPI(Config{AccessLog: LogNone}, Dependencies{Reader: stuck{}, Auth: auth})
		start := time.Now()
		durations := make(chan time.Duration, maxWaitingOf+8)
		for range cap(durations) {
			go func() {
				wantUncounted(t, counted(a, "greedy"))
				durations <- time.Since(start)
			}()
		}
		synctest.Wait()
		for _, token := range []string{"modest", "modest", "modest", "third"} {
			w := counted(a, token)
			wantResponse(t, w, 200, fernPage)
			wantHeaders(t, w, "Plants-Count", "1", "Preference-Applied", "count=exact")
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the other tokens waited %v", waited)
		}
		for n := range cap(durations) {
			want := countWait
			switch {
			case n < 8: // beyond those that may wait
				want = 0
			case n == cap(durations)-1: // the one that runs
				want = countTime
			}
			if got := <-durations; got != want {
				t.Errorf("list %d of the greedy token took %v, want %v", n, got, want)
			}
		}
	})
}

// If the storage is too busy to count, the list is returned without its count.
func TestBusyCount(t *testing.T) {
	s := ferns(1)
	s.fail["Count 1"] = fmt.Errorf("inside: %w", storage.ErrBusy)
	wantUncounted(t, counted(newStorageAPI(s), ""))
}
