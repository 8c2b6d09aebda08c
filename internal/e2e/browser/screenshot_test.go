package browser

import (
	"flag"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var screenshotPath = flag.String("screenshot", "", "write the README's picture of the console to this `path`")

// TestScreenshot makes the picture in the README: the real page with sample plants and a minute of creates.
func TestScreenshot(t *testing.T) {
	if *screenshotPath == "" {
		t.Skip("a picture is made with -screenshot path")
	}
	s := serve(t)
	for i, p := range [][2]string{
		{"Monstera deliciosa", "climber"}, {"Ficus lyrata", "tree"}, {"Aloe vera", "succulent"},
		{"Pilea peperomioides", "windowsill"}, {"Olea europaea", "tree"}, {"Lavandula angustifolia", "herb"},
		{"Nephrolepis exaltata", "fern"}, {"Phalaenopsis amabilis", "orchid"}, {"Crassula ovata", "succulent"},
		{"Epipremnum aureum", "climber"}, {"Camellia sinensis", "tea"}, {"Ginkgo biloba", "tree"},
	} {
		s.create(t, fmt.Sprintf(`{"id":%d,"name":%q,"tag":%q}`, i+1, p[0], p[1]))
	}
	p := newPageFor(t, 3*time.Minute)
	p.scheme("light")
	p.do(chromedp.EmulateViewport(1280, 900))
	p.goTo(s.URL + "/")
	p.enter(s.Token)
	p.wantText("#count", "12")
	eval[any](p,
		`document.querySelector('#limit').value = '10';
		document.querySelector('#limit').dispatchEvent(new Event('change')); null`)
	p.wantGone(row("11"))

	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- s.grow(stop) }()
	time.Sleep(62 * time.Second) // The chart shows a minute.
	p.click("#refresh")
	p.wantText("#refresh", "Refresh")
	eval[any](p, `document.activeElement.blur()`)

	bottom := eval[float64](p, `document.querySelector('.list').getBoundingClientRect().bottom + scrollY + 24`)
	beyond := true
	shot := call(p, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		Clip:                  &cdppage.Viewport{Width: 1280, Height: math.Ceil(bottom), Scale: 1},
		CaptureBeyondViewport: &beyond,
	})
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*screenshotPath, shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, most := len(shot.Data), 200_000; got >= most {
		t.Errorf("the picture has %d bytes, want fewer than %d", got, most)
	}
}

// grow creates plants at a varying rate until stop is closed.
func (s service) grow(stop <-chan struct{}) error {
	start := time.Now()
	for id := 1000; ; id++ {
		body := fmt.Sprintf(`{"id":%d,"name":"Seedling %d"}`, id, id)
		if a, err := s.Send("POST", "/plants", body); err != nil || a.Status != 200 {
			return fmt.Errorf("create %s: %d %s %w", body, a.Status, a.Body, err)
		}
		x := time.Since(start).Seconds()
		rate := 11 + 6*math.Sin(x/7) + 4*math.Sin(x/2.3+1) // always above 1
		select {
		case <-stop:
			return nil
		case <-time.After(time.Duration(float64(time.Second) / rate)):
		}
	}
}
