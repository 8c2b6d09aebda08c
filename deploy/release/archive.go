package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// archive collects files, which writeTar and writeZip write in the same order. Both return the errors of the adds.
type archive struct {
	folder string // that all files are in
	date   time.Time
	files  []file
	err    error
}

type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

func (a *archive) add(name string, content []byte, mode fs.FileMode) {
	a.files = append(a.files, file{path.Join(a.folder, name), content, mode})
}

func (a *archive) addFile(name, from string, mode fs.FileMode) {
	content, err := os.ReadFile(from)
	a.err = errors.Join(a.err, err)
	a.add(name, content, mode)
}

// addFolder adds all files of a folder, ordered by name.
func (a *archive) addFolder(root string) {
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, p)
		a.addFile(filepath.ToSlash(name), p, 0o644)
		return err
	})
	a.err = errors.Join(a.err, err)
}

func (a *archive) writeTar(to string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range a.files {
		header := &tar.Header{Name: f.name, Size: int64(len(f.content)), Mode: int64(f.mode), ModTime: a.date,
			Format: tar.FormatUSTAR}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		t.Write(f.content) // Close returns its error
	}
	return a.write(to, &b, errors.Join(t.Close(), z.Close()))
}

func (a *archive) writeZip(to string) error {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range a.files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: a.date}
		header.SetMode(f.mode)
		w, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return a.write(to, &b, z.Close())
}

func (a *archive) write(to string, b *bytes.Buffer, err error) error {
	if err := errors.Join(a.err, err); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}
