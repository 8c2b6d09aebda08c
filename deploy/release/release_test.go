package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The release of this machine's system is built twice: both have the same bytes, and the archive has what it promises.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs this test")
	}
	extra := t.TempDir()
	if err := os.WriteFile(filepath.Join(extra, "page.1"), []byte("page"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out string
	var sums []string
	for range 2 {
		out = t.TempDir()
		// In a process of its own, the race detector does not slow it down.
		tool := exec.Command("go", "run", "-pgo=off", ".", "-root", "../..", "-out", out, "-version", "v9",
			"-date", "1000000000", "-extra", extra, "-pgo", "off", "-targets", runtime.GOOS+"/"+runtime.GOARCH)
		if text, err := tool.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		sums = append(sums, read(t, out, "SHA256SUMS"))
	}
	name := "plantstore_v9_" + runtime.GOOS + "_" + runtime.GOARCH
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 2 || !strings.Contains(sums[0], "  "+name+".tar.gz\n") {
		t.Errorf("the checksums of two builds:\n%s\n%s", sums[0], sums[1])
	}
	folder := unpack(t, filepath.Join(out, name+".tar.gz"))
	for file, want := range map[string]string{
		"LICENSE": "MIT License", "README.md": "# Plant Store", "CHANGELOG.md": "# Changelog", "page.1": "page",
	} {
		if got := read(t, folder, name, file); !strings.HasPrefix(got, want) {
			t.Errorf("%s starts with %.40q, want %q", file, got, want)
		}
	}
	binary := filepath.Join(folder, name, "plantstore")
	printed, err := exec.Command(binary, "version").Output()
	if err != nil || !strings.HasPrefix(string(printed), "plantstore version v9 ") {
		t.Errorf("version: %q, %v", printed, err)
	}
	checkParts(t, binary, read(t, folder, name, "THIRD-PARTY-LICENSES"), read(t, out, name+".cdx.json"))
}

// checkParts checks that licenses and bill of materials have every module of a program.
func checkParts(t *testing.T, binary, licenses, bill string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var materials struct {
		Components []struct {
			Purl     string
			Licenses []struct{ Expression string }
		}
	}
	if err := json.Unmarshal([]byte(bill), &materials); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, c := range materials.Components {
		if len(c.Licenses) != 1 || c.Licenses[0].Expression == "" {
			t.Errorf("%s has no license", c.Purl)
		}
		purls = append(purls, c.Purl)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
		if !strings.Contains(licenses, "\n"+m.Path+" "+m.Version+": LICENSE") {
			t.Errorf("THIRD-PARTY-LICENSES lacks %s", m.Path)
		}
	}
	for _, p := range want {
		if !slices.Contains(purls, p) {
			t.Errorf("the bill of materials lacks %s", p)
		}
	}
	if !strings.Contains(bill, "pkg:npm/%40scalar/api-reference@") {
		t.Error("the bill of materials lacks the scripts of the console")
	}
}

func unpack(t *testing.T, path string) string {
	t.Helper()
	folder := t.TempDir()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		to := filepath.Join(folder, h.Name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, h.FileInfo().Mode()))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestZip(t *testing.T) {
	a := archive{folder: "x", date: time.Unix(1e9, 0)}
	a.add("plantstore.exe", []byte("program"), 0o755)
	a.addFile("none", filepath.Join(t.TempDir(), "none"), 0o644)
	path := filepath.Join(t.TempDir(), "x.zip")
	if err := a.writeZip(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is missing: %v", err)
	}
	a.err, a.files = nil, a.files[:1]
	if err := a.writeZip(path); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if f := z.File[0]; f.Name != "x/plantstore.exe" || f.Mode() != 0o755 || !f.Modified.Equal(a.date) {
		t.Errorf("%s %v %v", f.Name, f.Mode(), f.Modified)
	}
}

func TestUnknownLicense(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "LICENSE"), []byte("Do as I say."), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(part).readLicenses(folder); err == nil {
		t.Error("a text that is no license is accepted")
	}
}
