package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"plantstore/test/testkit"
)

// Clients that change and read the same plants at the same time get responses that each of them could have got alone.
// With PLANTSTORE_TEST_RACE, this is where the race detector sees requests meet.
func TestConcurrentClients(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() {
				for range 40 {
					sendAny(t, s, rand.IntN(8))
				}
			})
		}
		clients.Wait()
		if code := s.Stop(); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// sendAny sends one of several requests about a plant, with an invalid token now and then.
func sendAny(t *testing.T, s *testkit.Server, id int) {
	one, body := fmt.Sprint("/plants/", id), fmt.Sprintf(`{"id":%d,"name":"Fern %d"}`, id, rand.IntN(2))
	var a testkit.Response
	var want []int
	switch rand.IntN(7) {
	case 0, 1:
		a, want = s.Create(t, body), []int{0, 40009}
	case 2:
		a, want = s.Do(t, "GET", one, ""), []int{0, 40401}
	case 3:
		a, want = s.Do(t, "PUT", one, body, testkit.ContentJSON, "If-Match: *"), []int{0, 40401}
	case 4:
		a, want = s.Do(t, "DELETE", one, "", `If-Match: "other"`), []int{40401, 41201}
	case 5:
		a, want = s.Do(t, "GET", "/plants?q=fern&limit=3", "", "Prefer: count=exact"), []int{0}
	default:
		a, want = s.Do(t, "GET", "/plants", "", "Authorization: Bearer "+s.Token[1:]), []int{40103, 42902}
	}
	if !slices.Contains(want, a.Number()) || (a.Status == 200) != (a.Number() == 0) {
		t.Errorf("a request about plant %d: %d %s, want one of %v", id, a.Status, a.Body, want)
	}
}
