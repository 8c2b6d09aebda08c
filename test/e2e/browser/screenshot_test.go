package browser

import (
	"flag"
	"fmt"
	"math"
	"os"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var screenshotPath = flag.String("screenshot", "", "write the README's picture of the console to this `path`")

// TestScreenshot makes the picture in the README: the real page with sample plants.
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
	p := newPage(t, s.front)
	p.scheme("light")
	p.do(chromedp.EmulateViewport(1280, 900))
	p.open(s.Token)
	p.wantText("#count", "12")
	p.choose("#limit", "10")
	p.wantGone(row("11"))
	p.clickAt("[1,1]") // Nothing has the focus, and no row is under the pointer.

	bottom := eval[float64](p, `document.querySelector('.list').getBoundingClientRect().bottom + scrollY + 24`)
	beyond := true
	shot := call(p, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		Clip:                  &cdppage.Viewport{Width: 1280, Height: math.Ceil(bottom), Scale: 1},
		CaptureBeyondViewport: &beyond,
	})
	if err := os.WriteFile(*screenshotPath, shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, most := len(shot.Data), 200_000; got >= most {
		t.Errorf("the picture has %d bytes, want fewer than %d", got, most)
	}
}
