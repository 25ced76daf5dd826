package corpus_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"talf/data/corpus"
	"talf/internal/golden"
	"talf/text/chat"
)

// showChats writes one document per line: its place and the input of a template.
func showChats(docs []corpus.Doc) string {
	var b strings.Builder
	for _, d := range docs {
		fmt.Fprintf(&b, "%d.%d#%s ", d.Line, d.Item, d.ID)
		if d.Chat != nil {
			fmt.Fprintf(&b, "%s\n", d.Chat.JSON(d.Chat.Messages))
		} else {
			fmt.Fprintf(&b, "%q\n", d.Spans[0].Text)
		}
	}
	return b.String()
}

func TestConversations(t *testing.T) {
	const (
		pretty = "[\n  {\n    \"id\": \"a\",\n    \"conversations\": [\n      {\"from\": \"human\", \"value\": \"Hi\"},\n      {\"value\": \"Yo\", \"from\": \"gpt\"}\n    ]\n  },\n  {\"id\": \"b\", \"conversations\": []}, 7,\n  {\"text\": \"t\"}\n]\n"
		ab     = `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}]}`
	)
	for _, c := range []struct{ name, file, text, docs, bad string }{
		{
			"an array over many lines", "a.json", pretty,
			"2.1#a " + ab + "\n10.4# \"t\"\n",
			"9.2: field \"conversations\": want a list of messages\n9.3: not a JSON object: number\n",
		},
		{
			"an array in one line, in a file of lines", "a.jsonl", `[{"text":"x"},{"text":"y"}]`,
			"1.1# \"x\"\n1.2# \"y\"\n", "",
		},
		{"a line that is an array", "a.jsonl", "[1]\n{\"text\":\"x\"}\n", "2.0# \"x\"\n", "1.0: not a JSON object: array\n"},
		{"an empty array", "a.json", " [ ] ", "", ""},
		{"objects over many lines", "a.json", "{\n\"text\":\n\"x\"}\n{\"a\":\n1}{\"text\":\"y\"}", "1.1# \"x\"\n5.3# \"y\"\n", "4.2: no field \"messages\", \"conversations\", \"text\", \"prompt\" or \"turns\", and no template that says what to take\n"},
		{"a torn line first", "a.json", "{\"text\": \"a\n{\"text\":\"b\"}\n", "2.0# \"b\"\n", "1.0: not a JSON object: unexpected end of JSON input\n"},
		{
			"a message overrides a separate system text", "a.jsonl", `{"system":"s","messages":[{"role":"system","content":"m"}]}`,
			`1.0# {"messages":[{"role":"system","content":"m"}]}` + "\n", "",
		},
		{
			"each record decides its own kind", "a.jsonl",
			`{"text":"t"}` + "\n" + `{"messages":[{"role":"user","content":"Hi"}],"prompt":"Hi"}` + "\n" + `{"prompt":"p","messages":null}` + "\n" +
				`{"conversations":[{"role":"system","content":"s"}]}` + "\n" + `{"conversation":"no list","text":"u"}`,
			"1.0# \"t\"\n2.0# {\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n3.0# \"p\"\n4.0# {\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}\n5.0# \"u\"\n", "",
		},
		{
			"keys keep their order, and everything that a template may ask for stays", "a.jsonl",
			`{"tools":[{"type":"function","function":{"name":"f","b":1,"a":2}}],"messages":[{"content":null,"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"y":1.50,"x":2}}}]},{"role":"tool","tool_call_id":"7","name":"f","content":"<&>"}],"chat_template_kwargs":{"enable_thinking":false}}`,
			`1.0# {"messages":[{"content":null,"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"y":1.50,"x":2}}}]},{"role":"tool","tool_call_id":"7","name":"f","content":"<&>"}],"tools":[{"type":"function","function":{"name":"f","b":1,"a":2}}],"enable_thinking":false}` + "\n", "",
		},
		{
			"arguments are objects", "a.jsonl",
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"arguments":"{\"y\":1.50,\"x\":2}","name":"f"},"type":"function"},{"function":{"name":"g","arguments":"no JSON"}},{"function":{"name":"h","arguments":"3"}},{"x":1},7]}]}`,
			`1.0# {"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"arguments":{"y":1.50,"x":2},"name":"f"},"type":"function"},{"function":{"name":"g","arguments":"no JSON"}},{"function":{"name":"h","arguments":"3"}},{"x":1},7]}]}` + "\n", "",
		},
		{
			"parts of text are joined", "a.jsonl",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"<b>"}],"name":"n"}]}`,
			`1.0# {"messages":[{"role":"user","content":"a\n<b>","name":"n"}]}` + "\n", "",
		},
		{
			"everything of ShareGPT's form", "a.jsonl",
			`{"system":"s","tools":"[{\"name\":\"f\"}]","conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":2}}"},{"from":"observation","value":"r"},{"from":"gpt","value":"<a>"}]}`,
			`1.0# {"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}}]},{"role":"tool","tool_call_id":"call00001","content":"r"},{"role":"assistant","content":"<a>"}],"tools":[{"name":"f"}]}` + "\n", "",
		},
		{
			"invalid conversations", "a.jsonl",
			`{"messages":{}}
{"messages":[1]}
{"messages":[{"content":"x"}]}
{"messages":[{"role":"user"}]}
{"messages":[{"role":"user","content":{}}]}
{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}
{"messages":[{"role":"user","content":[{"type":"text"}]}]}
{"messages":[{"role":"assistant","content":null}]}
{"conversations":[{"from":"alien","value":"x"}]}
{"conversations":[{"from":"human"}]}
{"conversations":[{"from":"function_call","value":"f(1)"}]}
{"conversations":[{"from":"function_call","value":"[]"}]}
{"messages":[{"role":"user","content":"x"}],"tools":{}}
{"messages":[{"role":"user","content":"x"}],"tools":"["}
{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"messages":1}}
{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":3}
{"messages":[{"role":"assistant","content":"x","weight":0.5}]}`,
			"",
			`1.0: field "messages": want a list of messages
2.0: field "messages[0]": not an object
3.0: field "messages[0]": no "role", want text
4.0: field "messages[0]": no "content", want text
5.0: field "messages[0]": "content": want text or a list of parts
6.0: field "messages[0]": "content[0]": a part of type "image_url", want text
7.0: field "messages[0]": "content[0]": no "text"
8.0: field "messages[0]": no "content", want text
9.0: field "conversations[0]": "from": "alien", want human, gpt, system, tool, function_call or observation
10.0: field "conversations[0]": no "value", want text
11.0: field "conversations[0]": "value" of a function_call: want JSON: {"name": text, "arguments": object}
12.0: field "conversations[0]": "value" of a function_call: want JSON: {"name": text, "arguments": object}
13.0: field "tools": want a list of tools
14.0: field "tools": text that is not JSON, want a list of tools: unexpected end of JSON input
15.0: field "chat_template_kwargs.messages": this variable is set from the conversation
16.0: field "chat_template_kwargs": not an object
17.0: field "messages[0]": "weight": 0.5, want 0 or 1
`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs, bad := loadText(t, c.file, c.text, corpus.Default())
			if d := cmp.Diff(c.docs, showChats(docs)); d != "" {
				t.Error(d)
			}
			var b strings.Builder
			for _, x := range bad {
				fmt.Fprintf(&b, "%d.%d: %s\n", x.Line, x.Item, x.Why)
			}
			if d := cmp.Diff(c.bad, b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMessagesThatCallToolsHaveOtherForms(t *testing.T) {
	docs, _ := loadText(t, "a.jsonl", `{"messages":[{"role":"user","content":"q"},{"content":null,"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":"<","a":2}}}]}]}`, corpus.Default())
	want := []string{
		`{"content":null,"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":"<","a":2}}}]}`,
		`{"content":null,"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"b\":\"<\",\"a\":2}"}}]}`,
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":"<","a":2}}}],"content":""}`,
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"b\":\"<\",\"a\":2}"}}],"content":""}`,
	}
	msgs := docs[0].Chat.Messages
	n := 0
	for got := range chat.Forms(msgs) {
		if n == len(want) || string(got[0].JSON) != string(msgs[0].JSON) || string(got[1].JSON) != want[n] {
			t.Fatalf("form %d: %s %s", n, got[0].JSON, got[1].JSON)
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d forms, want %d", n, len(want))
	}
	for got := range chat.Forms(msgs[:1]) {
		if n++; n > len(want)+1 {
			t.Errorf("a message that calls nothing has another form: %s", got[0].JSON)
		}
	}
}

func TestATemplateOrAnAnswerTakesRecordsAsTexts(t *testing.T) {
	const text = `{"messages":[{"role":"user","content":"x"}],"prompt":"p","answer":"a"}`
	byTemplate, byAnswer := corpus.Default(), corpus.Default()
	byTemplate.Template = "{messages.0.content}!"
	byAnswer.AnswerField = "answer"
	for want, c := range map[string]corpus.Config{"1|\"x!\"\n": byTemplate, "1|\"p\"|>\" a\"\n": byAnswer} {
		docs, bad := loadText(t, "a.jsonl", text, c)
		if len(bad) > 0 || show(docs) != want {
			t.Errorf("%s, bad %v; want %s", show(docs), bad, want)
		}
	}
}

func TestUserQuestionsAreRecognised(t *testing.T) {
	docs, _ := loadText(t, "a.jsonl", `{"prompt":"p"}`+"\n"+`{"turns":["a","b"]}`+"\n"+`{"text":"t","prompt":"p"}`+"\n"+
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]}`, corpus.Default())
	if !docs[0].Asked || !docs[1].Asked || docs[2].Asked || docs[3].Asked {
		t.Errorf("%+v", docs)
	}
	if d := cmp.Diff([]string{"x", "z"}, docs[3].Chat.Questions()); d != "" {
		t.Error(d)
	}
	// A template decides itself what the text is.
	c := corpus.Default()
	c.Template = "{prompt}"
	if docs, _ := loadText(t, "a.jsonl", `{"prompt":"p"}`, c); len(docs) != 1 || docs[0].Asked {
		t.Errorf("%+v", docs)
	}
}

func pack(t testing.TB, kind, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	switch kind {
	case "gzip":
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	case "zstd":
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	default:
		b.WriteString(text)
	}
	return b.Bytes()
}

// Compression is recognised by the first bytes; names say what the text is.
func TestCompressedFiles(t *testing.T) {
	const text = `[{"text":"x"},{"text":"y"}]`
	for _, kind := range []string{"plain", "gzip", "zstd"} {
		for _, name := range []string{"a.json", "a.json.gz", "a.JSONL.zst"} {
			raw := pack(t, kind, text)
			docs, bad := loadText(t, name, string(raw), corpus.Default())
			if showChats(docs) != "1.1# \"x\"\n1.2# \"y\"\n" || len(bad) > 0 {
				t.Errorf("%s %s: %q, bad %v", kind, name, showChats(docs), bad)
			}
			if kind == "gzip" { // members that follow each other are one text
				two := append(pack(t, kind, "one\n"), pack(t, kind, "two")...)
				if docs, _ := loadText(t, "a.txt.gz", string(two), corpus.Default()); show(docs) != "1|\"one\\ntwo\"\n" {
					t.Errorf("%q", show(docs))
				}
			}
		}
	}
}

// failure returns the error that loading stops with.
func failure(t testing.TB, name string, raw []byte) (n int, err error) {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, e := range corpus.Load([]string{p}, corpus.Default(), nil) {
		if e != nil {
			return n, e
		}
		n++
	}
	return n, nil
}

func TestABrokenFileIsAnErrorThatSaysWhere(t *testing.T) {
	var long strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&long, "{\"text\":\"line %d %x\"}\n", i, uint64(i)*0x9e3779b97f4a7c15)
	}
	packed := func(kind string, cut int) []byte {
		raw := pack(t, kind, long.String())
		return raw[:len(raw)-cut]
	}
	flipped := packed("gzip", 0)
	flipped[len(flipped)-6] ^= 1 // the checksum
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"a.json", []byte("[{\"text\":\"x\"},\n{\"text\":"), "the file ends at byte 23 inside a value that begins at line 2, byte 15"},
		{"a.json", []byte("[{\"text\":\"x\"},\n"), "the file ends at byte 15 inside the array, after 1 elements"},
		{"a.json", []byte("[{\"text\":\"x\"}"), "the file ends at byte 13 inside the array, after 1 elements"},
		{"a.json", []byte("[{\"text\":\"x\"} {}]"), "line 1, byte 15: '{' after element 1 of the array, want a comma or ]"},
		{"a.json", []byte("[{\"text\":\"x\"},]"), "line 1, byte 15: ']' where element 2 of the array should be"},
		{"a.json", []byte("[{\"text\":\"x\"]"), "line 1, byte 13: ']' closes nothing"},
		{"a.json", []byte("[1] x"), "line 1, byte 5: 'x' after the end of the array"},
		{"a.json", []byte(strings.Repeat("[", 20000)), "a value nested more than 10000 times"},
		{"a.jsonl", packed("gzip", 40), "gzip: after "},
		{"a.jsonl", packed("gzip", 40), "the file is truncated"},
		{"a.jsonl", packed("zstd", 40), "zstd: after "},
		{"a.jsonl", packed("zstd", 40), "the file is truncated"},
		{"a.jsonl", flipped, "gzip: invalid checksum"},
		{"a.jsonl", []byte("\x1f\x8b"), "gzip: the file is truncated"},
		{"a.jsonl", []byte("\x1f\x8bxxxxxxxxxx"), "gzip: invalid header"},
		{"a.jsonl", []byte("PAR1xxxx"), "a Parquet file: want text"},
		{"a.jsonl", []byte("BZh91AY&SYxx"), "a bzip2 file: want text"},
	} {
		n, err := failure(t, c.name, c.raw)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("after %d documents: %v, want it to say %q and the file", n, err, c.want)
		}
	}
	if n, err := failure(t, "a.txt", []byte("BZhe, a town")); n != 1 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
}

func TestDirectoriesExpandToTheirTextFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".cache") // who names a hidden directory means it
	for name, text := range map[string]string{
		"b.jsonl": `{"text":"2"}`, "a/z.txt": "1", "c.json.gz": string(pack(t, "gzip", `[{"text":"3"}]`)),
		"README.md": "no", ".hidden.txt": "no", ".git/x.txt": "no", "d.parquet": "PAR1",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"0 no", "1 1", "2 2", "3 3"}
	if err := os.Symlink(filepath.Join(dir, "a", "z.txt"), filepath.Join(dir, "z.jsonl.txt")); err == nil { // not allowed everywhere
		want = append(want, "4 1")
		if err := os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "folder.txt")); err != nil {
			t.Fatal(err)
		}
	}
	docs, bad := load(t, []string{filepath.Join(dir, "README.md"), dir}, corpus.Default())
	var got []string
	for _, d := range docs {
		got = append(got, fmt.Sprintf("%d %s", d.Input, d.Spans[0].Text))
	}
	if d := cmp.Diff(want, got); d != "" || len(bad) > 0 {
		t.Error(d, bad)
	}
}

// An array is never in memory as a whole, and an element that is too long is skipped.
func TestALongArrayIsReadPieceByPiece(t *testing.T) {
	const n = 8 << 10
	text := "[" + strings.Repeat(`{"text":"`+strings.Repeat("x", 1000)+`"},`, n) + `{"text":"` + strings.Repeat("y", 4<<20) + `"}]`
	p := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	text = ""
	c := corpus.Default()
	c.MaxLine = 2000
	var bad []corpus.BadLine
	docs, most := 0, uint64(0)
	var before, m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, err := range corpus.Load([]string{p}, c, func(b corpus.BadLine) { bad = append(bad, b) }) {
		if err != nil {
			t.Fatal(err)
		}
		if docs++; docs%2000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	if docs != n || len(bad) != 1 || bad[0].Item != n+1 || bad[0].Why != fmt.Sprintf("an object of %d bytes, want at most 2000", 4<<20+11) {
		t.Errorf("%d documents, bad %v", docs, bad)
	}
	if most > before.HeapAlloc+2<<20 {
		t.Errorf("%d bytes of heap for a text of 12 MiB", most-before.HeapAlloc)
	}
}

func TestTheShareGPTFileLoads(t *testing.T) {
	docs, bad := load(t, []string{golden.Shared(t, "data/prompts/sharegpt_style_dummy_conversation.json")}, corpus.Default())
	if len(docs) != 500 || len(bad) > 0 {
		t.Fatalf("%d documents and %d bad, want 500 and 0", len(docs), len(bad))
	}
	turns := map[string]int{}
	for _, d := range docs {
		if d.Chat == nil || d.ID == "" {
			t.Fatalf("%+v", d)
		}
		for _, m := range d.Chat.Messages {
			turns[m.Role]++
		}
	}
	t.Log(turns)
}

// loaded checks invariants that no input may break: texts are UTF-8 and not blank,
// conversations are JSON with at least one message, and places never go backwards.
func loaded(t *testing.T, name string, raw []byte) {
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	c := corpus.Default()
	c.MaxLine = 4096
	line, item := 0, 0
	for d, err := range corpus.Load([]string{p}, c, func(b corpus.BadLine) {
		if b.Why == "" || b.Line < 1 {
			t.Fatalf("%+v", b)
		}
	}) {
		if err != nil {
			if !strings.Contains(err.Error(), p) {
				t.Fatalf("an error that does not name the file: %v", err)
			}
			return
		}
		if d.Line < line || d.Item <= item && d.Line == line {
			t.Fatalf("%d.%d after %d.%d", d.Line, d.Item, line, item)
		}
		line, item = d.Line, d.Item
		if (d.Chat == nil) == (len(d.Spans) == 0) {
			t.Fatalf("%+v", d)
		}
		for _, s := range d.Spans {
			if !utf8.ValidString(s.Text) || strings.TrimSpace(s.Text) == "" {
				t.Fatalf("line %d: %q", d.Line, s.Text)
			}
		}
		if d.Chat == nil {
			continue
		}
		var o map[string]any
		if err := json.Unmarshal(d.Chat.JSON(d.Chat.Messages), &o); err != nil {
			t.Fatal(err)
		}
		list, _ := o["messages"].([]any)
		if len(list) == 0 || len(list) != len(d.Chat.Messages) {
			t.Fatalf("%d messages of %d", len(list), len(d.Chat.Messages))
		}
		for i, m := range list {
			if role := m.(map[string]any)["role"]; role == "" || role != d.Chat.Messages[i].Role {
				t.Fatalf("role %q, want %q", role, d.Chat.Messages[i].Role)
			}
		}
	}
}

func FuzzShareGPT(f *testing.F) {
	f.Add(`[{"id":"a","conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"}],"system":"s","tools":"[{}]"}]`)
	f.Add("[\n{\"conversations\":[{\"from\":\"gpt\",\"value\":\"\\ud800\"}]}, 1, \"]\", {\"a\":[}]")
	f.Fuzz(func(t *testing.T, text string) { loaded(t, "f.json", []byte(text)) })
}

func FuzzMessages(f *testing.F) {
	f.Add(`{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"}],"tool_calls":[{"a":1}]}],"tools":[{}],"chat_template_kwargs":{"a":1}}` + "\n" + `{"turns":["a"]}`)
	f.Add(`{"messages":[{"role":"x","role":"y","content":null}],"messages":3}`)
	f.Fuzz(func(t *testing.T, text string) { loaded(t, "f.jsonl", []byte(text)) })
}

// For any compressed bytes: no panic, and either an error or whole documents.
func FuzzCompressed(f *testing.F) {
	for _, kind := range []string{"gzip", "zstd"} {
		f.Add(pack(f, kind, `{"text":"abc"}`+"\n"+`{"prompt":"d"}`), 0, byte(0))
		f.Add(pack(f, kind, strings.Repeat("some text\n\n", 50)), 20, byte(4))
	}
	f.Fuzz(func(t *testing.T, raw []byte, at int, flip byte) {
		if len(raw) > 0 {
			raw = bytes.Clone(raw)
			raw[uint(at)%uint(len(raw))] ^= flip
		}
		loaded(t, "f.jsonl", raw)
		loaded(t, "f.txt", raw)
	})
}
