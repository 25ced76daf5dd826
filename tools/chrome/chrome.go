// Package chrome drives Chromium for the tests of talf's pages.
package chrome

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	// Program is talf. Main builds it if the flag is not given.
	Program = flag.String("talf", "", "the program (default: built from this repository)")

	chromium = flag.String("chromium", "chromium", "the browser")
	pictures = flag.String("pictures", "", "directory that screenshots are written to")
)

// Patience bounds what a test waits for. It is no measure of speed.
const Patience = 60 * time.Second

// running is the browser that all tests share.
var running context.Context

// Main starts the browser, calls before with an empty directory, and then runs the tests. after, if
// it is not nil, is called when they have ended. Main returns the exit status.
func Main(m *testing.M, before func(dir string) (after func() error, err error)) (code int) {
	flag.Parse()
	failed := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "chrome")
	if err != nil {
		return failed("make a directory", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *Program == "" {
		*Program = filepath.Join(dir, "talf")
		build := exec.Command("go", "build", "-o", *Program, "./cmd/talf")
		build.Dir, build.Stderr = "../..", os.Stderr
		if err := build.Run(); err != nil {
			return failed("build talf", err)
		}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(*chromium), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", false), chromedp.Flag("force-color-profile", "srgb"))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocated)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		return failed("start the browser", err)
	}
	running = ctx
	after, err := before(dir)
	if err != nil {
		return failed("before the tests", err)
	}
	if after != nil {
		defer func() {
			if err := after(); err != nil {
				code = failed("after the tests", err)
			}
		}()
	}
	return m.Run()
}

// A Tab is a page in a browser context of its own, which has no storage from before.
type Tab struct {
	T       *testing.T
	Ctx     context.Context
	Allowed *regexp.Regexp // what the page may complain of; nil: nothing

	may      func(*url.URL) bool
	mu       sync.Mutex
	complain []string
}

// Open opens an empty tab on a screen. The test fails if a page that is opened in it complains, or
// asks for what it may not.
func Open(t *testing.T, width, height int64, may func(*url.URL) bool) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(running, chromedp.WithNewBrowserContext())
	p := &Tab{T: t, Ctx: ctx, may: may}
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.complain {
			if p.Allowed == nil || !p.Allowed.MatchString(c) {
				t.Error(c)
			}
		}
	})
	if err := chromedp.Listen(ctx, p.watch); err != nil { // it opens the tab, whose life is that of ctx
		t.Fatal(err)
	}
	p.Do(Call(network.Enable, network.EnableParams{}), chromedp.EmulateViewport(width, height),
		Call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})) // several tabs are open at once
	return p
}

// watch notes what a page must not do: complain, or ask for what it may not.
func (p *Tab) watch(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(format string, args ...any) { p.complain = append(p.complain, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		d := e.ExceptionDetails
		add("exception: %s %s:%d", d.Text, d.URL, d.LineNumber+1)
		if d.Exception != nil {
			add("exception: %s", d.Exception.Description)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, a := range e.Args {
				add("console: %s %s", a.Value, a.Description)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			add("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || !p.may(u) {
			add("a request to %s", e.Request.URL)
		}
	}
}

// Call is a command as an action.
func Call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// Feature sets a media feature of the system.
func Feature(name, value string) chromedp.Action[chromedp.Void] {
	return Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
}

// Theme is that of the system, light or dark.
func Theme(name string) chromedp.Action[chromedp.Void] { return Feature("prefers-color-scheme", name) }

// Do runs actions.
func (p *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.Ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.T.Fatal(err)
	}
}

// Eval returns the value of an expression, awaited if it is a promise.
func Eval[V any](p *Tab, expression string) V {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.Ctx, Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.T.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Press presses a key, such as "Tab", and lets it go. text is what it writes, "" for nothing.
func (p *Tab) Press(key, text string, code int64) {
	p.T.Helper()
	x := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: key, Code: key, WindowsVirtualKeyCode: code}
	up := x
	if up.Type = input.DispatchKeyEventTypeKeyUp; text != "" {
		x.Type, x.Text = input.DispatchKeyEventTypeKeyDown, text
	}
	p.Do(Call(input.DispatchKeyEvent, x), Call(input.DispatchKeyEvent, up))
}

// Picture writes a screenshot of the whole page if pictures are asked for.
func (p *Tab) Picture(name string) {
	p.T.Helper()
	if *pictures == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.Ctx, Patience)
	defer cancel()
	b, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.T.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(*pictures, 0o755), os.WriteFile(filepath.Join(*pictures, name+".png"), b, 0o644)); err != nil {
		p.T.Fatal(err)
	}
}
