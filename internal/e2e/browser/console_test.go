package browser

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

// mistyped changes the last letter of a token, which is part of its checksum.
func mistyped(token string) string {
	last := "a"
	if strings.HasSuffix(token, last) {
		last = "b"
	}
	return token[:len(token)-1] + last
}

// row is the selector of a plant's row.
func row(id string) string { return fmt.Sprintf(`tr[data-id="%s"]`, id) }

// add fills the form and sends it.
func (p *page) add(id, name, tag string) {
	p.t.Helper()
	p.typeIn("#add-id", id)
	p.typeIn("#add-name", name)
	if tag != "" {
		p.typeIn("#add-tag", tag)
	}
	p.click("#add button")
}

// wantRow waits until a plant is shown with this name and tag. An empty tag means no tag.
func (p *page) wantRow(id, name, tag string) {
	p.t.Helper()
	p.wantText(row(id)+" .c-id", id) // with a minus that can be pasted
	p.wantText(row(id)+" .c-name", name)
	if tag == "" {
		tag = "–no tag"
	}
	p.wantText(row(id)+" .c-tag", tag)
}

func TestPlants(t *testing.T) {
	s := serve(t)
	p := openConsole(t, s)
	p.wantVisible("#empty p", "No plants yet. The first one you add appears here.")

	p.add("7", "Ficus lyrata", "tree")
	p.wantText("#status", "Plant 7 is in the store.") // It disappears by itself, so it is checked first.
	p.wantRow("7", "Ficus lyrata", "tree")
	p.wantText("#count", "1")
	s.want(t, "7", 200, `{"id":7,"name":"Ficus lyrata","tag":"tree"}`)

	p.add("7", "Monstera", "")
	p.wantVisible("#add-error bdi", "Another plant has this id. Choose another id, or edit that plant.")
	p.wantVisible("#add-error .detail", "Status 400 · error 40009")
	p.wantValue("#add-name", "Monstera") // The input is kept.

	p.click(row("7") + " .edit")
	p.typeIn(row("7")+" .f-name textarea", "Ficus elastica")
	p.typeIn(row("7")+" .f-tag textarea", backspace)
	p.click(row("7")+" button", "Save")
	p.wantRow("7", "Ficus elastica", "")
	s.want(t, "7", 200, `{"id":7,"name":"Ficus elastica"}`)

	p.add("8", "Aloe", "")
	p.wantRow("8", "Aloe", "")
	p.click(row("7") + " .remove")
	p.wantText("#status span", "Plant 7 is removed.")
	p.wantGone(row("7"))
	p.wantText("#count", "1")
	s.want(t, "7", 404, "")
	p.wantEmptyConsole()
	p.wantOneOrigin(s.URL)
}

func TestConflict(t *testing.T) {
	s := serve(t)
	s.create(t, `{"id":1,"name":"Aloe"}`)
	p := openConsole(t, s)
	behindThePage := func(name string) {
		t.Helper()
		if a := s.Do(t, "PUT", "/plants/1", fmt.Sprintf(`{"name":%q}`, name), testkit.ContentJSON); a.Status != 200 {
			t.Fatalf("replace plant 1: %d %s", a.Status, a.Body)
		}
	}

	p.click(row("1") + " .edit")
	p.typeIn(row("1")+" .f-name textarea", "mine")
	behindThePage("theirs")
	p.click(row("1")+" button", "Save")
	p.wantVisible(row("1")+" .detail", "Status 412 · error 41201")
	s.want(t, "1", 200, `{"id":1,"name":"theirs"}`)

	p.click("button", "Load the current version")
	p.wantValue(row("1")+" .f-name textarea", "theirs")
	p.typeIn(row("1")+" .f-name textarea", "mine, knowingly")
	p.click(row("1")+" button", "Save")
	p.wantRow("1", "mine, knowingly", "")

	// A plant that has changed since it was displayed is not removed.
	behindThePage("theirs again")
	p.click(row("1") + " .remove")
	p.wantVisible("#list-error li", "Plant 1: Somebody changed it in the meantime. Check it before you remove it.")
	s.want(t, "1", 200, `{"id":1,"name":"theirs again"}`)
	p.wantRow("1", "theirs again", "")
	p.click(row("1") + " .remove")
	p.wantGone(row("1"))
	s.want(t, "1", 404, "")
	p.wantEmptyConsole()
}

// A name is shown as text everywhere, whatever it contains.
func TestNamesAreText(t *testing.T) {
	const attack = "javascript:window.pwned=1"
	names := []string{
		`<img src=x onerror=window.pwned=1>`,
		`<script>window.pwned=1</script>`,
		`"><svg onload=window.pwned=1>`,
		`<a href="` + attack + `">`,
		`&lt;b&gt; {{pwned}} ${pwned}`,
	}
	s := serve(t)
	p := openConsole(t, s)
	for i, name := range names {
		id := fmt.Sprint(i)
		p.add(id, name, attack)
		p.wantRow(id, name, attack)
	}
	p.click("#refresh")
	for i, name := range names {
		id := fmt.Sprint(i)
		p.wantRow(id, name, attack)
		p.click(row(id) + " .disclose")
		p.wantVisible(".json pre")
		p.click(row(id) + " .disclose")
		p.click(row(id) + " .edit")
		p.wantValue(row(id)+" .f-name textarea", name)
		p.click(row(id)+" button", "Cancel")
		p.wantVisible(row(id) + " .edit:focus") // Keys that are typed earlier would go there.
	}
	p.typeIn("#search-text", names[0]+"!")
	p.wantText("#empty p", "No plant matches "+names[0]+"!.")
	p.drop(names[0], "{\"id\":0,\"name\":\""+"<img src=x onerror=window.pwned=1>\"}\n<b>")
	p.wantText("#import-title bdi", names[0])
	p.wantVisible(".bad-lines bdi")
	const created = `document.querySelectorAll('#store :is(img, script, a, iframe), #store svg:not(#chart)').length`
	if n := eval[int](p, created); n != 0 {
		t.Errorf("%d elements were created from names", n)
	}
	if pwned := eval[string](p, `typeof window.pwned`); pwned != "undefined" {
		t.Errorf("window.pwned is a %s: a name ran as script", pwned)
	}
	p.wantEmptyConsole()
	p.wantOneOrigin(s.URL)
}

// An id is any int64, although a JavaScript number is exact only up to 53 bits.
func TestEveryInt64IsExact(t *testing.T) {
	const most, least = "9223372036854775807", "-9223372036854775808"
	s := serve(t)
	s.create(t, `{"id":`+least+`,"name":"least"}`)
	p := openConsole(t, s)
	p.wantRow(least, "least", "")
	p.add(most, "most", "")
	p.wantRow(most, "most", "")
	s.want(t, most, 200, `{"id":`+most+`,"name":"most"}`)

	p.click("#refresh")
	p.wantRow(most, "most", "")
	p.click(row(most) + " .edit")
	p.typeIn(row(most)+" .f-name textarea", "the very most")
	p.click(row(most)+" button", "Save")
	p.wantRow(most, "the very most", "")
	s.want(t, most, 200, `{"id":`+most+`,"name":"the very most"}`)

	p.typeIn("#search-text", least)
	p.wantGone(row(most))
	p.wantRow(least, "least", "")
	p.click(row(least) + " .disclose")
	p.wantText(".json pre", "{\n  \"id\": "+least+",\n  \"name\": \"least\"\n}")
	p.wantEmptyConsole()
}

// Plants that other clients create appear without any action: in the count, in the chart, and as an offer to refresh
// the list.
func TestLive(t *testing.T) {
	s := serve(t)
	p := openConsole(t, s)
	p.wantText("#count", "0")
	p.wantVisible("#chart .zero")
	if bars := eval[int](p, `document.querySelectorAll('#chart .up').length`); bars != 0 {
		t.Errorf("%d bars for no plants", bars)
	}

	s.create(t, `{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`, `{"id":3,"name":"c"}`)
	p.wantText("#count", "3")
	p.wantVisible("#chart .up")
	p.wantVisible("#refresh", "Refresh: list changed")
	p.click("#refresh")
	p.wantRow("3", "c", "")
	p.wantVisible("#refresh", "Refresh")
	p.wantEmptyConsole()
}
