package testkit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// NPM installs the packages that package-lock.json in the folder of the test pins, and returns their folder,
// node_modules. They are installed once for each version of the file, below bin/tools.
var NPM = sync.OnceValues(func() (string, error) {
	files := map[string][]byte{}
	version := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		files[name] = text
		version.Write(text)
	}
	parent := filepath.Join(Root(), "bin", "tools")
	dir := filepath.Join(parent, fmt.Sprintf("%x", version.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return filepath.Join(dir, "node_modules"), nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(parent, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(partial, name), text, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir, npm.WaitDelay = partial, 10*time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %.200s", err, out)
	}
	if err := os.Rename(partial, dir); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return filepath.Join(dir, "node_modules"), nil
})
