package main

import (
	"fmt"
	"strings"
	"time"

	"plantstore/internal/transfer"
)

// meter computes the rate of a copy from successive positions.
type meter struct {
	phase string
	done  int64
	last  time.Time
	rate  float64 // plants per second, of the recent past; 0 before two positions are known
}

const (
	barWidth  = 20
	smoothing = 3 * time.Second // how far back the rate goes, approximately
)

// line returns the progress at a time: the phase and the rate, and if the total is known a bar and the time left.
func (m *meter) line(phase transfer.Phase, done int64, now time.Time) string {
	if m.phase != phase.Name || done < m.done {
		m.phase, m.done, m.rate = phase.Name, 0, 0
	}
	if passed := now.Sub(m.last); passed > 0 {
		current := float64(done-m.done) / passed.Seconds()
		weight := min(1, passed.Seconds()/smoothing.Seconds())
		if m.rate == 0 {
			weight = 1
		}
		m.rate += weight * (current - m.rate)
	}
	m.done, m.last = done, now
	if phase.Total == 0 || done > phase.Total {
		return fmt.Sprintf("%s: %d plants, %.0f/s", phase.Name, done, m.rate)
	}
	share := float64(done) / float64(phase.Total)
	bar := strings.Repeat("#", int(share*barWidth))
	text := fmt.Sprintf("%-9s [%-*s] %3.0f %%  %d plants  %.0f/s", phase.Name, barWidth, bar, 100*share, done, m.rate)
	if m.rate > 0 {
		left := time.Duration(float64(phase.Total-done) / m.rate * float64(time.Second))
		text += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	return text
}
