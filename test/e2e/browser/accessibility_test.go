package browser

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"plantstore/test/testkit"
)

// plants has every kind of name and tag that a list must show.
var plants = []string{
	`{"id":` + least + `,"name":"The least id there is","tag":"edge"}`,
	`{"id":1,"name":"Ficus lyrata","tag":"tree"}`,
	`{"id":2,"name":"","tag":""}`,
	`{"id":3,"name":"` + strings.Repeat("Taumatawhakatangihangakoauauotamatea", 12) + `"}`,
	`{"id":4,"name":"شجرة الزيتون · 盆栽 · 🌱\nin two lines","tag":"` + strings.Repeat("tag", 40) + `"}`,
	`{"id":` + most + `,"name":"The most","tag":"edge"}`,
}

// Everything works with the keyboard alone, and the focus is visible.
func TestKeyboardAlone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newPage(t, s.front)
	p.goTo("/")
	p.wantFocus("#token")
	p.press(s.Token + enter)
	p.wantFocus("h1")
	p.tabTo("#add-open")
	p.press(enter)
	p.wantFocus("#add-name")
	p.wantValue("#add-id", "1")
	p.pressShift(tab)
	p.wantFocus("#add-id")
	p.press("7" + tab + "Ficus" + tab + "tree" + tab)
	p.wantFocus("#add button")
	p.press(enter)
	p.wantRow("7", "Ficus", "tree")
	p.wantFocus("#add-name") // for the next plant, whose id is suggested
	p.wantValue("#add-id", "8")
	p.press("Aloe" + enter)
	p.wantRow("8", "Aloe", "")
	p.wantValue("#add-id", "9")
	p.press("kept" + escape)
	p.wantFocus("#add-open")
	p.press(enter)
	p.wantValue("#add-name", "kept")
	p.press(escape)

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
	p.press("changed" + escape)
	p.wantFocus("dialog .no")
	p.press(tab + enter)
	p.wantFocus(row("7") + " .edit")
	p.wantRow("7", "Ficus lyrata", "tree")
	p.tabTo(row("7") + " .remove")
	p.press(enter)
	p.wantGone(row("7"))
	p.wantFocus(row("8") + " .edit")
	s.wantNone(t, "7")
	s.want(t, `{"id":8,"name":"Aloe"}`)
}

// pressShift presses a key while Shift is held.
func (p *page) pressShift(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierShift)))
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

// In every state of the console, and on the pages of text, axe-core finds no serious accessibility problem, and the
// page fits a phone.
func TestAccessible(t *testing.T) {
	t.Parallel()
	var axe []byte
	packages, missing := testkit.NPM()
	if missing == nil {
		axe, missing = os.ReadFile(filepath.Join(packages, "axe-core", "axe.min.js"))
	}
	for _, tt := range []struct {
		name, scheme string
		phone, long  bool
	}{{"phone", "light", true, false}, {"light", "light", false, true}, {"dark", "dark", false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				testkit.Long(t)
			}
			s := serve(t, "--sandbox", "--webhook-targets", "private")
			s.addWebhook(t, `{"url":"http://127.0.0.1:1/`+strings.Repeat("hooks", 40)+`","description":"refuses"}`)
			s.create(t, plants...)
			p := newPage(t, s.front)
			p.scheme(tt.scheme)
			if tt.phone {
				p.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
			}
			if missing == nil {
				p.onLoad(string(axe))
			}
			check := func(state string) {
				t.Helper()
				if tt.phone {
					p.wantFit(state)
				}
				if missing == nil {
					p.wantAccessible(state)
				}
			}
			for _, name := range []string{"Errors", "Bodies"} {
				p.goTo("/docs/" + strings.ToLower(name))
				p.wantVisible("h1", name)
				check(name)
			}
			p.goTo("/")
			p.visitStates(s, check)
		})
	}
	if missing != nil {
		testkit.Unavailable(t, "axe-core is not available: %v", missing)
	}
}

// visitStates calls check in every state of the console.
func (p *page) visitStates(s *service, check func(state string)) {
	p.t.Helper()
	p.wantVisible("#sign-in")
	p.typeIn("#token", mistyped(s.Token)+enter)
	p.wantVisible("#sign-in-error .failure")
	check("a wrong token")
	p.enter(s.Token)
	p.wantRow("1", "Ficus lyrata", "tree")
	check("the list")
	p.click("#tab-webhooks")
	p.click("#deliveries .disclose")
	p.wantVisible("#deliveries .details")
	check("webhooks")
	p.click("#tab-plants")
	p.click(row("1") + " .edit")
	p.wantVisible(row("1") + " textarea")
	p.click(row("2") + " .disclose")
	p.wantVisible(".json pre")
	p.click(row("4") + " input")
	p.wantVisible("#remove-selected")
	p.click(row("3") + " .link") // It shows the complete name.
	p.click("#export")
	p.wantVisible("#export-job")
	p.drop("plants.csv", "id,name\nx,"+strings.Repeat("long", 60)+"\n")
	p.wantVisible(".bad-lines td")
	check("an editor, JSON, a selection, an import, an export and a long name")
	p.click("#import-close")
	p.typeIn(row("1")+" .f-name textarea", "changed")
	p.click("#refresh")
	p.wantVisible("dialog.question")
	check("a question")
	p.click("dialog button", "Keep editing")
	p.add("5", "Pilea", "")
	p.wantVisible("#status span")
	p.click("#remove-selected")
	p.wantVisible("#status button", "Undo")
	p.add("1", "taken", "")
	p.wantVisible("#add-error .failure")
	p.wantVisible("#use-free")
	check("a failure and a notice")
	p.click(row("1")+" button", "Cancel")
	p.click("#sign-out")
	p.click("#new-sandbox")
	p.wantVisible("#time-left")
	p.click("#tab-faults")
	p.click("#fault-stored-503")
	p.wantVisible("#rules td")
	check("faults")
	p.click("#tab-plants")
	p.wantVisible("#faults-note")
	p.click("#refresh")
	p.wantVisible("#list-error .failure")
	check("a sandbox")
	p.click("#tab-requests")
	p.click("tr.entry button")
	p.wantVisible(".details pre")
	check("requests")
}

// wantFit checks that the page is not wider than a phone.
func (p *page) wantFit(state string) {
	p.t.Helper()
	got := eval[[]float64](p, `[document.scrollingElement.scrollWidth, innerWidth, visualViewport.scale]`)
	if !slices.Equal(got, []float64{360, 360, 1}) {
		p.t.Errorf("%s: width, window and scale are %v, want 360, 360 and 1", state, got)
	}
}

// wantAccessible checks the page with axe-core.
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

// scheme sets the preferred color scheme, light or dark. Motion is reduced, so that no transition is tested.
func (p *page) scheme(value string) {
	p.t.Helper()
	features := []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: value},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
}
