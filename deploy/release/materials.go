package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// parts returns what is linked into a program: the Go modules that it names itself, the standard library and the
// scripts of the console, each with its licenses.
func (r release) parts(binary string) ([]part, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	goroot, err := r.output(nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	parts := []part{{name: "Go standard library", version: version, purl: "pkg:golang/std@" + version}}
	folders := []string{goroot}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		folder, err := r.output(nil, "go", "list", "-m", "-f", "{{.Dir}}", m.Path+"@"+m.Version)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{name: m.Path, version: m.Version, purl: "pkg:golang/" + m.Path + "@" + m.Version})
		folders = append(folders, folder)
	}
	scripts, scriptFolders, err := r.scripts()
	if err != nil {
		return nil, err
	}
	parts, folders = append(parts, scripts...), append(folders, scriptFolders...)
	for i := range parts {
		if err := parts[i].readLicenses(folders[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", parts[i].name, err)
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.purl, b.purl) })
	return parts, nil
}

var npmPackage = regexp.MustCompile("npm `([^`]+)` (\\d+\\.\\d+\\.\\d+)")

// scripts returns the npm packages in the console. The README next to each has its name and version.
func (r release) scripts() (parts []part, folders []string, err error) {
	readmes, err := filepath.Glob(filepath.Join(r.root, "internal/console/*/README.md"))
	if err != nil || len(readmes) == 0 {
		return nil, nil, fmt.Errorf("no README of an npm package in internal/console: %v", err)
	}
	for _, path := range readmes {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		found := npmPackage.FindAllStringSubmatch(string(content), -1)
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("%s names no npm package with its version", path)
		}
		for _, m := range found {
			purl := "pkg:npm/" + strings.Replace(m[1], "@", "%40", 1) + "@" + m[2]
			parts = append(parts, part{name: m[1], version: m[2], purl: purl})
			folders = append(folders, filepath.Dir(path))
		}
	}
	return parts, folders, nil
}

var licenseFile = regexp.MustCompile(`(?i)^(LICEN[CS]E|COPYING|NOTICE|PATENTS)`)

// readLicenses reads the licenses and notices in a folder and identifies the licenses.
func (p *part) readLicenses(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var ids []string
	for _, f := range files {
		if f.IsDir() || !licenseFile.MatchString(f.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return err
		}
		p.texts = append(p.texts, text{f.Name(), string(content)})
		for _, m := range licensecheck.Scan(content).Match {
			if !m.IsURL && m.ID != "GooglePatentsFile" { // which is not an identifier of SPDX
				ids = append(ids, m.ID)
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("%s has no license that can be identified", folder)
	}
	slices.Sort(ids)
	p.license = strings.Join(slices.Compact(ids), " AND ")
	return nil
}

// billOfMaterials lists the parts of a program in the format CycloneDX 1.6.
func billOfMaterials(version, binary string, parts []part) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	type object map[string]any
	product := object{"type": "application", "bom-ref": "plantstore", "name": "plantstore", "version": version,
		"licenses": []object{{"license": object{"id": "MIT"}}},
		"hashes":   []object{{"alg": "SHA-256", "content": fmt.Sprintf("%x", sha256.Sum256(content))}}}
	components, refs := []object{}, []string{}
	for _, p := range parts {
		refs = append(refs, p.purl)
		components = append(components, object{"type": "library", "bom-ref": p.purl, "name": p.name, "version": p.version,
			"purl": p.purl, "licenses": []object{{"expression": p.license}}})
	}
	bill := object{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": object{"component": product}, "components": components,
		"dependencies": []object{{"ref": "plantstore", "dependsOn": refs}}}
	return json.MarshalIndent(bill, "", "  ") // members are ordered by name
}
