package transfer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"plantstore/test/testkit"
)

func environment(s *testkit.Server) []string {
	return []string{"PLANTSTORE_URL=" + s.URL, "PLANTSTORE_TOKEN=" + s.Token}
}

// runPlants runs plantstore plants against a server.
func runPlants(t *testing.T, s *testkit.Server, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return testkit.Run(t, environment(s), append([]string{"plants"}, args...)...)
}

// wantRun runs plantstore plants and checks the exit code and the lines of standard error, sorted. The time that an
// import took is not compared.
func wantRun(t *testing.T, s *testkit.Server, code int, stderr string, args ...string) {
	t.Helper()
	_, got, exit := runPlants(t, s, args...)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for i, line := range lines {
		if strings.Contains(line, " not imported; ") {
			lines[i] = line[:strings.LastIndex(line, ";")]
		}
	}
	slices.Sort(lines)
	want := strings.Split(stderr, "\n")
	slices.Sort(want)
	if exit != code || !slices.Equal(lines, want) {
		t.Errorf("plants %q: exit %d\n%s\nwant exit %d\n%s", args, exit, strings.Join(lines, "\n"), code,
			strings.Join(want, "\n"))
	}
}

func writeTemp(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "plants")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// naughty are plants that a careless format would change, ordered by id.
func naughty() (plants []string) {
	texts := []string{
		"", " ", "\t", "\n", "\r", "\r\n", "\"", "\"\"", ",", ";", "'", "\\", "\\n", `\N`, `\.`, `\x00`,
		"\ufeff", "\ufeffbom", "\u2028\u2029", "\u0085", "\u00a0", "\u200b", "\u202eabc", "e\u0301é", "ßﬁİ",
		"null", "NULL", "undefined", "=1+1", "-1", "-0", "1e400", "@SUM(1)", "{a,b}", "(1,2)", "[1]", "{\"id\":1}",
		"'; DROP TABLE plants; --", "%s $1 ? :x", "../../etc/passwd", "<script>&amp;", "id,name,tag", " x ", "line\nbreak",
		"\x01\x02\x1b[31m\x7f", "🌵👩‍🌾🏳️‍🌈", "شجرة", "Ω≈ç√∫", "田中さん", "\U0010ffff", "\ufffd\ufffe\uffff", "a,b;c\td\"e\"\r\nf",
		strings.Repeat("n", 65_000), strings.Repeat("<", 65_000), strings.Repeat("\u2028", 21_000),
		strings.Repeat("🌵", 16_000), strings.Repeat("\n", 32_000),
	}
	plants = append(plants, `{"id":-9223372036854775808,"name":"least"}`)
	for i, text := range texts {
		quoted := strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\x01", `\u0001`,
			"\x02", `\u0002`, "\x1b", `\u001b`).Replace(text)
		plants = append(plants, fmt.Sprintf(`{"id":%d,"name":"%s"}`, 2*i, quoted))
		if len(text) < 1000 {
			plants = append(plants, fmt.Sprintf(`{"id":%d,"name":"","tag":"%s"}`, 2*i+1, quoted))
		}
	}
	return append(plants, `{"id":9007199254740993,"name":"2^53+1"}`,
		`{"id":9223372036854775807,"name":"most","tag":"edge"}`)
}

// unescape replaces the escapes of characters that a terminal would interpret or not display. ASCII stays escaped.
func unescape(text string) string {
	return regexp.MustCompile(`(\\u[0-9a-f]{4})+`).ReplaceAllStringFunc(text, func(escapes string) string {
		var units []uint16
		for hex := range strings.SplitSeq(escapes[2:], `\u`) {
			n, _ := strconv.ParseUint(hex, 16, 16)
			units = append(units, uint16(n))
		}
		if units[0] < ' ' {
			return escapes
		}
		return string(utf16.Decode(units))
	})
}

// What is exported in any format and imported into another store is the same there.
func TestRoundTrip(t *testing.T) {
	want := strings.Join(naughty(), "\n") + "\n"
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		s := testkit.Start(t, db)
		load := plantsCommand(s, "import", "-", "--parallel", "8")
		load.Stdin = strings.NewReader(want)
		if out, err := load.CombinedOutput(); err != nil ||
			!strings.HasPrefix(string(out), fmt.Sprintf("plants of -: %d in the store, 0 skipped, ", len(naughty()))) {
			t.Fatalf("import -: %v\n%.1000s", err, out)
		}
		for _, format := range []string{"ndjson", "csv"} {
			exported, errs, code := runPlants(t, s, "export", "--format", format)
			if code != 0 || errs != "" || format == "ndjson" && unescape(exported) != want {
				t.Fatalf("export --format %s: exit %d, %s, %d bytes, want %d", format, code, errs, len(exported), len(want))
			}
			other := &testkit.Server{URL: s.URL, Token: testkit.IssueToken(t, db, "--name", format, "--store", format)}
			file := writeTemp(t, exported)
			for range 2 { // The second import changes nothing.
				wantRun(t, other, 0, fmt.Sprintf("plants of %s: %d in the store, 0 skipped, 0 not imported",
					file, len(naughty())), "import", file)
			}
			again, _, _ := runPlants(t, other, "export", "--format", format)
			lines, _, _ := runPlants(t, other, "export")
			if again != exported || unescape(lines) != want {
				t.Errorf("after import of %s, export writes %d bytes, want %d; ndjson %d, want %d", format, len(again),
					len(exported), len(lines), len(want))
			}
		}
	})
}

// An import lists what it can't import and imports the rest.
func TestImportReports(t *testing.T) {
	t.Parallel()
	db := testkit.Engines[0].Database(t)
	s := testkit.Start(t, db, "--max-body", "1000")
	s.Create(t, `{"id":1,"name":"Fern"}`)
	const content = "id,name,tag\n1,Fern,\n1,Other,\n2,\"a\nb\",\"\"\nx,,\n3,\xff,\n4,\x00,\n5,%s,\n6,last,z\n"
	file := writeTemp(t, fmt.Sprintf(content, strings.Repeat("n", 2000)))
	const others = "line 6: the id must be a 64-bit integer, but is \"x\"\nline 7: the line must be UTF-8\n" +
		"line 8: 40016: name must not contain the character U+0000, but does at byte 0\n" +
		"line 9: 40017: the body must have at most 1000 bytes, but has 2018\n"
	wantRun(t, s, 1, others+"line 3: 40009: id 1 already belongs to a plant with a different name or tag\n"+
		"plants of "+file+": 3 in the store, 0 skipped, 5 not imported\n"+
		"plantstore plants import: plants of "+file+" that were not imported: 5", "import", file)
	wantRun(t, s, 1, others+"plants of "+file+": 3 in the store, 1 skipped, 4 not imported\n"+
		"plantstore plants import: plants of "+file+" that were not imported: 4", "import", file, "--on-conflict", "skip")
	got, _, _ := runPlants(t, s, "export", "--format", "csv")
	if want := "id,name,tag\n1,Fern,\n2,\"a\nb\",\"\"\n6,last,z\n"; got != want {
		t.Errorf("the store has %q, want %q", got, want)
	}
	more := writeTemp(t, "id,name\n1,x\n2,y\n7,z\n,\n")
	out, errs, code := runPlants(t, s, "import", "--json", "--on-conflict=skip", more)
	if !strings.HasPrefix(out, "{\n  \"stored\": 1,\n  \"skipped\": 2,\n  \"failed\": 1,\n  \"seconds\": ") || code != 1 ||
		!strings.HasPrefix(errs,
			`{"line":5,"message":"the id must be a 64-bit integer, but is \"\""}`+"\n{\"message\":\"plants of ") {
		t.Errorf("import --json: exit %d, %s%s", code, out, errs)
	}
	_, errs, _ = runPlants(t, s, "import", "--json", writeTemp(t, "id,name\n1,x\n"))
	want := `{"line":2,"error":40009,"message":"id 1 already belongs to a plant with a different name or tag"}` + "\n"
	if !strings.HasPrefix(errs, want) {
		t.Errorf("import --json of another plant: %s, want %s", errs, want)
	}
	garbage := writeTemp(t, "\x1f\x8b\x08"+strings.Repeat("\xff\x00\n,\"", 10_000))
	wantRun(t, s, 1, "line 1: this is neither NDJSON nor CSV: "+
		"the first line of a CSV file must name the columns id, name and, optionally, tag\n"+
		"plants of "+garbage+": 0 in the store, 0 skipped, 1 not imported\n"+
		"plantstore plants import: plants of "+garbage+" that were not imported: 1", "import", garbage)
	empty := writeTemp(t, "")
	wantRun(t, s, 0, "plants of "+empty+": 0 in the store, 0 skipped, 0 not imported", "import", empty)

	one := writeTemp(t, "{\"id\":9,\"name\":\"x\"}\n")
	const again = "; run the same command again to continue: plants that are already in the store stay as they are"
	reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
	wantRun(t, &testkit.Server{URL: s.URL, Token: reader}, 6, "plantstore plants import: 40301: the operation needs the "+
		"scope plants:create, but the token has plants:read"+again, "import", one)
	wantRun(t, &testkit.Server{URL: s.URL, Token: "plant_x"}, 6, "plantstore plants import: 40103: "+
		"the token is malformed: a character is wrong or missing"+again, "import", one)
	wantRun(t, s, 1, "plantstore plants import: open /nowhere: no such file or directory", "import", "/nowhere")
	wantRun(t, s, 2, `plantstore plants import: --on-conflict is "x": use fail or skip`,
		"import", one, "--on-conflict", "x")
	wantRun(t, s, 2, "plantstore plants import: --parallel is 0: use 1 to 256", "import", one, "--parallel", "0")
	wantRun(t, s, 2, `plantstore plants export: --format is "xml": use ndjson or csv`, "export", "--format", "xml")
}

// many writes a file of n plants, and returns its path and what an export of them is.
func many(t *testing.T, n int) (path, content string) {
	t.Helper()
	var text strings.Builder
	for id := range n {
		fmt.Fprintf(&text, "{\"id\":%d,\"name\":\"Monstera deliciosa\",\"tag\":\"climber\"}\n", id)
	}
	return writeTemp(t, text.String()), text.String()
}

// count is the number of plants in the store of the server's token.
func count(t *testing.T, s *testkit.Server) string {
	t.Helper()
	return s.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").Header.Get("Plants-Count")
}

// launchImport starts an import and waits until it has created plants.
func launchImport(t *testing.T, s *testkit.Server, path string) *testkit.Server {
	t.Helper()
	before := count(t, s)
	running := testkit.Launch(t, plantsCommand(s, "import", path))
	testkit.WaitFor(t, "the import to create plants", func() bool { return count(t, s) != before || !running.Running() })
	return running
}

// A kill of the service during an import is only a pause, and an import that was killed can be repeated.
func TestImportKill(t *testing.T) {
	testkit.Long(t)
	const n = 20_000
	path, want := many(t, n)
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			db, address := e.Database(t), testkit.FreeAddress(t)
			s := testkit.Start(t, db, "--listen", address)
			killed := launchImport(t, s, path)
			killed.Kill()
			running := launchImport(t, s, path)
			began := time.Now()
			s.Kill()
			s = testkit.StartAgain(t, s, db, "--listen", address)
			if <-running.Ended; !running.Cmd.ProcessState.Success() {
				if pause := time.Since(began); pause < 10*time.Second { // It gives up later.
					t.Errorf("the import while the service was killed: failed after %v, %s", pause, running.Stderr)
				}
				if _, errs, code := runPlants(t, s, "import", path); code != 0 {
					t.Errorf("the import after a kill of the service: exit %d, %s", code, errs)
				}
			}
			if got, _, _ := runPlants(t, s, "export"); got != want {
				t.Errorf("the store has %d bytes of plants, want %d", len(got), len(want))
			}
			if killed.Cmd.ProcessState.ExitCode() == 0 {
				t.Log("the import was faster than the kill")
			}
		})
	}
}

// plantsCommand is plantstore plants against a server, to be launched.
func plantsCommand(s *testkit.Server, args ...string) *exec.Cmd {
	cmd := exec.Command(testkit.Binary, append([]string{"plants"}, args...)...)
	cmd.Env = append(os.Environ(), environment(s)...)
	return cmd
}

// Ctrl-C ends an import with a sentence on how to continue.
func TestImportInterrupt(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	io.WriteString(out, "{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":\"b\"}\n\n{\"id\":3,\"name\":\"c\"}\n")
	cmd := plantsCommand(s, "import", "-")
	cmd.Stdin = in
	running := testkit.Launch(t, cmd)
	in.Close()
	testkit.WaitFor(t, "three plants", func() bool { return count(t, s) == "3" })
	running.Signal(syscall.SIGINT)
	if code := running.WaitExit(); code != 1 || !strings.HasPrefix(running.Stderr.String(),
		"plantstore plants import: interrupt signal received; run the same command again to continue") {
		t.Errorf("an import that was interrupted: exit %d, %s", code, running.Stderr)
	}
}

// An export to a file is complete or does not exist.
func TestExportFile(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t))
	for format, want := range map[string]string{"ndjson": "", "csv": "id,name,tag\n"} {
		if got, errs, code := runPlants(t, s, "export", "--format", format); got != want || code != 0 {
			t.Errorf("an export of no plants in %s: exit %d, %q, %s", format, code, got, errs)
		}
	}
	path, want := many(t, 2500)
	if _, errs, code := runPlants(t, s, "import", path); code != 0 {
		t.Fatal(errs)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "plants.ndjson")
	wantFile := func() {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the file has mode %v, %v", info.Mode(), err)
		}
		if text, _ := os.ReadFile(file); string(text) != want {
			t.Errorf("the file has %d bytes, want %d", len(text), len(want))
		}
		if all, _ := os.ReadDir(folder); len(all) != 1 {
			t.Errorf("the folder has %v", all)
		}
	}
	wantRun(t, s, 0, "plants in "+file+": 2500", "export", "--to", file)
	wantFile()
	s.Create(t, `{"id":2500,"name":"new"}`)
	wantRun(t, s, 1, "plantstore plants export: open "+file+": file exists",
		"export", "--to", file)
	other := &testkit.Server{URL: s.URL, Token: "plant_x"}
	wantRun(t, other, 6, "plantstore plants export: "+file+"2 was not written: "+
		"40103: the token is malformed: a character is wrong or missing", "export", "--to", file+"2")
	wantFile()

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := plantsCommand(s, "export")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &errs
	if cmd.Run(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("an export to a full disk: %v, %s", cmd.ProcessState, errs.String())
	}
}
