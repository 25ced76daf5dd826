// Package report tests the page of talf report in a browser.
package report

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"talf/tools/chrome"
)

var results = flag.String("runs", "../../internal/report/testdata/run", "results to make a page of")

// file is the page that all tests open.
var file string

func TestMain(m *testing.M) {
	os.Exit(chrome.Main(m, func(dir string) (func() error, error) {
		file = filepath.Join(dir, "report.html")
		write := exec.Command(*chrome.Program, "report", "first="+*results, "second="+*results, "--out", file)
		write.Stderr = os.Stderr
		return nil, write.Run()
	}))
}

// open opens the page, which may not ask for anything, on a screen whose system has a theme.
func open(t *testing.T, width, height int64, theme string) *chrome.Tab {
	t.Helper()
	p := chrome.Open(t, width, height, func(u *url.URL) bool { return u.Scheme == "file" && u.Path == filepath.ToSlash(file) })
	p.Do(chrome.Theme(theme), chromedp.Navigate("file://"+file))
	return p
}

func TestThePageFitsEveryScreenInBothThemes(t *testing.T) {
	paper := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 820, 1360} {
			p := open(t, width, 900, theme)
			if got := chrome.Eval[int](p, "document.documentElement.scrollWidth"); got > int(width) {
				t.Errorf("%s, %d wide: the page is %d wide", theme, width, got)
			}
			if bad := chrome.Eval[[]string](p, `[...document.querySelectorAll("svg.chart")].filter(s => s.closest(".part").offsetParent && (s.getBoundingClientRect().width < 250 || s.getBoundingClientRect().height < 40)).map(s => s.getAttribute("aria-label"))`); len(bad) > 0 {
				t.Errorf("%s, %d wide: charts too small to read: %q", theme, width, bad)
			}
			paper[theme] = chrome.Eval[string](p, "getComputedStyle(document.body).backgroundColor")
			// Everything that is drawn differs from what it is drawn on by WCAG's ratio of 3, text by 4.5.
			for of, least := range map[string]float64{
				".chart .stroke": 3, ".chart circle": 3, ".chart .tick": 4.5, ".chart .name": 4.5, ".legend li": 4.5, ".note": 4.5, "td": 4.5, "th": 4.5, ".tree .kept text": 4.5, ".tree .own text": 4.5,
			} {
				if got := chrome.Eval[float64](p, fmt.Sprintf(contrast, of)); got < least {
					t.Errorf("%s: a contrast of %.2f of %s, want %v", theme, got, of, least)
				}
			}
			p.Picture(fmt.Sprintf("%s-%d", theme, width))
		}
	}
	if paper["light"] == paper["dark"] {
		t.Errorf("both themes are %s", paper["light"])
	}
}

// contrast is the least contrast of what a selector finds with the sheet that it lies on.
const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const light = c => {
		canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
		const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const found = [...document.querySelectorAll(%q)];
	return Math.min(...found.map(e => {
		const s = getComputedStyle(e);
		const ink = e instanceof SVGElement ? (s.fill !== "none" ? s.fill : s.stroke) : s.color;
		let on = e.parentElement;
		while (on && getComputedStyle(on).backgroundColor === "rgba(0, 0, 0, 0)") on = on.parentElement;
		const [a, b] = [light(ink), light(getComputedStyle(on).backgroundColor)].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05);
	}));
})()`

func TestRunsAndThemesAreChosenByKeyboard(t *testing.T) {
	p := open(t, 1000, 900, "light")
	focus := func() string {
		return chrome.Eval[string](p, `(e => e.id || e.getAttribute("href") || e.tagName)(document.activeElement)`)
	}
	shown := func(run string) int {
		return chrome.Eval[int](p, fmt.Sprintf(`[...document.querySelectorAll(".%s")].filter(e => e.getClientRects().length).length`, run))
	}
	var seen []string
	for len(seen) < 8 {
		p.Press("Tab", "", 9)
		seen = append(seen, focus())
	}
	if got := strings.Join(seen[:4], " "); got != "#main mode-system run0 run1" || seen[4] != "#speed" {
		t.Errorf("the keyboard goes to %q", seen)
	}
	first, second := shown("r0"), shown("r1")
	chrome.Eval[bool](p, `document.querySelector("#run0").focus(), true`)
	p.Press(" ", " ", 32)
	if shown("r0") != 0 || shown("r1") != second || first == 0 {
		t.Errorf("without the first run %d of its %d parts are shown, %d of the second's %d", shown("r0"), first, shown("r1"), second)
	}
	p.Press(" ", " ", 32)
	if shown("r0") != first {
		t.Errorf("%d parts of the first run, want %d again", shown("r0"), first)
	}
	light := chrome.Eval[string](p, "getComputedStyle(document.body).backgroundColor")
	chrome.Eval[bool](p, `document.querySelector("#mode-light").focus(), true`)
	p.Press("ArrowRight", "", 39)
	if got := chrome.Eval[string](p, "getComputedStyle(document.body).backgroundColor"); got == light || !chrome.Eval[bool](p, `document.querySelector("#mode-dark").checked`) {
		t.Errorf("the page stays %s", got)
	}
	chrome.Eval[bool](p, `document.querySelectorAll(".round summary")[1].focus(), true`)
	p.Press("Enter", "\r", 13)
	if !chrome.Eval[bool](p, `document.querySelectorAll(".round")[1].open && document.querySelectorAll(".round .tree")[1].getBoundingClientRect().height > 50`) {
		t.Error("the second round stays closed")
	}
}

func TestEverythingHasAName(t *testing.T) {
	p := open(t, 1000, 900, "light")
	for what, of := range map[string]string{
		"drawings":      `[...document.querySelectorAll("svg.chart")].filter(e => !e.getAttribute("aria-label"))`,
		"scrolled":      `[...document.querySelectorAll(".scroll")].filter(e => !e.getAttribute("aria-label") || e.tabIndex !== 0)`,
		"sections":      `[...document.querySelectorAll("section")].filter(e => !document.getElementById(e.getAttribute("aria-labelledby")))`,
		"fields":        `[...document.querySelectorAll("input")].filter(e => !e.labels.length || !e.labels[0].textContent.trim())`,
		"repeated ids":  `[...document.querySelectorAll("[id]")].filter(e => document.querySelectorAll("#" + e.id).length !== 1)`,
		"empty headers": `[...document.querySelectorAll("th")].filter(e => !e.textContent.trim())`,
	} {
		if n := chrome.Eval[int](p, of+".length"); n != 0 {
			t.Errorf("%s: %d without a name", what, n)
		}
	}
}
