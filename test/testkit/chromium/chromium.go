// Package chromium starts the browser of tests, Debian's Chromium.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// Start starts Chromium so that it works for root and reaches only this machine. The context is nil if Chromium is not
// installed.
func Start() (browser context.Context, stop func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, func() {}, nil
	}
	profile, err := os.MkdirTemp("", "plantstore-browser-")
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute), // Its start is slow on a busy machine.
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stop = func() {
		cancel()
		stopAllocator()
		os.RemoveAll(profile)
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return ctx, stop, nil
}
