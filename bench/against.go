package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The speed of a machine that others share changes all the time, so that long windows have nearly as much noise as
// short ones, and many short ones have less.
const (
	pairWindow = 100 * time.Millisecond // for one version, then the other
	pairWarm   = 60 * time.Millisecond
	pairFactor = 5 // of these times where a request may take as long as the window
)

// pair is a row of the service, once for each of two versions.
type pair struct{ old, new *row }

// bareHandler takes the place of a revision: creates and gets are compared with those of the bare handler.
const bareHandler = "bare"

// against compares the service of the working tree with that of another revision, or with the bare handler. Both run
// at the same time, and the load alternates between them in short windows, so that a disturbance of the machine affects
// both.
func (b *bench) against(revision string) (err error) {
	old := ""
	if revision != bareHandler {
		if old, err = b.buildRevision(revision); err != nil {
			return err
		}
	}
	var pairs []pair
	part := section{rounds: b.rounds, seconds: b.seconds}
	for _, r := range b.chosen(slices.Concat(coreRows(), postgresRows(), conditionRows(b.preload), readRows())) {
		if r.kind != product && r.kind != postgresProduct ||
			revision == bareHandler && r.request != create && r.request != get {
			continue
		}
		was, is := *r, *r
		was.program, is.program = old, b.bin("plantstore")
		if revision == bareHandler {
			was.kind = bare
		}
		pairs, part.rows = append(pairs, pair{&was, &is}), append(part.rows, &was, &is)
	}
	if len(pairs) == 0 {
		return errors.New("--only matches no row of the service, such as ours, postgres or get-64")
	}
	b.planned = b.rounds * len(pairs)
	run := func(b *bench, part section) error { return b.pairs(pairs, part) }
	if err := onPostgres(run, manyConnections)(b, part); err != nil {
		return err
	}
	b.progress.clear()
	return b.reportPairs(revision, pairs)
}

// buildRevision builds the service of a git revision and returns the path of the program.
func (b *bench) buildRevision(revision string) (string, error) {
	source, archive := filepath.Join(b.dir, "old"), filepath.Join(b.dir, "old.tar")
	program := filepath.Join(b.bin("old"), "plantstore")
	if err := os.Mkdir(source, 0o755); err != nil {
		return "", err
	}
	b.progress.say("building %s", revision)
	for _, step := range [][]string{
		{"git", "-C", "..", "archive", "--format=tar", "-o", archive, revision},
		{"tar", "-xf", archive, "-C", source},
		append([]string{"go"}, buildArgs(source, program, "./cmd/plantstore")...),
	} {
		if _, err := command(b.ctx, nil, buildEnv, step[0], step[1:]...); err != nil {
			return "", fmt.Errorf("build %s: %w", revision, err)
		}
	}
	return program, errors.Join(os.Remove(archive), os.RemoveAll(source))
}

// pairs measures every pair once in each round.
func (b *bench) pairs(pairs []pair, part section) error {
	for round := range part.rounds {
		for _, p := range pairs {
			b.done++
			if p.old.skipped != "" {
				continue
			}
			b.progress.say("%d/%d round %d: %s", b.done, b.planned, round+1, p.new.Title)
			if err := b.judge(p.new, round, b.together(p, round, part.seconds)); err != nil {
				return err
			}
		}
	}
	return nil
}

// together measures a pair: both versions run, and each gets windows of so many seconds in all. The version that is
// first changes with every window and every round.
func (b *bench) together(p pair, round int, seconds float64) (err error) {
	rows := []*row{p.old, p.new}
	servers, samples := make([]*server, len(rows)), make([][]sample, len(rows))
	for i, r := range rows {
		if servers[i], err = b.begin(r); err != nil {
			if i > 0 {
				err = errors.Join(err, b.end(servers[0]))
			}
			return err
		}
	}
	warm, window := pairTimes(p.new)
	for w := range 2 * pairCount(p.new, seconds) {
		i := (round + w + w/2) % 2 // old new new old …
		s, err := b.window(servers[i], warm, window.Seconds())
		if err != nil {
			return errors.Join(err, b.end(servers[0]), b.end(servers[1]))
		}
		samples[i] = append(samples[i], s)
	}
	for i, r := range rows {
		r.samples = append(r.samples, samples[i]...)
	}
	return errors.Join(b.end(servers[0]), b.end(servers[1]))
}

func pairTimes(r *row) (warm, window time.Duration) {
	if r.conns > 64 {
		return pairFactor * pairWarm, pairFactor * pairWindow
	}
	return pairWarm, pairWindow
}

// pairCount is how many windows each version gets in a round.
func pairCount(r *row, seconds float64) int {
	_, window := pairTimes(r)
	return max(1, int(seconds/window.Seconds()+0.5))
}

// reportPairs prints the changes from the old versions to the new ones.
func (b *bench) reportPairs(revision string, pairs []pair) error {
	var changes []change
	for _, p := range pairs {
		estimate := pairedRatio(pairCount(p.new, b.seconds))
		changes = append(changes, compareRounds(p.new.Title, p.old.samples, p.new.samples, estimate)...)
		if p.new.skipped != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", p.new.Title, p.new.skipped)
		}
	}
	if b.json {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return errors.Join(encoder.Encode(changes), b.invalid())
	}
	fmt.Printf("Old: %s. New: the working tree. %s; in each, both run and get %.3g s of load, in short windows that "+
		"alternate.\n\n", revision, plural(b.rounds, "round"), b.seconds)
	printChanges(os.Stdout, changes)
	fmt.Println("\nOld and new are medians of all windows. The change is estimated from the rounds, each with the " +
		"median of its pairs\nof windows. Better and WORSE mark changes whose interval excludes zero. By chance that also " +
		"happens to one in twenty\nfigures that are equal. More --rounds give narrower intervals.")
	return b.invalid()
}
