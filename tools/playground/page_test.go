package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"talf/tools/chrome"
)

// settings writes parameters into the page.
func (p *tab) settings(values map[string]string) {
	p.T.Helper()
	for name, v := range values {
		eval[string](p, fmt.Sprintf(`document.querySelector("[name=%s]").value = %q`, name, v))
	}
}

// choose chooses the method of a pane.
func (p *tab) choose(pane, method string) {
	p.T.Helper()
	p.until(fmt.Sprintf(`document.querySelector("[data-pane=%s] select").options.length > 0`, pane))
	eval[bool](p, fmt.Sprintf(`(() => { const s = document.querySelector("[data-pane=%s] select"); s.value = %q; return s.value === %[2]q || null })()`, pane, method))
}

// ui returns the text of a part of a pane.
func (p *tab) ui(pane, part string) string {
	p.T.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector("[data-pane=%s] [data-ui=%s]").textContent`, pane, part))
}

// answer returns the text of the last answer of a pane.
func (p *tab) answer(pane string) string {
	p.T.Helper()
	return eval[string](p, fmt.Sprintf(`[...document.querySelectorAll("[data-pane=%s] .text")].at(-1).textContent`, pane))
}

// mostTrees bounds how many trees of an answer are looked at.
const mostTrees = 12

// matches compares a pane with what the API answered, whose text is known.
func (p *tab) matches(pane string, want reply, known string) {
	p.T.Helper()
	if want.text != known {
		p.T.Errorf("the answer is %q, want that of plain decoding, %q", want.text, known)
	}
	if got := p.answer(pane); got != want.text {
		p.T.Errorf("pane %s has %q, want %q", pane, got, want.text)
	}
	if got := p.ui(pane, "tau"); got != fmt.Sprintf("%.2f", want.tau) {
		p.T.Errorf("pane %s has τ %s, want %.2f", pane, got, want.tau)
	}
	if got := p.ui(pane, "tokens"); got != fmt.Sprint(want.tokens) {
		p.T.Errorf("pane %s has %s tokens, want %d", pane, got, want.tokens)
	}
	// Rounds have their trees, and the model's own token beside each. Showing one takes two frames.
	every := (len(want.nodes) + mostTrees - 1) / mostTrees
	var trees []int
	for i := 0; i < len(want.nodes); i += every {
		trees = append(trees, want.nodes[i])
	}
	nodes := eval[[]int](p, fmt.Sprintf(`(async () => {
		const root = document.querySelector("[data-pane=%s]");
		const range = root.querySelector("[type=range]");
		const all = [];
		for (let i = 0; i <= Number(range.max); i += %d) {
			range.value = i;
			range.dispatchEvent(new Event("input"));
			await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
			all.push(root.querySelectorAll(".rounds .tree .node:not(.own)").length * (root.querySelectorAll(".rounds .tree .own.node").length === 1));
		}
		return all;
	})()`, pane, every))
	if !slices.Equal(nodes, trees) {
		p.T.Errorf("pane %s has trees of %v nodes, want %v", pane, nodes, trees)
	}
}

// The page shows what the API answers, in chat and in completions, with every round's tree.
func TestAnswersAreTheAPIs(t *testing.T) {
	t.Parallel()
	w := listen(t)
	p := open(t, w.origin, 1440, 900)
	p.choose("A", "goose")
	p.Picture("start")
	p.settings(map[string]string{"seed": "11", "temperature": "0.7", "max_tokens": "60", "system": "Be brief."})
	p.ask("Once upon a time")
	const plain = `"seed":11,"talf":{"off":true},"temperature":0.7,"max_tokens":60}`
	first := text(t, "/v1/chat/completions", `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Once upon a time"}],`+plain)
	p.matches("A", w.answer(t, "goose"), first)
	// The next message goes with the conversation so far.
	p.ask("And then?")
	history, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	p.matches("A", w.answer(t, "goose"), text(t, "/v1/chat/completions", `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Once upon a time"},
		{"role":"assistant","content":`+string(history)+`},{"role":"user","content":"And then?"}],`+plain))
	p.click("input[value=completion]")
	method := methods()[1+2*min(1, len(*head))]
	p.choose("A", method)
	p.settings(map[string]string{"temperature": "0", "max_tokens": "120", "nodes": "40"})
	p.ask("Once upon a time")
	known := text(t, "/v1/completions", `{"prompt":"Once upon a time","seed":11,"temperature":0,"max_tokens":120,"talf":{"off":true}}`)
	if said := p.ui("A", "caption"); !strings.Contains(said, " accepted; the round wrote ") || strings.HasPrefix(said, "0 ") {
		t.Errorf("of a whole answer this round is shown: %q", said)
	}
	p.Picture("completion-light")
	p.Do(chrome.Theme("dark"))
	p.Picture("completion-dark")
	want := w.answer(t, method)
	p.matches("A", want, known)
	if drafted := eval[string](p, `[...document.querySelectorAll(".text .drafted")].map((e) => e.textContent).join("")`); drafted == "" || len(drafted) >= len(want.text) {
		t.Errorf("drafted text %q of %q", drafted, want.text)
	}
	// A click on a word shows its round.
	place := eval[string](p, `(async () => {
		const word = document.querySelectorAll(".text [data-round]")[3];
		word.click();
		await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		return word.dataset.round + " " + document.querySelector("[data-ui=place]").textContent;
	})()`)
	if n, shown, _ := strings.Cut(place, " "); !strings.HasPrefix(shown, "Round "+n+" of ") {
		t.Errorf("a word of round %s shows %q", n, shown)
	}
	// The counts by depth are those of the rounds.
	bars := eval[int](p, `document.querySelectorAll("[data-pane=A] [data-ui=bars] li").length`)
	if rounds := p.ui("A", "passes"); bars < 1 || rounds != fmt.Sprintf("in %d rounds", want.rounds) {
		t.Errorf("%d bars, %s", bars, rounds)
	}
}

// Two methods write the same text, one after the other and both at once.
func TestTwoMethodsSideBySide(t *testing.T) {
	t.Parallel()
	w := listen(t)
	p := open(t, w.origin, 1440, 900)
	p.click("input[value=completion]")
	p.click("#compare")
	p.choose("A", "goose")
	p.choose("B", "ar")
	p.settings(map[string]string{"seed": "3", "temperature": "0.8", "max_tokens": "80"})
	known := text(t, "/v1/completions", `{"prompt":"Once upon a time","seed":3,"temperature":0.8,"max_tokens":80,"talf":{"off":true}}`)
	for _, together := range []bool{false, true} {
		if together {
			p.click("#together")
			eval[string](p, `document.querySelector("#prompt").value = ""`)
		}
		p.ask("Once upon a time")
		p.until(`!document.querySelector("#verdict").hidden`)
		verdict := eval[string](p, `document.querySelector("#verdict").textContent`)
		if !strings.HasPrefix(verdict, "The same text, character for character.") || strings.Contains(verdict, "times as many") == together {
			t.Errorf("together %v: %q", together, verdict)
		}
		p.Picture(fmt.Sprintf("compare-%v", together))
		p.matches("A", w.answer(t, "goose"), known)
		p.matches("B", w.answer(t, "ar"), known)
		if tau := p.ui("B", "tau"); tau != "1.00" {
			t.Errorf("plain decoding has τ %s", tau)
		}
	}
}

// A trace file is shown as the answer that it was written of, and what the page saves is one.
func TestTracesAreReplayedAndSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rounds.jsonl")
	known := strings.TrimSuffix(output(t, "generate", "--model", *model, "--prompt", "Once upon a time", "--max-tokens", "60", "--method", "goose", "--trace", file), "\n")
	summary := output(t, "inspect", "trace", file)
	p := open(t, served, 1440, 900)
	p.click("input[value=replay]")
	p.Do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{file}))
	p.until(`document.querySelector("[data-pane=A] [data-ui=state]").textContent === "rounds.jsonl"`)
	if got := p.answer("A"); got != known {
		t.Errorf("%q, want %q", got, known)
	}
	rounds := eval[int](p, `Number(document.querySelector("[data-pane=A] [type=range]").max) + 1`)
	if want := fmt.Sprintf("60 tokens in %d rounds, τ %s", rounds, p.ui("A", "tau")); !strings.Contains(summary, want) {
		t.Errorf("the page has %s, talf inspect trace says %s", want, summary)
	}
	if place := p.ui("A", "place"); place != fmt.Sprintf("Round 1 of %d", rounds) {
		t.Errorf("the replay begins at %q", place)
	}
	if speed := p.ui("A", "speed"); speed != "–" {
		t.Errorf("a file has no times, and the page says %s tokens a second", speed)
	}
	p.Picture("replay")
	p.click("[data-pane=A] [data-ui=play]")
	p.until(`document.querySelector("[data-pane=A] [data-ui=place]").textContent.startsWith("Round 3 of")`)
	p.click("[data-pane=A] [data-ui=play]")
	// Saved, it is the same rounds.
	saved := filepath.Join(dir, "saved")
	p.Do(chrome.Call(browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: saved, BrowserContextID: chromedp.FromContext(p.Ctx).BrowserContextID,
	}))
	p.click("[data-pane=A] [data-ui=save]")
	copied := filepath.Join(saved, "trace.jsonl")
	p.waitFor("the download", func() bool { _, err := os.Stat(copied); return err == nil })
	if again := output(t, "inspect", "trace", copied); again != summary {
		t.Errorf("saved: %s\nwant %s", again, summary)
	}
	// Files are dropped, too, and say what is wrong with them.
	drop := func(name, content string) {
		t.Helper()
		eval[bool](p, fmt.Sprintf(`(() => {
			const data = new DataTransfer();
			data.items.add(new File([%q], %q));
			for (const type of ["dragenter", "dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
			return true;
		})()`, content, name))
	}
	const header = `{"talf_trace":1,"temperature":0}` + "\n"
	root := `{"parent":-1,"token":1,"text":"a"}`
	p.click("input[value=chat]") // a drop changes the mode
	for content, want := range map[string]string{
		"nonsense":                   "no trace header",
		`{"talf_trace":2}`:           "want at most 1",
		header + "{}":                "line 2: nodes",
		header + `{"nodes":[` + root: "line 2: no JSON; was the run that wrote it interrupted?",
		header + `{"nodes":[` + root + `],"path":[0],"kept":1}`:                                                     "line 2: next has no token and text",
		header + `{"nodes":[` + root + `],"path":[1],"kept":1,"next":{"token":1,"text":""}}`:                        "line 2: path",
		header + `{"nodes":[` + root + `],"path":[0],"kept":2,"next":{"token":1,"text":""}}`:                        "line 2: kept is 2",
		header + `{"nodes":[` + root + `,{"parent":1,"token":1,"text":""}],"path":[0],"kept":1,"next":{"token":1}}`: "line 2: node 1 has parent 1",
		header + `{"nodes":[` + root + `,{"parent":0,"token":1,"text":"","q":2}],"path":[0],"kept":1,"next":{}}`:    "line 2: node 1: want probabilities",
		header + `{"nodes":[{"parent":-1,"token":1,"text":7}],"path":[0],"kept":1,"next":{"token":1,"text":"a"}}`:   "line 2: node 0 has no token and text",
		header + `{"live":5,"nodes":[` + root + `],"path":[0],"kept":1,"next":{"token":1,"text":"a"}}` + "\n":       "line 2: live is 5",
	} {
		drop("bad.jsonl", content)
		p.until(fmt.Sprintf(`document.querySelector("#replay-error").textContent.includes(%q)`, want))
	}
	// Who turns to the chat while a file is read sees nothing of it.
	next := header + `{"nodes":[` + root + `],"path":[0],"kept":1,"next":{"token":1,"text":"a"}}`
	if said := eval[string](p, fmt.Sprintf(`(async () => {
		const data = new DataTransfer();
		data.items.add(new File([%q], "late.jsonl"));
		document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
		document.querySelector("input[value=chat]").click();
		for (let i = 0; i < 30; i++) await new Promise(requestAnimationFrame);
		return document.querySelector("#replay-error").textContent + document.querySelector("[data-pane=A] [data-ui=state]").textContent;
	})()`, next)); said != "" {
		t.Errorf("a file that is not wanted any more says %q", said)
	}
	drop("empty.jsonl", header)
	p.until(`document.querySelector("[data-pane=A] [data-ui=note]").textContent === "The file has no rounds."`)
}

// Everything works without a pointer, and what has the focus shows it.
func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900)
	p.choose("A", "goose")
	tab := func(to string) {
		t.Helper()
		for range 60 {
			p.Press("Tab", "", 9)
			if eval[bool](p, fmt.Sprintf(`document.activeElement.matches(%q)`, to)) {
				// The ring is around the control, or around what stands for it.
				if !eval[bool](p, `[document.activeElement, document.activeElement.nextElementSibling].some((e) => e && getComputedStyle(e).outlineStyle === "solid" && parseFloat(getComputedStyle(e).outlineWidth) >= 2)`) {
					t.Errorf("%s does not show that it has the focus", to)
				}
				return
			}
		}
		t.Fatalf("no way to %s", to)
	}
	tab(".skip")
	p.enterForm()
	tab("input[name=mode]")
	p.Press("ArrowRight", "", 39)
	p.until(`document.body.dataset.mode === "completion"`)
	tab("#theme")
	p.enterForm()
	p.until(`document.documentElement.dataset.theme === "light" && getComputedStyle(document.documentElement).colorScheme === "light"`)
	p.enterForm()
	p.until(`document.documentElement.dataset.theme === "dark" && getComputedStyle(document.documentElement).colorScheme === "dark"`)
	tab("#prompt")
	p.Do(chromedp.KeyEvent("Once upon a time"))
	p.enter()
	p.until(`!document.querySelector("[data-pane=A] [data-ui=save]").disabled`)
	text := p.answer("A")
	tab("#compare")
	p.Do(chromedp.KeyEvent(" "))
	p.until(`!document.querySelector("[data-pane=B]").hidden`)
	tab("summary")
	tab("[name=temperature]")
	tab("[data-pane=A] select")
	tab("[data-pane=A] [data-ui=thread]")
	tab("[data-pane=A] [type=range]")
	_, of, _ := strings.Cut(p.ui("A", "place"), " of ")
	last := fmt.Sprintf("Round %s of %[1]s", of)
	for _, end := range []struct {
		key   string
		code  int64
		place string
	}{{"Home", 36, "Round 1 of " + of}, {"ArrowRight", 39, "Round 2 of " + of}, {"End", 35, last}} {
		p.Press(end.key, "", end.code)
		p.until(fmt.Sprintf(`document.querySelector("[data-pane=A] [data-ui=place]").textContent === %q`, end.place))
	}
	tab("[data-pane=A] [data-ui=back]")
	p.enterForm()
	p.until(fmt.Sprintf(`document.querySelector("[data-pane=A] [data-ui=place]").textContent !== %q`, last))
	tab("[data-pane=A] [data-ui=scroll]")
	tab("[data-pane=A] [data-ui=nodes] summary")
	p.enterForm()
	p.until(`document.querySelectorAll("[data-pane=A] [data-ui=rows] tr").length > 0`)
	rows := eval[int](p, `document.querySelectorAll("[data-pane=A] [data-ui=rows] tr").length`)
	if nodes := eval[int](p, `document.querySelectorAll("[data-pane=A] .rounds .tree .node").length`); rows != nodes {
		t.Errorf("%d rows for %d nodes", rows, nodes)
	}
	tab("[data-pane=A] [data-ui=save]")
	if text == "" || eval[bool](p, `document.activeElement.disabled`) {
		t.Error("there is nothing to save")
	}
	// The theme and the parameters are there again.
	p.Do(chromedp.Reload())
	p.until(`document.documentElement.dataset.theme === "dark" && document.querySelector("#compare").checked`)
}

// Controls and drawings have names for those who cannot see them.
func TestEverythingHasAName(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900)
	p.choose("A", "goose")
	eval[int](p, `document.querySelectorAll("details").forEach((e) => { e.open = true }), 1`)
	p.click("#compare")
	p.ask("Once upon a time")
	tree, err := chromedp.Run(p.Ctx, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	str := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal([]byte(v.Value), &s)
		}
		return s
	}
	for _, n := range tree.Nodes {
		switch role := str(n.Role); role {
		case "button", "textbox", "combobox", "slider", "radio", "switch", "checkbox", "spinbutton", "link", "img", "image", "region", "article", "dialog", "DisclosureTriangle":
			if n.Ignored {
				continue
			}
			named++
			if str(n.Name) == "" {
				t.Errorf("a %s has no name: %+v", role, n.Properties)
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d controls", named)
	}
	if role := eval[string](p, `document.querySelector("[data-pane=A] .rounds .tree").getAttribute("aria-label")`); !regexp.MustCompile(`^Round \d+\. .* Tokens: "`).MatchString(role) {
		t.Errorf("the tree is called %q", role)
	}
}

// overhang returns how much wider than its window the page is.
func (p *tab) overhang() int {
	p.T.Helper()
	return eval[int](p, `document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth`)
}

// The page fits windows from a phone's on, in every mode, and its text can be read: at least 4.5
// to 1 (WCAG 2.2, 1.4.3), or 3 to 1 where it is large.
func TestEverySizeAndThemeCanBeRead(t *testing.T) {
	t.Parallel()
	widths := []int64{1440, 760, 360}
	for _, theme := range []string{"light", "dark"} {
		var first []chromedp.Action[chromedp.Void]
		if theme == "dark" {
			first = append(first, chrome.Theme("dark"))
		}
		p := open(t, served, widths[0], 800, first...)
		p.choose("A", "goose")
		check := func(state string) {
			t.Helper()
			for _, low := range eval[[]string](p, contrast) {
				t.Errorf("%s, %s: %s", theme, state, low)
			}
			for _, width := range append(widths, widths[0]) {
				p.Do(chromedp.EmulateViewport(width, 800))
				if x := p.overhang(); x > 0 {
					p.Picture("failed")
					t.Errorf("%s, %s: the page is %d pixels wider than a window of %d", theme, state, x, width)
				}
				if state == "answer" {
					p.Picture(fmt.Sprintf("chat-%s-%d", theme, width))
				}
			}
		}
		check("start")
		p.settings(map[string]string{"max_tokens": "40"})
		p.click("#compare")
		p.ask("Once upon a time")
		check("answer")
		eval[int](p, `document.querySelectorAll("details").forEach((e) => { e.open = true }), 1`)
		p.until(`document.querySelector("[data-ui=rows] tr")`)
		p.click("[data-pane=A] [data-ui=back]")
		check("earlier round")
		p.click("#unlock")
		check("dialog")
		p.click("#key-forget")
		p.click("input[value=completion]")
		check("completion")
		p.click("input[value=replay]")
		check("replay")
		eval[bool](p, `(() => {
			const data = new DataTransfer();
			data.items.add(new File(["?"], "a-file-with-a-long-name-that-does-not-fit-on-any-phone.jsonl"));
			document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
			return true;
		})()`)
		p.until(`!document.querySelector("#replay-error").hidden`)
		check("bad file")
	}
}

// contrast lists the visible texts whose contrast with what is behind them is too low.
const contrast = `(() => {
	const parse = (c) => {
		const m = c.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/);
		if (!m) throw new Error("color " + c);
		return [Number(m[1]), Number(m[2]), Number(m[3]), m[4] === undefined ? 1 : Number(m[4])];
	};
	const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
	const light = (c) => {
		const [r, g, b] = c.slice(0, 3).map((x) => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ratio = (a, b) => {
		const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
		return (x + 0.05) / (y + 0.05);
	};
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
		return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
	};
	const opacity = (e) => {
		let x = 1;
		for (; e; e = e.parentElement) x *= Number(getComputedStyle(e).opacity);
		return x;
	};
	const low = [];
	let seen = 0;
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const texts = new Map();
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (walker.currentNode.data.trim() !== "") texts.set(e, walker.currentNode.data.trim());
	}
	for (const e of document.querySelectorAll("input, textarea, select")) texts.set(e, e.value || e.placeholder || "");
	for (const [e, text] of texts) {
		if (text === "" || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || e.closest("script, style, title, option, .unseen, .skip, :disabled, label:has(:disabled)")) continue;
		const style = getComputedStyle(e);
		let color, ground;
		if (e.closest("svg.tree")) {
			const box = getComputedStyle(e.parentElement.querySelector("rect"));
			color = parse(style.fill);
			ground = over(parse(box.fill), behind(e.closest(".scroll")));
		} else {
			const empty = e.matches("input, textarea") && e.value === "" && e.placeholder;
			color = parse(empty ? getComputedStyle(e, "::placeholder").color : style.color);
			ground = behind(e);
		}
		color[3] *= opacity(e);
		const r = ratio(over(color, ground), ground);
		const size = parseFloat(style.fontSize);
		const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
		seen++;
		if (r < (large ? 3 : 4.5)) low.push(r.toFixed(2) + " to 1: " + e.tagName + "." + e.getAttribute("class") + " " + JSON.stringify(text.slice(0, 40)));
	}
	if (seen < 15) low.push("only " + seen + " texts were looked at");
	return low;
})()`
