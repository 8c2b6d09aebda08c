// Package rate counts how often something may happen: a limit, and a bounded table of who has used
// how much of it.
package rate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limit is Count in every Per on average, and Burst at once after a time of silence.
// The zero value is no limit.
type Limit struct {
	Count int64
	Per   time.Duration
	Burst int64
}

// What a limit may hold at most: no arithmetic below can overflow with it.
const most = 1_000_000

// Parse reads a rate such as 100/s, 30/m or 1000/h. A burst of 0 is what the rate gives in a second, 1 at
// least. An empty text is no limit.
func Parse(text string, burst int64) (Limit, error) {
	if text == "" && burst == 0 {
		return Limit{}, nil
	}
	count, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(count, 10, 63)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	switch {
	case text == "":
		return Limit{}, errors.New("there is a burst and no rate: expected both, or the rate alone")
	case err != nil || per == 0 || n < 1 || n > most:
		return Limit{}, fmt.Errorf("the rate is %q: expected one such as 100/s, 30/m or 1000/h, with a count from 1 to %d", text, most)
	case burst < 0 || burst > most:
		return Limit{}, fmt.Errorf("the burst is %d: expected 1 to %d", burst, most)
	case burst == 0:
		seconds := int64(per / time.Second)
		burst = (int64(n) + seconds - 1) / seconds
	}
	return Limit{int64(n), per, burst}, nil
}

// String is the rate in the form that Parse reads; of no limit it is empty.
func (l Limit) String() string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[l.Per]
	if unit == "" {
		return ""
	}
	return strconv.FormatInt(l.Count, 10) + "/" + unit
}

func (l Limit) interval() time.Duration { return l.Per / time.Duration(l.Count) }

// Window is how long it takes until a burst that is used up is there again.
func (l Limit) Window() time.Duration { return time.Duration(l.Burst) * l.interval() }

// State is what is left of a limit.
type State struct {
	OK   bool          // whether one more was, or would be, within the limit
	Left int64         // how many may come at once after that
	Wait time.Duration // until there is one more than Left, or, where OK is false, until one is OK
}

// Exceeded is an error for whoever is over a limit: why, and how long to wait.
type Exceeded struct {
	Why  error
	Wait time.Duration
}

func (e *Exceeded) Error() string {
	return fmt.Sprintf("%v; retry in %d s", e.Why, Seconds(e.Wait))
}
func (e *Exceeded) Unwrap() error { return e.Why }

// Seconds rounds a time to wait up to whole seconds, 1 at least.
func Seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// Table knows for each key how much of its limit is used. It is safe for concurrent use.
//
// It holds max keys at most. A key that has used nothing for as long as its window need not be held; where all
// have, any one is forgotten, and may then use its limit anew.
type Table[K comparable] struct {
	max int
	now func() time.Time

	mu    sync.Mutex
	full  map[K]time.Time // when nothing of the limit is used any more, if nothing else comes
	swept time.Time
}

// NewTable makes an empty table.
func NewTable[K comparable](max int, now func() time.Time) *Table[K] {
	return &Table[K]{max: max, now: now, full: map[K]time.Time{}}
}

// Take uses one of the key's limit where that is OK.
func (t *Table[K]) Take(key K, l Limit) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	used := t.used(key, l, now)
	s := l.state(used)
	if !s.OK {
		return s
	}
	used += l.interval()
	t.put(key, now, now.Add(used))
	s = l.state(used)
	s.OK = true
	return s
}

// Look is what Take would find, without taking.
func (t *Table[K]) Look(key K, l Limit) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.state(t.used(key, l, t.now()))
}

// used is how long it takes until nothing is: what was used under another limit counts for this one, and at
// most as all of it.
func (t *Table[K]) used(key K, l Limit, now time.Time) time.Duration {
	return min(max(0, t.full[key].Sub(now)), l.Window())
}

// state is what is left when so much is used.
func (l Limit) state(used time.Duration) State {
	each := l.interval()
	left := int64((l.Window() - used) / each)
	s := State{OK: left > 0, Left: left}
	if left < l.Burst {
		s.Wait = used - l.Window() + time.Duration(left+1)*each
	}
	return s
}

func (t *Table[K]) put(key K, now, full time.Time) {
	if _, ok := t.full[key]; !ok && len(t.full) >= t.max {
		t.makeRoom(now)
	}
	t.full[key] = full
}

// makeRoom looks through the table once a second at most, however many new keys come.
func (t *Table[K]) makeRoom(now time.Time) {
	if now.Sub(t.swept) >= time.Second {
		t.swept = now
		for key, full := range t.full {
			if !full.After(now) {
				delete(t.full, key)
			}
		}
	}
	for key := range t.full {
		if len(t.full) < t.max {
			return
		}
		delete(t.full, key)
	}
}
