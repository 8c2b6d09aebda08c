package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

// machine describes the machine that the figures were measured on.
type machine struct {
	Cores      int     `json:"cores"`
	CPU        string  `json:"cpu"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	FileSystem string  `json:"file_system"`
	Sync       float64 `json:"sync_us"` // median µs of a pwrite of 4 KiB and an fdatasync
	Sync99     float64 `json:"sync_p99_us"`
}

func describe(dir string) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: "unknown"}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel, _, _ = strings.Cut("Linux "+strings.TrimSpace(string(release)), "-")
	m.FileSystem = fileSystem(dir)
	times, err := syncTimes(dir)
	if err != nil {
		return m, err
	}
	m.Sync, m.Sync99 = micros(times.Quantile(0.5)), micros(times.Quantile(0.99))
	return m, nil
}

// syncTimes measures what a commit waits for on this disk while nothing else runs.
func syncTimes(dir string) (*measure.Histogram, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	var times measure.Histogram
	for i, end := 0, time.Now().Add(time.Second); i < 500 && time.Now().Before(end); i++ {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i)*int64(len(page))); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		times.Record(time.Since(began))
	}
	return &times, nil
}

func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		0xEF53: "ext4", 0x01021994: "tmpfs (memory: nothing is durable here)", 0x9123683E: "btrfs", 0x58465342: "xfs",
		0x794c7630: "overlay", 0x2FC12FC1: "zfs",
	}
	if name, ok := names[int64(s.Type)]; ok {
		return name
	}
	return fmt.Sprintf("type %#x", s.Type)
}
