package token

import (
	"testing"
	"time"
)

// Every hash has one slot of two seconds in each minute, and a thirtieth of all hashes has its slot now.
func TestRetrySlot(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	now := start
	l := newUnknownLimiter(func() time.Time { return now })
	inSlot := 0
	for range 3000 {
		hash := HashOf(Generate())
		now = start
		first := l.untilRetrySlot(hash)
		if first == 0 {
			inSlot++
			now = now.Add(2 * time.Second) // the end of the slot
			if first = l.untilRetrySlot(hash); first != 58*time.Second {
				t.Fatalf("two seconds after a slot: wait %v, want 58 s", first)
			}
		}
		slot := now.Add(first)
		for after, want := range map[time.Duration]time.Duration{
			-1: 1, 0: 0, 2*time.Second - 1: 0, 2 * time.Second: 58 * time.Second, time.Minute: 0,
		} {
			now = slot.Add(after)
			if got := l.untilRetrySlot(hash); got != want {
				t.Fatalf("%v after the start of the slot: wait %v, want %v", after, got, want)
			}
		}
	}
	if inSlot < 50 || inSlot > 160 {
		t.Errorf("%d of 3000 hashes have their slot now, want about 100", inSlot)
	}
}
