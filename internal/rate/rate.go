// Package rate implements token buckets: limits, and a bounded table of how much of its limit each key has used.
package rate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limit allows Count events in every Per on average, and Burst at once after a pause.
// The zero value is no limit.
type Limit struct {
	Count int64
	Per   time.Duration
	Burst int64
}

// maxCount bounds the fields of a Limit, so that no arithmetic below can overflow.
const maxCount = 1_000_000

// Parse parses a rate such as 100/s, 30/m or 1000/h. A burst of 0 stands for what the rate allows in a second,
// at least 1. An empty text without a burst is no limit.
func Parse(text string, burst int64) (Limit, error) {
	if text == "" && burst == 0 {
		return Limit{}, nil
	}
	count, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(count, 10, 0)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	switch {
	case text == "":
		return Limit{}, errors.New("a burst needs a rate: give a rate too, or no burst")
	case err != nil || per == 0 || n < 1 || n > maxCount:
		return Limit{}, fmt.Errorf("rate %q is invalid: use 1 to %d per s, m or h, such as 100/s", text, maxCount)
	case burst < 0 || burst > maxCount:
		return Limit{}, fmt.Errorf("burst %d is invalid: use 1 to %d", burst, maxCount)
	case burst == 0:
		seconds := int64(per / time.Second)
		burst = (int64(n) + seconds - 1) / seconds
	}
	return Limit{int64(n), per, burst}, nil
}

// String returns the rate in the form that Parse accepts; without a limit it is empty.
func (l Limit) String() string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[l.Per]
	if unit == "" {
		return ""
	}
	return strconv.FormatInt(l.Count, 10) + "/" + unit
}

func (l Limit) interval() time.Duration { return l.Per / time.Duration(l.Count) }

// Window returns how long it takes until a burst that is used up is available again.
func (l Limit) Window() time.Duration { return time.Duration(l.Burst) * l.interval() }

// State is what remains of a limit.
type State struct {
	OK   bool          // whether one more event was, or would be, within the limit
	Left int64         // how many more are allowed at once
	Wait time.Duration // until one more than Left is allowed; 0 if all of the burst is left
}

// Exceeded is the error of an event beyond a limit: why, and how long to wait.
type Exceeded struct {
	Why  error
	Wait time.Duration
}

func (e *Exceeded) Error() string {
	return fmt.Sprintf("%v; retry in %d s", e.Why, Seconds(e.Wait))
}
func (e *Exceeded) Unwrap() error { return e.Why }

// Seconds rounds a time to wait up to whole seconds, at least 1.
func Seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// Table records for each key how much of its limit is used. It is safe for concurrent use.
//
// It holds max keys at most. When it is full, it drops keys whose whole limit is available again, or else random
// ones, which then have their whole limit again.
type Table[K comparable] struct {
	max int
	now func() time.Time

	mu    sync.Mutex
	full  map[K]time.Time // when the whole limit of the key is available again
	swept time.Time       // when all keys were last checked
}

// NewTable returns an empty table.
func NewTable[K comparable](max int, now func() time.Time) *Table[K] {
	return &Table[K]{max: max, now: now, full: map[K]time.Time{}}
}

// Take counts one event of a key, if that is within its limit.
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

// Look returns what remains of the limit of a key, without counting an event.
func (t *Table[K]) Look(key K, l Limit) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.state(t.used(key, l, t.now()))
}

// used returns how much of the limit is used, as the time until all of it is available again. A key that had
// another limit before has used at most all of this one.
func (t *Table[K]) used(key K, l Limit, now time.Time) time.Duration {
	return min(max(0, t.full[key].Sub(now)), l.Window())
}

// state returns what remains of the limit when so much of it is used.
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
		t.evict(now)
	}
	t.full[key] = full
}

// evict makes space for one key. It checks all keys at most once a second, however many new ones there are.
func (t *Table[K]) evict(now time.Time) {
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
