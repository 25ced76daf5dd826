// Package playground tests the page of talf serve in a browser, as a process that serves a model.
package playground

import (
	"bufio"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"talf/tools/chrome"
)

var (
	model = flag.String("model", "../../internal/demo/target", "model directory")
	head  = flag.String("head", "", "draft head (default: methods without one)")
)

// served is the origin of a server without a key, which all tests share.
var served string

func TestMain(m *testing.M) {
	os.Exit(chrome.Main(m, func(string) (func() error, error) {
		s, err := start(nil, methods()...)
		if err != nil {
			return nil, err
		}
		served = s.origin
		return s.stop, nil
	}))
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
	s.cmd = exec.Command(*chrome.Program, append([]string{"serve", "--budget", "sequence", "--listen", "127.0.0.1:0", "--served-model-name", "tested", "--model", *model}, args...)...)
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
	case <-time.After(chrome.Patience):
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

// A tab is the page in a browser context of its own, which has no storage from before.
type tab struct {
	*chrome.Tab
	origin string
}

// open opens the page, which may ask no other origin.
func open(t *testing.T, origin string, width, height int64, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	p := &tab{origin: origin, Tab: chrome.Open(t, width, height, func(u *url.URL) bool {
		return u.Scheme == "blob" || u.Scheme == "data" || u.Scheme+"://"+u.Host == origin
	})}
	p.Do(append(first, chromedp.Navigate(origin+"/"))...)
	return p
}

// eval returns the value of an expression, awaited if it is a promise.
func eval[T any](p *tab, expression string) T {
	p.T.Helper()
	return chrome.Eval[T](p.Tab, expression)
}

// click clicks the first element that a selector finds.
func (p *tab) click(selector string) {
	p.T.Helper()
	p.Do(chromedp.Click(chromedp.CSS(selector)))
}

// write types a text into the first element that a selector finds.
func (p *tab) write(selector, text string) {
	p.T.Helper()
	p.Do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// enter presses Enter without its line break, which the page may prevent.
func (p *tab) enter() { p.T.Helper(); p.Press("Enter", "", 13) }

// enterForm presses Enter with its character, which submits a form.
func (p *tab) enterForm() { p.T.Helper(); p.Do(chromedp.KeyEvent(kb.Enter)) }

// ask writes a prompt, sends it and waits for the answers.
func (p *tab) ask(prompt string) {
	p.T.Helper()
	p.write("#prompt", prompt)
	p.enter()
	p.until(`document.querySelector("#stop").disabled && !document.querySelector("[data-pane=A] [data-ui=save]").disabled`)
}

// until waits for a condition, and then for what the page paints in its next frame: most of what it
// shows. It is not chromedp.Poll, which makes functions of strings in the page: the page's policy
// forbids that.
func (p *tab) until(condition string) {
	p.T.Helper()
	p.waitFor(condition, func() bool { return eval[bool](p, "Boolean("+condition+")") })
	eval[bool](p, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
}

func (p *tab) waitFor(what string, is func() bool) {
	p.T.Helper()
	for end := time.Now().Add(chrome.Patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.Picture("failed")
			p.T.Fatalf("waited for %s; the page says %q", what, eval[string](p, "document.body.innerText"))
		}
	}
}

// output returns what a command of talf prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(*chrome.Program, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("talf %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}
