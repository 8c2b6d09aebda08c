// Command release builds plantstore for every system: an archive with the program, its documents and the licenses of
// what is linked into it, a bill of materials for each archive, and SHA256SUMS. The same commit gives the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const allTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// release is what all archives have in common.
type release struct {
	root    string    // of the repository
	out     string    // folder of the results
	version string    // of the product
	date    time.Time // modification time of every file in an archive
	extra   string    // folder with more files for every archive, or empty
	pgo     string    // as for go build
}

func main() {
	var r release
	root := flag.String("root", ".", "the repository")
	out := flag.String("out", "bin/release", "folder of the results; it is replaced")
	flag.StringVar(&r.version, "version", "unknown", "version of the product")
	date := flag.Int64("date", 0, "modification time of the files, in seconds since 1970")
	flag.StringVar(&r.extra, "extra", "", "folder with more files for every archive")
	flag.StringVar(&r.pgo, "pgo", "auto", "profile for go build")
	targets := flag.String("targets", allTargets, "systems, separated by commas")
	flag.Parse()
	r.date = time.Unix(*date, 0).UTC()
	err := errors.Join(absolute(&r.root, *root), absolute(&r.out, *out))
	if err == nil {
		err = r.build(strings.Split(*targets, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func absolute(to *string, path string) (err error) {
	*to, err = filepath.Abs(path)
	return err
}

func (r release) build(targets []string) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	for _, target := range targets {
		goos, goarch, _ := strings.Cut(target, "/")
		start := time.Now()
		if err := r.buildTarget(goos, goarch); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		fmt.Printf("%s in %v\n", target, time.Since(start).Round(time.Second))
	}
	return r.writeSums()
}

// buildTarget writes the archive and the bill of materials of one system.
func (r release) buildTarget(goos, goarch string) error {
	name := fmt.Sprintf("plantstore_%s_%s_%s", r.version, goos, goarch)
	program := "plantstore"
	if goos == "windows" {
		program += ".exe"
	}
	work, err := os.MkdirTemp("", "plantstore-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, program)
	err = r.run([]string{"GOOS=" + goos, "GOARCH=" + goarch}, "go", "build", "-trimpath", "-pgo="+r.pgo,
		"-ldflags=-s -w -X main.version="+r.version, "-o", binary, "./cmd/plantstore")
	if err != nil {
		return err
	}
	parts, err := r.parts(binary)
	if err != nil {
		return err
	}
	bill, err := billOfMaterials(r.version, binary, parts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, name+".cdx.json"), bill, 0o644); err != nil {
		return err
	}
	a := archive{folder: name, date: r.date}
	a.addFile(program, binary, 0o755)
	for _, document := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		a.addFile(document, filepath.Join(r.root, document), 0o644)
	}
	a.add("THIRD-PARTY-LICENSES", licenseTexts(parts), 0o644)
	if r.extra != "" {
		a.addFolder(r.extra)
	}
	if goos == "windows" {
		return a.writeZip(filepath.Join(r.out, name+".zip"))
	}
	return a.writeTar(filepath.Join(r.out, name+".tar.gz"))
}

// run runs a command of the Go toolchain with settings that do not depend on the machine or its user.
func (r release) run(env []string, name string, args ...string) error {
	_, err := r.output(env, name, args...)
	return err
}

func (r release) output(env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// writeSums writes the checksums in the form of sha256sum.
func (r release) writeSums() error {
	files, err := os.ReadDir(r.out) // ordered by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// part is third-party code in the program.
type part struct {
	name, version string
	purl          string // package URL
	license       string // SPDX expression
	texts         []text // its licenses and notices
}

type text struct{ file, content string }

func licenseTexts(parts []part) []byte {
	var b bytes.Buffer
	b.WriteString("plantstore contains these parts under their own licenses.\n")
	for _, p := range parts {
		for _, t := range p.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), p.name, p.version, t.file,
				strings.TrimSpace(t.content))
		}
	}
	return b.Bytes()
}
