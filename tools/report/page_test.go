// Package report tests the page of talf report in a browser.
package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	program  = flag.String("talf", "", "the program (default: built from this repository)")
	chromium = flag.String("chromium", "chromium", "the browser")
	pictures = flag.String("pictures", "", "directory that screenshots are written to")
	results  = flag.String("runs", "../../internal/report/testdata/run", "results to make a page of")
)

// patience bounds what a test waits for. It is no measure of speed.
const patience = 60 * time.Second

// What all tests share.
var (
	chrome context.Context // of the browser
	file   string          // the page
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *program == "" {
		*program = filepath.Join(dir, "talf")
		build := exec.Command("go", "build", "-o", *program, "./cmd/talf")
		build.Dir, build.Stderr = "../..", os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build talf:", err)
			return 1
		}
	}
	file = filepath.Join(dir, "report.html")
	write := exec.Command(*program, "report", "first="+*results, "second="+*results, "--out", file)
	write.Stderr = os.Stderr
	if err := write.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "write the page:", err)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(*chromium), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", false), chromedp.Flag("force-color-profile", "srgb"))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocated)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "start the browser:", err)
		return 1
	}
	chrome = ctx
	return m.Run()
}

// A tab is the page, which may neither complain nor ask for anything.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	complain []string
}

// open opens the page on a screen, whose system has a theme.
func open(t *testing.T, width, height int64, theme string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.complain {
			t.Error(c)
		}
	})
	if err := chromedp.Listen(ctx, p.watch); err != nil {
		t.Fatal(err)
	}
	p.do(call(network.Enable, network.EnableParams{}), chromedp.EmulateViewport(width, height),
		call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}),
		chromedp.Navigate("file://"+file))
	return p
}

// call is a command as an action.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (p *tab) watch(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complain = append(p.complain, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.complain = append(p.complain, "log: "+e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if e.Request.URL != "file://"+file {
			p.complain = append(p.complain, "a request to "+e.Request.URL)
		}
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (p *tab) press(key, text string, code int64) {
	p.t.Helper()
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Code: key, WindowsVirtualKeyCode: code, Text: text}
	up := down
	up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
	p.do(call(input.DispatchKeyEvent, down), call(input.DispatchKeyEvent, up))
}

// picture writes a screenshot of the whole page if pictures are asked for.
func (p *tab) picture(name string) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	b, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err := errors.Join(err, os.MkdirAll(*pictures, 0o755), os.WriteFile(filepath.Join(*pictures, name+".png"), b, 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

func TestThePageFitsEveryScreenInBothThemes(t *testing.T) {
	paper := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 820, 1360} {
			p := open(t, width, 900, theme)
			if got := eval[int](p, "document.documentElement.scrollWidth"); got > int(width) {
				t.Errorf("%s, %d wide: the page is %d wide", theme, width, got)
			}
			if bad := eval[[]string](p, `[...document.querySelectorAll("svg.chart")].filter(s => s.closest(".part").offsetParent && (s.getBoundingClientRect().width < 250 || s.getBoundingClientRect().height < 40)).map(s => s.getAttribute("aria-label"))`); len(bad) > 0 {
				t.Errorf("%s, %d wide: charts too small to read: %q", theme, width, bad)
			}
			paper[theme] = eval[string](p, "getComputedStyle(document.body).backgroundColor")
			// Everything that is drawn differs from what it is drawn on by WCAG's ratio of 3, text by 4.5.
			for of, least := range map[string]float64{
				".chart .stroke": 3, ".chart circle": 3, ".chart .tick": 4.5, ".chart .name": 4.5, ".legend li": 4.5, ".note": 4.5, "td": 4.5, "th": 4.5, ".tree .kept text": 4.5, ".tree .own text": 4.5,
			} {
				if got := eval[float64](p, fmt.Sprintf(contrast, of)); got < least {
					t.Errorf("%s: a contrast of %.2f of %s, want %v", theme, got, of, least)
				}
			}
			p.picture(fmt.Sprintf("%s-%d", theme, width))
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
		return eval[string](p, `(e => e.id || e.getAttribute("href") || e.tagName)(document.activeElement)`)
	}
	shown := func(run string) int {
		return eval[int](p, fmt.Sprintf(`[...document.querySelectorAll(".%s")].filter(e => e.getClientRects().length).length`, run))
	}
	var seen []string
	for len(seen) < 8 {
		p.press("Tab", "", 9)
		seen = append(seen, focus())
	}
	if got := strings.Join(seen[:4], " "); got != "#main mode-system run0 run1" || seen[4] != "#speed" {
		t.Errorf("the keyboard goes to %q", seen)
	}
	first, second := shown("r0"), shown("r1")
	eval[bool](p, `document.querySelector("#run0").focus(), true`)
	p.press(" ", " ", 32)
	if shown("r0") != 0 || shown("r1") != second || first == 0 {
		t.Errorf("without the first run %d of its %d parts are shown, %d of the second's %d", shown("r0"), first, shown("r1"), second)
	}
	p.press(" ", " ", 32)
	if shown("r0") != first {
		t.Errorf("%d parts of the first run, want %d again", shown("r0"), first)
	}
	light := eval[string](p, "getComputedStyle(document.body).backgroundColor")
	eval[bool](p, `document.querySelector("#mode-light").focus(), true`)
	p.press("ArrowRight", "", 39)
	if got := eval[string](p, "getComputedStyle(document.body).backgroundColor"); got == light || !eval[bool](p, `document.querySelector("#mode-dark").checked`) {
		t.Errorf("the page stays %s", got)
	}
	eval[bool](p, `document.querySelectorAll(".round summary")[1].focus(), true`)
	p.press("Enter", "\r", 13)
	if !eval[bool](p, `document.querySelectorAll(".round")[1].open && document.querySelectorAll(".round .tree")[1].getBoundingClientRect().height > 50`) {
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
		if n := eval[int](p, of+".length"); n != 0 {
			t.Errorf("%s: %d without a name", what, n)
		}
	}
}
