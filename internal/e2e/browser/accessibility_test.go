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

	"plantstore/internal/testkit"
)

// plants has every kind of name and tag that a list must show.
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
		got := eval[[]float64](p, `[document.scrollingElement.scrollWidth, innerWidth, visualViewport.scale]`)
		if !slices.Equal(got, []float64{360, 360, 1}) {
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
	p.click(row("3") + " .link") // It shows the complete name.
	fits("a long name")
	p.click(row("4") + " .edit")
	p.wantVisible(row("4") + " textarea")
	fits("an editor")
	p.click(row("1") + " .disclose")
	p.wantVisible(".json pre")
	p.click(row("1") + " input")
	p.wantVisible("#remove-selected")
	fits("JSON and a selection")
	p.click("#export")
	p.wantVisible("#export-job")
	p.drop("plants.csv", "id,name\nx,"+strings.Repeat("long", 60)+"\n")
	p.wantVisible(".bad-lines td")
	fits("import and export")
	p.click(row("5") + " .remove")
	p.wantVisible("#status button", "Undo")
	fits("a notice")
	p.add("1", "another", "")
	p.wantVisible("#add-error .failure")
	fits("a failure")
	p.scheme("dark")
	p.screenshot("phone-dark")
	p.wantEmptyConsole()
}

// Everything works with the keyboard alone, and the focus is visible.
func TestKeyboardAlone(t *testing.T) {
	s := serve(t)
	p := newPage(t)
	p.goTo(s.URL + "/")
	p.wantFocus("#token")
	p.press(s.Token + enter)
	p.wantFocus("h1")
	p.tabTo("#add-id")
	p.press("7" + tab + "Ficus" + tab + "tree" + tab)
	p.wantFocus("#add button")
	p.press(enter)
	p.wantRow("7", "Ficus", "tree")
	p.wantFocus("#add-id") // for the next plant
	p.press("8" + tab + "Aloe" + enter)
	p.wantRow("8", "Aloe", "")

	p.tabTo(row("7") + " .edit")
	p.press(enter)
	p.wantFocus(row("7") + " textarea")
	p.do(selectAll)
	p.press("Ficus lyrata" + enter)
	p.wantRow("7", "Ficus lyrata", "tree")
	p.wantFocus(row("7") + " .edit")
	p.press(enter)
	p.wantFocus(row("7") + " textarea")
	p.press(escape) // Nothing was changed.
	p.wantFocus(row("7") + " .edit")
	p.press(enter)
	p.wantFocus(row("7") + " textarea")
	p.press("changed")
	p.press(escape)
	p.wantFocus("dialog .no")
	p.press(escape)
	p.wantGone("dialog")
	p.wantFocus(row("7") + " textarea")
	p.press(escape)
	p.wantFocus("dialog .no")
	p.press(tab + enter)
	p.wantFocus(row("7") + " .edit")
	p.wantRow("7", "Ficus lyrata", "tree")
	p.tabTo(row("7") + " .remove")
	p.press(enter)
	p.wantGone(row("7"))
	p.wantFocus(row("8") + " .edit")
	s.want(t, "7", 404, "")
	s.want(t, "8", 200, `{"id":8,"name":"Aloe"}`)
	p.wantEmptyConsole()
}

// wantFocus waits until an element has the focus, which must be visible.
func (p *page) wantFocus(selector string) {
	p.t.Helper()
	p.waitFor("the focus on "+selector, `document.activeElement.matches(`+js(selector)+`)`,
		`document.activeElement.outerHTML`)
	const visible = `document.activeElement.matches(':focus-visible') &&
		getComputedStyle(document.activeElement).outlineStyle !== 'none'`
	if !strings.HasPrefix(selector, "h1") && !eval[bool](p, visible) {
		p.t.Errorf("the focus on %s is not visible", selector)
	}
}

// tabTo presses Tab until an element has the focus.
func (p *page) tabTo(selector string) {
	p.t.Helper()
	var passed []string
	for range 20 {
		p.press(tab)
		if eval[bool](p, `document.activeElement.matches(`+js(selector)+`)`) {
			p.wantFocus(selector)
			return
		}
		passed = append(passed, eval[string](p, `document.activeElement.outerHTML`))
	}
	p.t.Fatalf("Tab does not reach %s; it passes %q", selector, passed)
}

// axe-core finds no serious accessibility problem in any state of the console.
func TestAccessible(t *testing.T) {
	source, err := axe()
	if err != nil {
		testkit.Unavailable(t, "axe-core is not available: %v; set AXE to the path of axe.min.js", err)
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
			p.click(row("2") + " .disclose")
			p.click(row("4") + " input")
			p.wantVisible("#remove-selected")
			p.click(row("3") + " .link")
			p.click("#export")
			p.drop("plants.csv", "id,name\nx,y\n")
			p.wantVisible(".bad-lines td")
			p.wantAccessible("an editor, JSON, a selection, an import, an export and a long name")
			p.click("#import-close")
			p.typeIn(row("1")+" .f-name textarea", "changed")
			p.click("#refresh")
			p.wantVisible("dialog.question")
			p.wantAccessible("a question")
			p.click("dialog button", "Keep editing")
			p.add("1", "taken", "")
			p.wantVisible("#add-error .failure")
			p.add("5", "Pilea", "")
			p.wantVisible("#status span")
			p.click("#remove-selected")
			p.wantVisible("#status button", "Undo")
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

// axe returns the source of axe-core, from the file that AXE names or from the npm registry, which it uses once.
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

// The console loads small scripts and styles, so that it starts fast on a slow phone. The time is not measured, since
// it depends on the machine.
func TestConsoleIsSmall(t *testing.T) {
	s := serve(t)
	p := openConsole(t, s)
	sizes := eval[[]int](p, `performance.getEntriesByType('resource')
		.filter((r) => /[.](js|css)$/.test(r.name)).map((r) => r.encodedBodySize)`)
	const maxBytes = 64 << 10
	total := 0
	for _, size := range sizes {
		total += size
	}
	if len(sizes) < 10 || total < 1000 || total > maxBytes {
		t.Errorf("%d scripts and styles have %d bytes compressed, want at most %d", len(sizes), total, maxBytes)
	}
}
