package playground

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"talf/tools/chrome"
)

// fake serves the page of a real server, and answers chats with h.
func fake(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	origin, err := url.Parse(served)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(origin))
	mux.HandleFunc("POST /v1/chat/completions", h)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// chunk is an event with a part of an answer.
func chunk(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `data: {"choices":[{"index":0,"delta":{"content":` + string(b) + `},"finish_reason":null}]}`
}

// round is an event with a round that drafts and accepts one token, and adds one.
func round(number int, drafted, own string) string {
	d, _ := json.Marshal(drafted)
	o, _ := json.Marshal(own)
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{},"talf":{"number":%d,"seconds":%[1]d,"round":{"pos":1,"nodes":[{"parent":-1,"token":0,"text":"x"},`+
		`{"parent":0,"token":1,"text":%[2]s,"q":0.5},{"parent":0,"token":2,"text":"other"}],"path":[0,1],"next":{"token":3,"text":%[3]s},"kept":2,"draw":"chosen"}}}]}`, number, d, o)
}

const finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","talf":{"method":"goose","rounds":1,"drafted":1,"accepted":1,"tau":2}}]}`

// stream writes events with the given ends of lines.
func stream(w http.ResponseWriter, end string, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = w.Write([]byte(e + end + end))
	}
	_ = http.NewResponseController(w).Flush()
}

// What looks like HTML or a script in an answer, a token or an error is text.
func TestTokensAreText(t *testing.T) {
	t.Parallel()
	const hostile = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>`
	const hidden = "\u202e</svg><svg onload=window.pwned=3>\x1b[2J"
	p := open(t, fake(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "\n", round(1, hostile, hidden), chunk(hostile+hidden), finish, "data: [DONE]")
	}), 1200, 900)
	p.choose("A", "goose")
	p.ask(hostile)
	if got := p.answer("A"); got != hostile+hidden {
		t.Errorf("%q", got)
	}
	if said := eval[string](p, `document.querySelector(".said").textContent`); said != hostile {
		t.Errorf("%q", said)
	}
	p.click("[data-ui=nodes] summary")
	p.until(`document.querySelectorAll("[data-ui=rows] tr").length === 4`)
	if n := eval[int](p, `document.querySelectorAll(".pane img, .pane script, .pane svg svg, .pane [onload], .pane [onerror]").length`); n != 0 {
		t.Errorf("%d elements were made of tokens", n)
	}
	if pwned := eval[bool](p, `"pwned" in window`); pwned {
		t.Error("a token was executed")
	}
	label := eval[string](p, `document.querySelector(".rounds .tree .own text").textContent`)
	if !strings.HasPrefix(label, `\u202e`) || strings.ContainsAny(label, "\u202e\x1b") {
		t.Errorf("characters that cannot be seen are drawn: %q", label)
	}
	// HTML made of strings is refused by the policy, whatever code tries it.
	p.Allowed = regexp.MustCompile("TrustedHTML|Trusted Type")
	if !eval[bool](p, `(() => { try { document.createElement("p").innerHTML = "<b>"; return false; } catch { return true; } })()`) {
		t.Error("innerHTML works in the page")
	}
}

// Events may come in pieces of any size, with any ends of lines.
func TestStreamsComeInPieces(t *testing.T) {
	t.Parallel()
	text := "Größe: 語🙂 fin"
	p := open(t, fake(t, func(w http.ResponseWriter, _ *http.Request) {
		var all strings.Builder
		for _, e := range []string{": ping", "event: x\r\n" + round(1, "Größe: 語", "🙂 fin"), "data", chunk(text), ":", finish, "data: [DONE]"} {
			all.WriteString(e + "\r\n\r\n")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		for _, b := range []byte(all.String()) { // one by one, within characters and CRLF
			_, _ = w.Write([]byte{b})
			_ = control.Flush()
		}
	}), 1200, 900)
	p.choose("A", "goose")
	p.write("#prompt", "x")
	p.enter()
	// An event without a value for data is no JSON, which the page says.
	p.until(`document.querySelector("[data-ui=note]").textContent.startsWith("The answer cannot be read")`)
	// The parser alone, with every way to cut a stream in two, and at random.
	wrong := eval[[]string](p, `(async () => {
		const { Events } = await import("/playground/events.js");
		const wrong = [];
		for (const end of ["\n", "\r\n", "\r"]) {
			const source = "\ufeff" + [": ping", "", "data: {\"a\":1}", "", "event: x", "data:two", "data:  lines", "id: 7", "", "data", "", "data: Größe 語🙂", "", "retry: 1", "", "data: lost"].join(end);
			const want = JSON.stringify(["{\"a\":1}", "two\n lines", "", "Größe 語🙂"]);
			const bytes = new TextEncoder().encode(source);
			const parse = (cuts) => {
				const got = [];
				const events = new Events((data) => got.push(data));
				let from = 0;
				for (const to of [...cuts, bytes.length]) {
					events.push(bytes.subarray(from, to));
					from = to;
				}
				events.end();
				if (JSON.stringify(got) !== want) wrong.push(JSON.stringify([end, cuts, got]));
			};
			for (let i = 0; i <= bytes.length; i++) parse([i]);
			parse([...bytes.keys()]);
			for (let n = 0; n < 200; n++) parse([...bytes.keys()].filter(() => Math.random() < 0.2));
		}
		let endless = false;
		try {
			const events = new Events(() => {});
			const piece = new Uint8Array(1 << 20).fill(120);
			for (let i = 0; i < 64; i++) events.push(piece);
		} catch {
			endless = true;
		}
		if (!endless) wrong.push("an endless event is held");
		return wrong;
	})()`)
	for _, w := range wrong {
		t.Error(w)
	}
}

// What goes wrong is said in the page, which works afterwards.
func TestFailuresAreSaid(t *testing.T) {
	t.Parallel()
	var answer http.HandlerFunc
	p := open(t, fake(t, func(w http.ResponseWriter, r *http.Request) { answer(w, r) }), 1200, 900)
	p.Allowed = regexp.MustCompile("Failed to load resource")
	p.choose("A", "goose")
	whole := func(w http.ResponseWriter, _ *http.Request) {
		stream(w, "\r", round(1, "all", " well"), chunk("all well"), finish, "data: [DONE]")
	}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	bad := strings.Replace(round(1, "a", "b"), `"parent":0`, `"parent":9`, 1)
	for _, x := range []struct {
		answer http.HandlerFunc
		want   string
	}{
		{status(429, `{"error":{"message":"the queue is full","param":null}}`), "the queue is full"},
		{status(400, `{"error":{"message":"temperature: is 9, want 0 to 2","param":"temperature"}}`), "temperature: is 9, want 0 to 2"},
		{status(502, "<html>bad gateway"), "The server answered with status 502."},
		{func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "\n", chunk("half"), `data: {"error":{"message":"layer 3 is not finite"}}`)
		}, "layer 3 is not finite"},
		{func(w http.ResponseWriter, _ *http.Request) { stream(w, "\n", chunk("half")) }, "The answer ended before it was whole."},
		{func(w http.ResponseWriter, _ *http.Request) { stream(w, "\n", "data: {") }, "The answer cannot be read"},
		{func(w http.ResponseWriter, _ *http.Request) { stream(w, "\n", bad) }, "node 1 has parent 9"},
		{func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "\n", chunk("half"))
			panic(http.ErrAbortHandler)
		}, "The connection was lost."},
	} {
		answer = x.answer
		eval[string](p, `document.querySelector("#prompt").value = ""`)
		p.write("#prompt", "x")
		p.enter()
		p.until(fmt.Sprintf(`document.querySelector("[data-pane=A] [data-ui=note]").textContent.includes(%q) && !document.querySelector("#send").disabled`, x.want))
	}
	answer = whole
	eval[string](p, `document.querySelector("#prompt").value = ""`)
	p.ask("x")
	if got := p.answer("A"); got != "all well" || !eval[bool](p, `document.querySelector("[data-pane=A] [data-ui=note]").hidden`) {
		t.Errorf("after failures: %q", got)
	}
	// A value out of its range is not sent.
	answer = status(500, "")
	p.settings(map[string]string{"temperature": "9"})
	p.write("#prompt", "x")
	p.enter()
	if eval[bool](p, `document.querySelector("[name=temperature]").checkValidity() || document.querySelector("#stop").disabled === false`) {
		t.Error("a temperature of 9 is sent")
	}
}

// Stop ends the request at the server.
func TestStopEndsTheRequest(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	p := open(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, "\n", round(1, "be", "fore"), chunk("before"))
		<-r.Context().Done()
		close(gone)
	}), 1200, 900)
	p.choose("A", "goose")
	p.write("#prompt", "x")
	p.enter()
	p.until(`document.querySelector(".text")?.textContent === "before"`)
	p.click("#stop")
	p.until(`document.querySelector("[data-pane=A] [data-ui=state]").textContent === "stopped" && !document.querySelector("#send").disabled`)
	<-gone
	if got := p.answer("A"); got != "before" {
		t.Errorf("%q", got)
	}
}

// Clear ends an answer in progress and leaves nothing of it, neither in the page nor in the next request.
func TestClearEndsTheAnswer(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	p := open(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- string(b)
		stream(w, "\n", round(1, "more", " "), chunk("more "))
		if strings.Contains(string(b), "second") {
			stream(w, "\n", finish, "data: [DONE]")
			return
		}
		<-r.Context().Done()
	}), 1200, 900)
	p.choose("A", "goose")
	p.write("#prompt", "first")
	p.enter()
	p.until(`document.querySelector(".text")?.textContent === "more "`)
	p.click("#fresh")
	p.until(`!document.querySelector("#send").disabled && document.querySelector("[data-pane=A].empty [data-ui=thread]")?.childElementCount === 0`)
	if state, note := p.ui("A", "state"), p.ui("A", "note"); state != "" || note != "" {
		t.Errorf("a cleared pane says %q, %q", state, note)
	}
	p.ask("second")
	if got := p.answer("A"); got != "more " {
		t.Errorf("%q", got)
	}
	if <-asked; strings.Contains(<-asked, "first") {
		t.Error("the next request has the conversation that was cleared")
	}
}

// An answer without end takes a bounded part of the browser's memory.
func TestLongAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const rounds = 12000
	word := strings.Repeat("x", 20)
	p := open(t, fake(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range rounds {
			stream(w, "\n", round(i+1, word, " "), chunk(word+" "))
		}
		stream(w, "\n", finish, "data: [DONE]")
	}), 1200, 900)
	p.choose("A", "goose")
	p.ask("x")
	if got := p.ui("A", "tokens"); got != "24,000" {
		t.Errorf("%s tokens", got)
	}
	if speed := p.ui("A", "speed"); speed != "2.0" { // by the server's clock, which counts a second a round
		t.Errorf("%s tokens a second", speed)
	}
	if max := eval[int](p, `Number(document.querySelector("[data-pane=A] [type=range]").max)`); max != 4095 {
		t.Errorf("%d rounds are kept", max+1)
	}
	if save := p.ui("A", "save"); save != "Save the last 4,096 rounds" {
		t.Errorf("what is kept can be saved with %q", save)
	}
	if place := p.ui("A", "place"); place != "Round 12,000 of 12,000" {
		t.Error(place)
	}
	if n := eval[int](p, `document.querySelector(".text").textContent.length`); n > 200000 || n < 190000 {
		t.Errorf("%d characters are shown", n)
	}
	if n := eval[int](p, `document.querySelectorAll("*").length`); n > 25000 {
		t.Errorf("%d elements", n)
	}
	p.Do(chromedp.KeyEvent("\x1b"))
	// Files are read to their limits.
	cut := eval[string](p, `(async () => {
		const { readTrace } = await import("/playground/trace.js");
		const line = '{"nodes":[{"parent":-1,"token":0,"text":"x"}],"path":[0],"next":{"token":1,"text":"y"},"kept":1}\n';
		const file = new File(['{"talf_trace":1}\n' + line.repeat(50).trimEnd()], "t");
		const said = [];
		for (const most of [{ rounds: 50 }, { rounds: 20 }, { nodes: 10 }, { bytes: 100 }, { line: 40 }]) {
			let n = 0;
			try {
				const { cut } = await readTrace(file, () => n++, { bytes: 1e6, line: 1e4, rounds: 1e6, nodes: 1e6, ...most });
				said.push(n + (cut ? "+" : ""));
			} catch (err) {
				said.push(err.message.replace(/\d+/g, "#"));
			}
		}
		return said.join("; ");
	})()`)
	if want := "50; 20+; 10+; the file has # bytes, want at most #; line # has more than # characters"; cut != want {
		t.Errorf("%q, want %q", cut, want)
	}
}

// The page asks for the key that the server wants, and keeps it in the tab.
func TestKeysAreAskedFor(t *testing.T) {
	t.Parallel()
	s, err := start([]string{"TALF_API_KEY=correct horse"}, methods()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	p := open(t, s.origin, 1200, 900)
	p.Allowed = regexp.MustCompile("Failed to load resource.*401")
	p.until(`document.querySelector("#key-dialog").open`)
	p.Picture("key")
	refused := `document.querySelector("#key-why").textContent.includes("refused")`
	if eval[bool](p, refused) {
		t.Error("a key is refused before there is one")
	}
	p.write("#key", "wrong")
	p.enterForm()
	p.until(`document.querySelector("#key-dialog").open && document.querySelector("#key").value === "" && ` + refused)
	if got := eval[string](p, `document.querySelector("#model").textContent`); got != "the API key was refused" {
		t.Errorf("the page says %q of a refused key", got)
	}
	p.Picture("key-refused")
	p.write("#key", "correct horse")
	p.enterForm()
	p.until(`document.querySelector("#model").textContent.startsWith("tested")`)
	p.choose("A", "goose")
	p.ask("Once upon a time")
	if p.answer("A") == "" {
		t.Error("no answer")
	}
	kept := eval[string](p, `JSON.stringify(Object.entries(sessionStorage)) + JSON.stringify(Object.entries(localStorage)) + document.cookie`)
	if strings.Count(kept, "correct horse") != 1 || strings.Contains(eval[string](p, `JSON.stringify(Object.entries(localStorage))`), "horse") {
		t.Errorf("the key is kept in %s", kept)
	}
	p.Do(chromedp.Reload())
	p.until(`document.querySelector("#model").textContent.startsWith("tested")`)
	other := open(t, s.origin, 1200, 900) // has none
	other.Allowed = p.Allowed
	other.until(`document.querySelector("#key-dialog").open`)
	p.click("#unlock")
	p.click("#key-forget")
	if eval[int](p, `sessionStorage.length`) != 0 {
		t.Error("the key is not forgotten")
	}
}

// The text of an answer is what the API sent, in whatever pieces, whether or not the tokens of the
// rounds spell it; where they do, drafted tokens are told from the others.
func TestTextIsWhatWasSent(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900)
	wrong := eval[[]string](p, `(async () => {
		const { Transcript } = await import("/playground/transcript.js");
		const wrong = [];
		// Tokens: [text, drafted]; the text may differ from what they spell.
		const cases = {
			spelt: { tokens: [["Once", false], [" upon", true], [" a", true], [" time", false], [".", true], ["\n", false]], text: "Once upon a time.\n", drafted: " upon a." },
			"leading space": { tokens: [[" Once", false], [" upon", true], [" a", false]], text: "Once upon a", drafted: " upon" },
			"split characters": { tokens: [["a", false], ["�", true], ["�", true], ["�", true], [" b", true], ["c", false]], text: "a語 bc", drafted: "語 b" },
			"special tokens": { tokens: [["a", false], ["<|x|>", true], ["b", true], ["c", false], ["<|end|>", false]], text: "abc", drafted: "b" },
			"nothing fits": { tokens: [["q", false], ["r", true], ["s", false]], text: "other text", drafted: "" },
			"no rounds": { tokens: [], text: "text alone", drafted: "" },
			"text goes on": { tokens: [["a", true], ["b", false]], text: "ab and more", drafted: "a" },
		};
		for (const [name, { tokens, text, drafted }] of Object.entries(cases)) {
			for (let n = 0; n < 300; n++) {
				const root = document.createElement("p");
				const t = new Transcript(root, () => {});
				// Rounds end with a token of the model's own, and come before their text.
				let number = 0;
				let nodes = [];
				const rounds = [];
				for (const [text, drafted] of tokens) {
					if (drafted) nodes.push({ parent: nodes.length, token: 1, text });
					else {
						rounds.push([{ nodes: [{ parent: -1, token: 0, text: "" }, ...nodes], path: [0, ...nodes.keys().map((i) => i + 1)], kept: nodes.length + 1, next: { token: 2, text } }, ++number]);
						nodes = [];
					}
				}
				for (const [round, number] of rounds) t.round(number, round);
				// Pieces end between characters, as the server's do.
				const characters = Array.from(text);
				while (characters.length > 0) t.write(characters.splice(0, n === 0 ? text.length : 1 + Math.floor(Math.random() * 4)).join(""));
				const got = Array.from(root.querySelectorAll(".drafted"), (e) => e.textContent).join("");
				if (root.textContent !== text || t.text !== text) wrong.push(name + ": " + root.textContent);
				if (n === 0 && got !== drafted) wrong.push(name + ": drafted " + got);
				if (name === "spelt" && got !== drafted) wrong.push(name + " in pieces: drafted " + got);
			}
		}
		// Text of which no rounds come is bounded, too.
		const root = document.createElement("p");
		const t = new Transcript(root, () => {});
		for (let i = 0; i < 500; i++) t.write("x".repeat(1000));
		const shown = root.textContent.length;
		if (shown > 200000 || shown < 190000) wrong.push(shown + " characters are shown");
		return wrong;
	})()`)
	for _, w := range wrong {
		t.Error(w)
	}
}

// Who wants less motion gets none.
func TestMotionCanBeReduced(t *testing.T) {
	t.Parallel()
	p := open(t, served, 1200, 900, chrome.Feature("prefers-reduced-motion", "reduce"))
	moving := eval[int](p, `[...document.querySelectorAll("*")].filter((e) => [null, "::before", "::after"].some((part) => {
		const s = getComputedStyle(e, part);
		return parseFloat(s.transitionDuration) > 0 && s.transitionProperty !== "none" || s.animationName !== "none";
	})).length`)
	if moving != 0 {
		t.Errorf("%d elements move", moving)
	}
}
