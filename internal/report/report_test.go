package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"talf/infer/bench/rig"
	"talf/internal/report"
)

func read(t testing.TB, name, path string) *report.Run {
	t.Helper()
	r, err := report.Read(name, path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func page(t testing.TB, runs ...*report.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, runs); err != nil {
		t.Fatal(err)
	}
	if b.Len() > report.MostBytes {
		t.Errorf("%d bytes", b.Len())
	}
	return b.String()
}

func TestAPageShowsWhatRunsHold(t *testing.T) {
	got := page(t, read(t, "first", "testdata/run"), read(t, "second", "testdata/run"))
	text := html.UnescapeString(got)
	var want []string
	err := filepath.WalkDir("testdata/run", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		sum := sha256.Sum256(raw)
		want = append(want, hex.EncodeToString(sum[:]), path, fmt.Sprint(len(raw)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/run/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	var b rig.Report
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	for _, x := range b.Rows {
		want = append(want, x.Method, x.Speed.Text(1))
		if x.Spec != "ar" {
			want = append(want, x.EndToEnd.Text(2, 1), x.Decoding.Text(2, 1), x.TauOf.Text(2, 1))
		}
		for d, i := range x.DepthOf {
			if x.Depth[d+1].Value() != i.Value || !(i.Low <= i.Value && i.Value <= i.High) {
				t.Errorf("%s: kept at depth %d: %+v, counted %v", x.Method, d+1, i, x.Depth[d+1])
			}
		}
	}
	want = append(want, "Kept by depth, temperature 1", "first · talf, held out", "fig2b: accuracy and calibration",
		"drafted nodes accepted", b.Conditions(), "recycle:table=keep,N=8, cold")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the page lacks %q", w)
		}
	}
	// The same run twice: every figure is there twice.
	if x := b.Rows[1].EndToEnd.Text(2, 1); strings.Count(text, x) < 2 {
		t.Errorf("%q is not shown for both runs", x)
	}
}

// A page asks nobody for anything, and its policy allows its style and nothing else.
func TestAPageIsAlone(t *testing.T) {
	got := page(t, read(t, "a", "testdata/run"))
	for _, bad := range []string{"<script", "src=", "@import", "url(", "http://", "https://", " style=", "NaN", "ZgotmplZ", "%!"} {
		if strings.Contains(got, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(got)
	if style == nil {
		t.Fatal("no style sheet")
	}
	sum := sha256.Sum256([]byte(style[1]))
	if want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(html.UnescapeString(got), "default-src 'none'; "+want) {
		t.Errorf("the policy is not that of the style sheet: %s", want)
	}
	// Every place that is linked to is there.
	for _, m := range regexp.MustCompile(`href="#([a-z]+)"`).FindAllStringSubmatch(got, -1) {
		if !strings.Contains(got, `id="`+m[1]+`"`) {
			t.Errorf("nothing is called %q", m[1])
		}
	}
}

// hostile is a text that would do something if it were not escaped.
const hostile = `</p></svg></style><script>alert(1)</script><img src=x onerror="alert(2)">`

func TestTextsOfStrangersAreEscaped(t *testing.T) {
	dir := t.TempDir()
	raw, err := os.ReadFile("testdata/run/trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`"text":"(?:[^"\\]|\\.)*"`).ReplaceAllLiteral(raw, append([]byte(`"text":`), quoted...))
	bad = bytes.Replace(bad, []byte(`"method":"salf`), []byte(`"method":"<script>alert(3)</script>`), 1)
	write(t, filepath.Join(dir, "trace.jsonl"), bad)
	raw, err = os.ReadFile("testdata/run/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "bench.json"), bytes.ReplaceAll(raw, []byte(`"salf:N=8,B=4 talf"`), quoted))
	got := page(t, read(t, hostile, dir), read(t, "other", "testdata/run"))
	for _, bad := range []string{"<script", "<img", "</style><"} {
		if strings.Contains(got, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if strings.Count(html.UnescapeString(got), "<script>alert(1)</script>") < 10 {
		t.Error("the texts are not shown")
	}
}

func TestFilesThatAreNoResultsAreRefused(t *testing.T) {
	dir := t.TempDir()
	cut, err := os.ReadFile("testdata/run/bench.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	trace, err := os.ReadFile("testdata/run/trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct{ text, want string }{
		"text.jsonl":  {`{"text":"once"}` + "\n", "want a training run"},
		"text.txt":    {"once upon a time", "want a training run"},
		"empty":       {"", "want a training run"},
		"torn.json":   {`{"rows":[`, "cut short"},
		"bad.json":    {`{"rows":,}`, "not JSON"},
		"lines.jsonl": {`{"text":"once"}` + "\n" + `{"text":`, "want a training run"},
		"rows.json":   {`{"rows":[],"sets":[],"prompts":1,"max_tokens":1,"seeds":[]}`, "want at least one"},
		"eval.json":   {`{"name":"fig9","doc":"","bootstrap":{}}`, "fig9"},
		"trace.jsonl": {`{"talf_trace":1}` + "\n", "no round"},
		"next.jsonl":  {`{"talf_trace":99}` + "\n", "newer version"},
		"steps.jsonl": {`{"step":0}` + "\n", "line 1"},
		"head.jsonl":  {string(cut[:bytes.IndexByte(cut, '\n')+1]), "no measurement"},
		"key.jsonl":   {string(cut[:bytes.IndexByte(cut, '\n')+1]) + `{"key":"a|b"}` + "\n", "2 parts"},
		"alone.jsonl": {string(cut[:bytes.IndexByte(cut, '\n')+1]) + `{"key":"pld||||0|8|0||1|0|0|0","method":"pld"}` + "\n", "part 4"},
		"paths.jsonl": {string(cut[:bytes.IndexByte(cut, '\n')+1]) + `{"key":"goose","paths":{"origins":["spine"],"drafted":[1],"reached":[1]}}` + "\n", "line 2: paths.kept: 0 counts"},
		"kinds.jsonl": {string(cut[:bytes.IndexByte(cut, '\n')+1]) + seeds(1001), "more than 1000 methods, temperatures, seeds or sets"},
		"plain.jsonl": {string(cut[:bytes.IndexByte(cut, '\n')+1]) + `{"key":"pld|||0|8|0||1|0|0|0","method":"pld"}` + "\n", "plain decoding"},
	} {
		path := filepath.Join(dir, name)
		write(t, path, []byte(x.text))
		if _, err := report.Read("a", path); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that says %q", name, err, x.want)
		}
	}
	for in, want := range map[string]string{"bench.json": "bench.json: the JSON is cut short", "metrics.jsonl": "metrics.jsonl: a log of bench, want a log of training"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "prompts.jsonl"), []byte(`{"text":"once"}`+"\n"+`{"text":"twice"}`+"\n"))
		write(t, filepath.Join(dir, "trace.jsonl"), trace)
		if r, err := report.Read("a", dir); err != nil || len(r.Traces) != 1 || len(r.Files) != 1 {
			t.Errorf("a trace beside prompts: %v", err)
		}
		raw := []byte(`{"rows":[`)
		if in == "metrics.jsonl" {
			raw = cut
		}
		write(t, filepath.Join(dir, in), raw)
		if _, err := report.Read("a", dir); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("a directory with such a %s: error %v, want one that says %q", in, err, want)
		}
	}
	if _, err := report.Read("a", t.TempDir()); err == nil || !strings.Contains(err.Error(), "nothing to show") {
		t.Errorf("an empty directory: %v", err)
	}
	if err := report.Write(new(bytes.Buffer), nil); err == nil {
		t.Error("a page without runs")
	}
}

// seeds are the lines of plain decoding with so many seeds.
func seeds(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"ar|||0|8|0|a|1|0|%d|0","method":"ar","seed":%[1]d}`+"\n", i)
	}
	return b.String()
}

// Long traces of large trees and many runs make a page that shows less, not a larger one.
func TestAPageStaysSmall(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"talf_trace":1,"method":"salf","temperature":0,"seed":0,"prompt_tokens":1}` + "\n")
	var nodes []string
	for i := range 150 {
		nodes = append(nodes, fmt.Sprintf(`{"parent":%d,"token":%d,"text":"a token of some length","q":0.5,"p":0.25}`, (i+1)/2-1, i))
	}
	for pos := range 60 {
		fmt.Fprintf(&b, `{"pos":%d,"nodes":[%s],"path":[0,1,3],"next":{"token":1,"text":" end"},"kept":3,"draw":"chosen"}`+"\n", pos, strings.Join(nodes, ","))
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	write(t, path, b.Bytes())
	one := page(t, read(t, "a", path))
	var runs []*report.Run
	for i := range 12 {
		runs = append(runs, read(t, fmt.Sprint("run", i), path))
	}
	all := page(t, runs...)
	a, c := strings.Count(one, `class="tree"`), strings.Count(all, `class="tree"`)
	if a != 12 || c < 12 || c >= 12*12 {
		t.Errorf("%d trees of one run, %d of twelve", a, c)
	}
	for len(runs) <= report.MostRuns {
		runs = append(runs, runs[0])
	}
	if err := report.Write(new(bytes.Buffer), runs); err == nil {
		t.Errorf("%d runs on a page", len(runs))
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"bench.json", "bench.jsonl", "fig2b.json", "trace.jsonl", "talf/metrics.jsonl"} {
		raw, err := os.ReadFile(filepath.Join("testdata/run", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[:min(len(raw), 6000)])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "x")
		write(t, path, raw)
		r, err := report.Read("a", path)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := report.Write(&b, []*report.Run{r}); err == nil && (b.Len() > report.MostBytes || strings.Contains(b.String(), "<script")) {
			t.Errorf("a page of %d bytes", b.Len())
		}
	})
}

func write(t testing.TB, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
