package playground

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"talf/tools/chrome"
)

// replay opens a trace file that is given as its lines.
func (p *tab) replay(lines ...string) {
	p.T.Helper()
	eval[bool](p, fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		data.items.add(new File([%q], "rounds.jsonl"));
		document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
		return true;
	})()`, `{"talf_trace":1,"temperature":0}`+"\n"+strings.Join(lines, "\n")+"\n"))
	p.until(`document.querySelector("[data-pane=A] [data-ui=state]").textContent === "rounds.jsonl"`)
}

// line is a round of a trace file: a chain of two drafted tokens and one beside it, of which the path is accepted and kept are put out.
func line(path string, kept int) string {
	return fmt.Sprintf(`{"pos":1,"nodes":[{"parent":-1,"token":0,"text":"x"},{"parent":0,"token":1,"text":"a"},{"parent":0,"token":2,"text":"b"},{"parent":1,"token":3,"text":"c"}],`+
		`"path":%s,"next":{"token":4,"text":"d"},"kept":%d,"draw":"chosen"}`, path, kept)
}

// The figures, the sentence and the bars by depth count the same drafted tokens as accepted, as the server does, wherever an answer
// ends: after the model's own token, at a drafted one that ends the text, or before what was accepted.
func TestCountsAgreeWhereverAnAnswerEnds(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900)
	for _, x := range []struct {
		path     string
		kept     int
		accepted int
		bars     string // kept of tried, by depth
	}{
		{"[0]", 1, 0, "0 of 1"},
		{"[0,1]", 2, 1, "1 of 1, 0 of 1"},
		{"[0,1,3]", 3, 2, "1 of 1, 1 of 1"},
		{"[0,1,3]", 2, 2, "1 of 1, 1 of 1"},
		{"[0,1,3]", 1, 1, "1 of 1"},
	} {
		p.replay(line(x.path, x.kept))
		if want, got := fmt.Sprintf(", %d of 3 accepted", x.accepted), p.ui("A", "accepted"); got != want {
			t.Errorf("%s, %d kept: the figures say %q, want %q", x.path, x.kept, got, want)
		}
		if want, got := fmt.Sprintf("%d of 3 drafted nodes accepted; ", x.accepted), p.ui("A", "caption"); !strings.HasPrefix(got, want) {
			t.Errorf("%s, %d kept: the sentence is %q, want %q", x.path, x.kept, got, want)
		}
		if got := eval[string](p, `[...document.querySelectorAll("[data-pane=A] [data-ui=bars] small")].map((e) => e.textContent).join(", ")`); got != x.bars {
			t.Errorf("%s, %d kept: the bars are %q, want %q", x.path, x.kept, got, x.bars)
		}
	}
}

// The thumb of the slider stands below the bar of its round, however many there are.
func TestTheSliderStandsBelowItsBar(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900)
	for _, rounds := range []int{1, 2, 5, 23, 24, 25, 240, 500} {
		p.replay(strings.Split(strings.Repeat(line("[0,1]", 2)+"\n", rounds-1)+line("[0,1]", 2), "\n")...)
		far := eval[float64](p, `(async () => {
			const root = document.querySelector("[data-pane=A]");
			const range = root.querySelector("[type=range]");
			const thumb = parseFloat(getComputedStyle(range).getPropertyValue("--thumb"));
			const last = Number(range.max);
			let far = 0;
			for (let i = 0; i <= last; i += Math.max(1, Math.floor(last / 7))) {
				range.value = i;
				range.dispatchEvent(new Event("input"));
				await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
				const at = range.getBoundingClientRect();
				const bar = root.querySelector("[data-ui=cursor]").getBoundingClientRect();
				const x = at.left + thumb / 2 + (last > 0 ? i / last : 0) * (at.width - thumb);
				far = Math.max(far, Math.max(bar.left - x, x - bar.right) + bar.width / 2);
			}
			return far;
		})()`)
		// Where several rounds share a bar, the thumb is within it.
		if most := map[bool]float64{true: 1, false: 3}[rounds <= 240]; far > most {
			t.Errorf("%d rounds: the thumb is %.1f pixels from the middle of its bar", rounds, far)
		}
		p.Picture(fmt.Sprintf("rounds-%d", rounds))
	}
}

// On a phone nothing is said of keys that its keyboard does not have, and Enter breaks the line. With a mouse, Enter sends.
func TestPhonesAreToldOfNoKeys(t *testing.T) {
	t.Parallel()
	touch := func(on bool) chromedp.Action[chromedp.Void] {
		return chrome.Call(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: on})
	}
	for _, theme := range []string{"light", "dark"} {
		p := open(t, served, 390, 844, touch(true), chrome.Theme(theme))
		if !eval[bool](p, `matchMedia("(hover: none) and (pointer: coarse)").matches`) {
			t.Fatal("the browser does not take itself for a phone's")
		}
		p.choose("A", "goose")
		if eval[int](p, `[...document.querySelectorAll("kbd")].filter((e) => e.checkVisibility()).length`) > 0 {
			t.Error("a phone is told of keys")
		}
		p.settings(map[string]string{"max_tokens": "20"})
		p.write("#prompt", "Once")
		p.enterForm()
		if got := eval[string](p, `document.querySelector("#prompt").value`); got != "Once\n" {
			t.Errorf("after Enter the prompt is %q", got)
		}
		p.Picture("phone-start-" + theme)
		p.click("#send")
		p.until(`!document.querySelector("[data-pane=A] [data-ui=save]").disabled`)
		if eval[bool](p, `document.activeElement === document.querySelector("#prompt")`) {
			t.Error("the keyboard covers the answer")
		}
		p.Picture("phone-answer-" + theme)
	}
	p := open(t, served, 1200, 900)
	if eval[int](p, `[...document.querySelectorAll("kbd")].filter((e) => e.checkVisibility()).length`) == 0 {
		t.Error("nobody is told of keys")
	}
}

// While a prompt is read, the page says how far.
func TestThePageSaysHowFarAPromptIsRead(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	p := open(t, fake(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "\n", ": prompt 512/8034")
		<-seen
		stream(w, "\n", round(1, "all", " well"), chunk("all well"), finish, "data: [DONE]")
	}), 1200, 900)
	p.choose("A", "goose")
	p.write("#prompt", "x")
	p.enter()
	p.until(`document.querySelector("[data-pane=A] [data-ui=state]").textContent === "reading the prompt: 512 of 8,034 tokens"`)
	close(seen)
	p.until(`!document.querySelector("[data-pane=A] [data-ui=save]").disabled`)
	if got := p.answer("A"); got != "all well" {
		t.Errorf("%q", got)
	}
}
