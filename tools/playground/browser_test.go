// Package playground tests the page of talf serve in a browser, as a process that serves a model.
package playground

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"github.com/chromedp/chromedp/kb"
)

var (
	program  = flag.String("talf", "", "the program (default: built from this repository)")
	chromium = flag.String("chromium", "chromium", "the browser")
	pictures = flag.String("pictures", "", "directory that screenshots are written to")
	model    = flag.String("model", "../../internal/demo/target", "model directory")
	head     = flag.String("head", "", "draft head (default: methods without one)")
)

// patience bounds what a test waits for. It is no measure of speed.
const patience = 30 * time.Second

// What all tests share.
var (
	chrome context.Context // of the browser
	served string          // origin of a server without a key
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "playground")
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
	s, err := start(nil, methods()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	served = s.origin
	defer func() {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// A server is a process of talf serve.
type server struct {
	origin string
	cmd    *exec.Cmd
	read   chan struct{} // closed when the log ends
	log    strings.Builder
}

// start starts talf serve and waits for its address.
func start(environment []string, args ...string) (*server, error) {
	s := &server{read: make(chan struct{})}
	s.cmd = exec.Command(*program, append([]string{"serve", "--budget", "sequence", "--listen", "127.0.0.1:0", "--served-model-name", "tested", "--model", *model}, args...)...)
	s.cmd.Env = append(os.Environ(), environment...)
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	at := regexp.MustCompile(`msg=serving url=(http://[0-9.:]+)`)
	go func() {
		defer close(s.read)
		in := bufio.NewScanner(out)
		for in.Scan() {
			s.log.WriteString(in.Text() + "\n")
			if m := at.FindStringSubmatch(in.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	select {
	case s.origin = <-address:
		return s, nil
	case <-s.read:
	case <-time.After(patience):
	}
	return nil, fmt.Errorf("talf serve has no address: %w", s.stop())
}

// stop ends the process as a user does.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt)
	<-s.read
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("talf serve: %w\n%s", err, &s.log)
	}
	return nil
}

// methods are those that the pages of the tests choose from.
func methods() []string {
	args := []string{"--method", "goose", "--method", "recycle", "--method", "lookahead"}
	if *head != "" {
		args = append([]string{"--head", *head, "--method", "salf"}, args...)
	}
	return args
}

// A tab is a page in a browser context of its own, which has no storage from before.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	allowed  *regexp.Regexp // what the console may say
	complain []string
}

// open opens the page.
func open(t *testing.T, origin string, width, height int64, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx, origin: origin}
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.complain {
			if p.allowed == nil || !p.allowed.MatchString(c) {
				t.Error(c)
			}
		}
	})
	if err := chromedp.Listen(ctx, p.watch); err != nil { // it opens the tab, whose life is that of ctx
		t.Fatal(err)
	}
	p.do(call(network.Enable, network.EnableParams{}), chromedp.EmulateViewport(width, height),
		call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})) // several tabs are open at once
	p.do(append(first, chromedp.Navigate(origin+"/"))...)
	return p
}

// call is a command as an action.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// watch notes what a page must not do: complain, or ask another origin.
func (p *tab) watch(event any) {
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
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "blob" && u.Scheme != "data" && u.Scheme+"://"+u.Host != p.origin {
			add("a request to %s", e.Request.URL)
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

// eval returns the value of an expression, awaited if it is a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// click clicks the first element that a selector finds.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// write types a text into the first element that a selector finds.
func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// press presses a key that writes nothing, such as "Tab", or Enter, whose line break the page
// may prevent.
func (p *tab) press(key string, code int64) {
	p.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		p.do(call(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, WindowsVirtualKeyCode: code}))
	}
}

func (p *tab) enter() { p.t.Helper(); p.press("Enter", 13) }

// enterForm presses Enter with its character, which submits a form.
func (p *tab) enterForm() { p.t.Helper(); p.do(chromedp.KeyEvent(kb.Enter)) }

// ask writes a prompt, sends it and waits for the answers.
func (p *tab) ask(prompt string) {
	p.t.Helper()
	p.write("#prompt", prompt)
	p.enter()
	p.until(`document.querySelector("#stop").disabled && !document.querySelector("[data-pane=A] [data-ui=save]").disabled`)
}

// until waits for a condition. It is not chromedp.Poll, which makes functions of strings in the
// page: the page's policy forbids that.
func (p *tab) until(condition string) {
	p.t.Helper()
	p.waitFor(condition, func() bool { return eval[bool](p, "Boolean("+condition+")") })
}

func (p *tab) waitFor(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.picture("failed")
			p.t.Fatalf("waited for %s; the page says %q", what, eval[string](p, "document.body.innerText"))
		}
	}
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
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(*pictures, 0o755), os.WriteFile(filepath.Join(*pictures, name+".png"), b, 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// feature sets a media feature of the system.
func feature(name, value string) chromedp.Action[chromedp.Void] {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
}

// dark makes the system's theme dark.
func dark() chromedp.Action[chromedp.Void] { return feature("prefers-color-scheme", "dark") }

// output returns what a command of talf prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(*program, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("talf %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}
