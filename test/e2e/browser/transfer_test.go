package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	cdptarget "github.com/chromedp/cdproto/target"

	"plantstore/test/testkit"
)

// stored returns every plant of the store as the service writes it.
func (s *service) stored(t *testing.T) (plants []string) {
	t.Helper()
	a, err := s.Send("GET", "/plants?limit=1000", "")
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &raw); err != nil {
		t.Fatal(err)
	}
	for _, r := range raw {
		plants = append(plants, string(r))
	}
	return plants
}

// drop drops a file on the page, once the page listens.
func (p *page) drop(name, content string) {
	p.t.Helper()
	send := func(event string) string {
		return `((type, name, text) => {
			const dataTransfer = new DataTransfer();
			dataTransfer.items.add(new File([text], name));
			const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
			return !document.body.dispatchEvent(event);
		})(` + js(event, name, content) + `)`
	}
	p.waitFor("the page to accept a file", send("dragover"))
	if !eval[bool](p, send("drop")) {
		p.t.Fatalf("the page did not take %s", name)
	}
}

// badLine is a line of a file that is not imported.
type badLine struct{ Line, Why string }

// A file is imported whatever its format, and wherever the pieces end in which the browser reads it, also inside of a
// character. Lines that are not stored are listed with the reason.
func TestImport(t *testing.T) {
	testkit.Long(t)
	const range64 = "The id must be an integer from -9223372036854775808 to 9223372036854775807, but is "
	want := []string{
		`{"id":-9223372036854775808,"name":"least 🌱","tag":"a, \"b\"\nc"}`,
		`{"id":1,"name":"first"}`,
		`{"id":2,"name":"","tag":""}`,
		`{"id":9223372036854775807,"name":"most, [with] {brackets} \\ and \"quotes\""}`,
	}
	s, p := openConsole(t, want[1])
	eval[any](p, `{
		const stream = Blob.prototype.stream;
		Blob.prototype.stream = function () {
			return stream.call(this).pipeThrough(new TransformStream({
				transform(piece, to) {
					to.enqueue(piece.slice(0, 16)); // The first line of a CSV file is in the first piece.
					piece.slice(16).forEach((byte) => to.enqueue(Uint8Array.of(byte)));
				},
			}));
		};
	}`)
	for _, tt := range []struct {
		name, content string
		bad           []badLine
	}{
		{"plants.txt", "\ufeff[" + want[0] + ",\n" + want[2] + ",\n\n  " + want[3] +
			",\n{\"id\":\"5\",\"name\":\"x\"},{\"id\":1,\"name\":\"other\"},\n7,{bad}]\n",
			[]badLine{
				{"5", range64 + `the string "5".`}, {"5", "Another plant has this id."},
				{"6", "The body must be a JSON object, but is the number 7."}, {"6", "This is not valid JSON."},
			}},
		{"plants.json", want[0] + "\r\n" + want[2] + "\n\n{\"id\":6}\nnot JSON\n" +
			want[3] + "\n{\"id\":99999999999999999999,\"name\":\"x\"}",
			[]badLine{
				{"4", "The name is required and must be a string."},
				{"5", "This line is not a JSON object. In NDJSON, each line is one plant."},
				{"7", range64 + "99999999999999999999."},
			}},
		{"plants", "Tag,id,name\r\n\"a, \"\"b\"\"\nc\",-9223372036854775808,least 🌱\r\n\"\",2,\r\n,x,name\n,,name\n\n,3\n" +
			",9223372036854775807,\"most, [with] {brackets} \\ and \"\"quotes\"\"\"\n,1,other",
			[]badLine{
				{"5", `The id must be a whole number, but is "x".`}, {"6", "The id is missing."},
				{"8", "This line has 2 fields, but the first line has 3."}, {"10", "Another plant has this id."},
			}},
		{"semicolons.csv", "id;name;tag\n-9223372036854775808;least 🌱;\"a, \"\"b\"\"\nc\"\n2;;\"\"\n" +
			"9223372036854775807;\"most, [with] {brackets} \\ and \"\"quotes\"\"\";\n", nil},
		{"open.csv", "id,name,tag\n-9223372036854775808,least 🌱,\"a, \"\"b\"\"\nc\"\n2,,\"\"\n" +
			"9223372036854775807,\"most, [with] {brackets} \\ and \"\"quotes\"\"\",\n3,\"open\n4,x\n5,y\n",
			[]badLine{{"6", "A quote is opened and not closed. The lines from here are not imported."}}},
		{"misquoted.csv", "id,name,tag\n1,\"Fern,shade\n2,Ivy,sun\n3,\"Rose\",sun\n" +
			"-9223372036854775808,\"least 🌱\",\"a, \"\"b\"\"\nc\"\r\n2,,\"\"\r\n" +
			"9223372036854775807,\"most, [with] {brackets} \\ and \"\"quotes\"\"\",\n",
			[]badLine{{"2", "A quote is opened, and text follows the closing quote on line 4. " +
				"Nothing up to the end of that line is imported."}}},
		{"cut.json", "[" + want[0] + "," + want[2] + "," + want[3] + ",{\"id\":8,\"na",
			[]badLine{{"1", "The file ends before the list does: the plant of line 1 is not complete."}}},
	} {
		p.wantImported(tt.name, tt.content, 3, tt.bad)
		if got := s.stored(t); !slices.Equal(got, want) {
			t.Errorf("%s: the store has %s, want %s", tt.name, got, want)
		}
		p.wantIDs(least, "1", "2", most)
		for _, id := range []string{least, "2", most} {
			s.change(t, "DELETE", "/plants/"+id, "")
		}
		p.click("#refresh")
		p.wantIDs("1")
	}
}

// wantImported drops a file and checks what the page says about it.
func (p *page) wantImported(name, content string, plants int, bad []badLine) {
	p.t.Helper()
	p.drop(name, content)
	p.wantText("#import-title", "Imported: "+name)
	summary := fmt.Sprintf("%d plants are in the store.", plants)
	if len(bad) > 0 {
		summary = fmt.Sprintf("%d plants are in the store, %d not imported.", plants, len(bad))
	}
	p.wantText("#import-summary", summary)
	shown := eval[[]badLine](p, `[...document.querySelectorAll('.bad-lines tbody tr')].map((row) =>
		({ Line: row.cells[0].textContent, Why: row.cells[1].textContent }))`)
	if !slices.Equal(shown, bad) {
		p.t.Errorf("%s: the bad lines are %q, want %q", name, shown, bad)
	}
}

// An import waits when the service asks for it, and has at most 6 requests in flight. It can be cancelled.
func TestImportWaits(t *testing.T) {
	testkit.Long(t)
	var refusing atomic.Bool
	var inFlight atomic.Int32
	refusing.Store(true)
	hold := make(chan struct{})
	s, p := openHurried(t, func(w http.ResponseWriter, r *http.Request, product http.Handler) {
		if r.Method == "POST" && refusing.Load() {
			refuse(w)
			return
		}
		if r.Method == "POST" {
			if inFlight.Add(1) > 6 {
				t.Error("more than 6 requests are in flight")
			}
			defer inFlight.Add(-1)
			<-hold
		}
		product.ServeHTTP(w, r)
	})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	p.drop("many.ndjson", strings.Join(numbered(1000), "\n"))
	p.wantVisible("#import-waiting")
	refusing.Store(false)
	p.wantGone("#import-waiting")
	testkit.WaitFor(t, "6 requests in flight", func() bool { return inFlight.Load() == 6 })
	p.drop("second.ndjson", `{"id":2000,"name":"second"}`)
	p.wantText("#status span",
		"This file is not imported, because an import is running. Wait for it to end, or cancel it.")
	p.wantText("#import-title", "Importing: many.ndjson")
	for range 20 {
		hold <- struct{}{}
	}
	p.waitFor("the progress", `document.querySelector('#import-progress').value > 0`)
	const rate = `document.querySelector('#import-rate').textContent`
	p.waitFor("the time left", `/^[1-9] % · \d+ lines? a second · about \d+ (s|min) left$/.test(`+rate+`)`, rate)
	p.click("#import-cancel")
	release()
	p.wantText("#import-title", "Import cancelled: many.ndjson")
	p.wantText("#import-summary", fmt.Sprintf("%d plants are in the store.", len(s.stored(t))))
}

// What is exported can be imported, and is then the same. The command line exports the same file.
func TestRoundTrip(t *testing.T) {
	s, p := openConsole(t, append([]string{
		`{"id":7,"name":" spaces ","tag":" "}`, `{"id":8,"name":"semi;colon, comma\tand tab"}`,
		`{"id":9,"name":"line\r\nbreak \"quoted\"","tag":"\r"}`, `{"id":10,"name":"=1+1","tag":"'"}`,
	}, plants...)...)
	want := s.stored(t)
	downloads := t.TempDir()
	info := call(p, cdptarget.GetTargetInfo, cdptarget.GetTargetInfoParams{})
	call(p, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: downloads,
		BrowserContextID: info.TargetInfo.BrowserContextID,
	})
	export := func(which, format string, plants int) (content string) {
		t.Helper()
		path := filepath.Join(downloads, "main."+strings.ToLower(format))
		os.Remove(path)
		p.choose("#export-which", which)
		p.choose("#export-format", format)
		p.click("#export-job button", "Download")
		p.waitFor("the export", `document.querySelector('#export-summary')?.textContent.startsWith(`+
			js(fmt.Sprintf("%d plants exported.", plants))+`)`)
		testkit.WaitFor(t, path, func() bool {
			b, _ := os.ReadFile(path)
			content = string(b)
			return content != ""
		})
		return content
	}
	p.click("#export")
	for _, format := range []string{"JSON", "NDJSON", "CSV"} {
		content := export("all", format, len(want))
		environment := []string{"PLANTSTORE_URL=" + s.URL, "PLANTSTORE_TOKEN=" + s.Token}
		same, errs, _ := testkit.Run(t, environment, "plants", "export", "--format", strings.ToLower(format))
		if same != content && format != "JSON" {
			t.Errorf("plants export writes %q, %s; the console writes %q", same, errs, content)
		}
		for _, plant := range want {
			s.change(t, "DELETE", "/plants/"+idOf(plant), "")
		}
		p.wantImported("exported "+format, content, len(want), nil)
		if got := s.stored(t); !slices.Equal(got, want) {
			t.Errorf("%s: the copy has %s, want %s\nthe file: %s", format, got, want, content)
		}
	}
	p.search("edge")
	p.wantIDs(least, most)
	const found = "id,name,tag\n" + least + ",The least id there is,edge\n" + most + ",The most,edge\n"
	if content := export("search", "CSV", 2); content != found {
		t.Errorf("the exported search is %q, want %q", content, found)
	}
}
