package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"

	"plantstore/internal/testkit"
)

// plants has something of each kind that a list must bear.
var plants = []string{
	`{"id":-9223372036854775808,"name":"The least id there is","tag":"edge"}`,
	`{"id":1,"name":"Ficus lyrata","tag":"tree"}`,
	`{"id":2,"name":"","tag":""}`,
	`{"id":3,"name":"` + strings.Repeat("Taumatawhakatangihangakoauauotamatea", 12) + `"}`,
	`{"id":4,"name":"شجرة الزيتون · 盆栽 · 🌱\nin two lines","tag":"` + strings.Repeat("tag", 40) + `"}`,
	`{"id":9223372036854775807,"name":"The most","tag":"edge"}`,
}

func TestPhone(t *testing.T) {
	s := serve(t)
	s.create(t, plants...)
	p := newPage(t)
	p.phone()
	p.goTo(s.URL + "/")
	fits := func(state string) {
		t.Helper()
		if got := eval[[]float64](p, `[document.scrollingElement.scrollWidth, innerWidth, visualViewport.scale]`); !slices.Equal(got, []float64{360, 360, 1}) {
			t.Errorf("%s: width, window and scale are %v, want 360, 360 and 1", state, got)
		}
	}
	fits("the sign-in form")
	p.enter(s.Token)
	p.wantRow("1", "Ficus lyrata", "tree")
	fits("the list")
	p.screenshot("phone")

	p.add("5", "Pilea", "small")
	p.wantRow("5", "Pilea", "small")
	p.click(row("3") + " .link") // shows all of the long name
	fits("a long name")
	p.click(row("4") + " .edit")
	p.wantVisible(row("4") + " textarea")
	fits("an editor")
	p.click(row("5") + " .remove")
	p.wantVisible(row("5") + " .danger")
	fits("a removal")
	p.add("5", "another", "")
	p.wantVisible("#add-error .failure")
	fits("a failure")
	p.scheme("dark")
	p.screenshot("phone-dark")
	p.wantQuiet()
}

// Everything is reached and done without a mouse, and what has the focus is seen.
func TestKeyboardAlone(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/")
	focusOn := func(selector string) {
		t.Helper()
		p.waitFor("the focus on "+selector, `document.activeElement.matches(`+js(selector)+`)`,
			`document.activeElement.outerHTML`)
		if !strings.HasPrefix(selector, "h1") &&
			!eval[bool](p,
				`document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle !== 'none'`) {
			t.Errorf("nobody sees that %s has the focus", selector)
		}
	}
	tabTo := func(selector string) {
		t.Helper()
		var passed []string
		for range 20 {
			p.press(tab)
			if eval[bool](p, `document.activeElement.matches(`+js(selector)+`)`) {
				focusOn(selector)
				return
			}
			passed = append(passed, eval[string](p, `document.activeElement.outerHTML`))
		}
		t.Fatalf("Tab does not reach %s; it passes %q", selector, passed)
	}

	focusOn("#token")
	p.press(s.Token + enter)
	focusOn("h1")
	tabTo("#add-id")
	p.press("7" + tab + "Ficus" + tab + "tree" + tab)
	focusOn("#add button")
	p.press(enter)
	p.wantRow("7", "Ficus", "tree")
	focusOn("#add-id") // ready for the next one
	p.press("8" + tab + "Aloe" + enter)
	p.wantRow("8", "Aloe", "")

	tabTo(row("7") + " .edit")
	p.press(enter)
	focusOn(row("7") + " textarea")
	p.do(selectAll)
	p.press("Ficus lyrata" + enter)
	p.wantRow("7", "Ficus lyrata", "tree")
	focusOn(row("7") + " .edit")
	tabTo(row("7") + " .remove")
	p.press(enter)
	focusOn(row("7") + " .danger")
	p.press(escape)
	focusOn(row("7") + " .remove")
	p.press(enter)
	focusOn(row("7") + " .danger")
	p.press(enter)
	p.wantGone(row("7"))
	focusOn(row("8") + " .edit")
	s.want(t, "7", 404, "")
	s.want(t, "8", 200, `{"id":8,"name":"Aloe"}`)
	p.wantQuiet()
}

// axe-core looks for what keeps people out who see, hear or move otherwise. No state of the
// console may have anything serious.
func TestAccessible(t *testing.T) {
	source, err := axe()
	if err != nil {
		testkit.Unavailable(t, "axe-core can't be had: %v; give the path of its axe.min.js in AXE", err)
	}
	for _, tt := range []struct {
		name, scheme string
		phone        bool
	}{{"light", "light", false}, {"dark", "dark", false}, {"phone", "light", true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t)
			s.create(t, plants...)
			p := newPage(t)
			p.scheme(tt.scheme)
			if tt.phone {
				p.phone()
			}
			p.goTo(s.URL + "/")
			eval[any](p, source+"; null")
			p.wantVisible("#sign-in")
			p.wantAccessible("the sign-in form")
			p.typeIn("#token", mistyped(s.Token)+enter)
			p.wantVisible("#sign-in-error .failure")
			p.wantAccessible("a wrong token")

			p.enter(s.Token)
			p.wantRow("1", "Ficus lyrata", "tree")
			p.wantAccessible("the list")
			p.screenshot("console-" + tt.name)
			p.click(row("1") + " .edit")
			p.wantVisible(row("1") + " textarea")
			p.click(row("4") + " .remove")
			p.wantVisible(row("4") + " .danger")
			p.click(row("3") + " .link")
			p.wantAccessible("an editor, a removal and a long name")
			p.add("1", "taken", "")
			p.wantVisible("#add-error .failure")
			p.add("5", "Pilea", "")
			p.wantVisible("#status span")
			p.add("1", "taken", "")
			p.wantVisible("#add-error .failure")
			p.wantAccessible("a failure")
			p.screenshot("console-" + tt.name + "-busy")
		})
	}
}

func (p *page) wantAccessible(state string) {
	p.t.Helper()
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct {
			Target         []string
			FailureSummary string
		}
	}
	for _, v := range eval[[]violation](p, `axe.run().then((r) => r.violations)`) {
		report := p.t.Logf
		if v.Impact == "serious" || v.Impact == "critical" {
			report = p.t.Errorf
		}
		report("%s: %s: %s (%s): %+v", state, v.Impact, v.Help, v.ID, v.Nodes)
	}
}

const (
	axeVersion = "4.14.0"
	axeSum     = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
)

// axe returns the source of axe-core: from the file that AXE names, or from npm's registry, once.
func axe() (string, error) {
	if path := os.Getenv("AXE"); path != "" {
		source, err := os.ReadFile(path)
		return string(source), err
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "plantstore")
	path := filepath.Join(folder, "axe-"+axeVersion+".min.js")
	if source, err := os.ReadFile(path); err == nil && sum(source) == axeSum {
		return string(source), nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(folder, "npm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pack := exec.CommandContext(ctx, "npm", "pack", "--loglevel=error", "--fetch-retries=1",
		"--fetch-retry-mintimeout=1000", "axe-core@"+axeVersion)
	pack.Dir = work
	if out, err := pack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack: %w: %s", err, bytes.TrimSpace(out))
	}
	packed, err := os.ReadFile(filepath.Join(work, "axe-core-"+axeVersion+".tgz"))
	if err != nil {
		return "", err
	}
	source, err := unpack(packed, "package/axe.min.js")
	if err != nil {
		return "", err
	}
	if got := sum(source); got != axeSum {
		return "", fmt.Errorf("axe.min.js of axe-core %s has the SHA-256 %s, want %s", axeVersion, got, axeSum)
	}
	return string(source), os.WriteFile(path, source, 0o644)
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func unpack(packed []byte, name string) ([]byte, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(plain); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("no %s in the package", name)
		}
		if err != nil {
			return nil, err
		}
		if file.Name == name {
			return io.ReadAll(files)
		}
	}
}

// How long the scripts of the console take on load is told, not held to a limit: a busy machine
// is no fault of the page. It is meant to stay under 100 ms.
func TestScriptTime(t *testing.T) {
	s := serve(t)
	s.create(t, plants...)
	p := openConsole(t, s)
	call(p, performance.Enable, performance.EnableParams{})
	var took []float64
	for range 5 {
		p.goTo(s.URL + "/")
		p.wantRow("1", "Ficus lyrata", "tree")
		for _, m := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
			if m.Name == "ScriptDuration" {
				took = append(took, m.Value*1000)
			}
		}
	}
	slices.Sort(took)
	if len(took) != 5 {
		t.Fatalf("the browser measured %v", took)
	}
	t.Logf("scripts took %.1f ms on load, median of %.1f", took[2], took)
}
