package decode_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/decode"
	"talf/internal/jsonl"
)

func TestAnswersSurviveATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	tasks := []decode.Task{{Key: "a"}, {Key: "b"}, {Key: "c"}}
	f, err := decode.OpenAnswers(path, tasks, settings("s"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := f.Add(decode.Answer{Index: i, Prompt: tasks[i].Key, Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := decode.OpenAnswers(path, tasks, settings("s"))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if !f.Has(0) || f.Has(1) != (cut == len(whole)) || f.Has(2) {
			t.Errorf("cut at %d: %v, %v, %v", cut, f.Has(0), f.Has(1), f.Has(2))
		}
		if !f.Has(1) {
			if err := f.Add(decode.Answer{Index: 1, Prompt: "b", Text: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, whole) {
			t.Fatalf("cut at %d: the repaired file differs", cut)
		}
	}
	// A file of another kind stays as it is.
	for _, text := range []string{"a note of one line", "\x00\x01\x02", "{\"text\":\"x\"}", string(whole) + "a note"} {
		write(t, path, text)
		if _, err := decode.OpenAnswers(path, tasks, settings("s")); err == nil || !strings.Contains(err.Error(), "not a file that generate wrote") {
			t.Errorf("%q was taken for answers: %v", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	write(t, path, string(whole[:first])+"\x00\x00")
	if f, err = decode.OpenAnswers(path, tasks, settings("s")); err != nil || !f.Has(0) || f.Has(1) {
		t.Fatalf("a tail of zeros: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(whole))
	if _, err := decode.OpenAnswers(path, tasks, settings("other")); err == nil {
		t.Error("answers of other settings were taken over")
	}
	if _, err := decode.OpenAnswers(path, []decode.Task{{Key: "z"}, {Key: "b"}, {Key: "c"}}, settings("s")); err == nil {
		t.Error("answers to other prompts were taken over")
	}
}

// A file whose settings another version of talf wrote is refused.
func TestAnswersOfAnotherSchemaAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for _, hash := range []string{"0123456789ab", "talf-answers-9:0123456789ab"} {
		write(t, path, `{"index":0,"prompt":"a","text":"x","settings":"`+hash+`"}`+"\n")
		if _, err := decode.OpenAnswers(path, []decode.Task{{Key: "a"}}, settings("s")); !errors.Is(err, jsonl.ErrSettings) {
			t.Errorf("%s: %v", hash, err)
		}
	}
}

// The first line says what made the answers, so that a refusal can say what differs.
func TestARefusalOfAnswersNamesWhatDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	tasks := []decode.Task{{Key: "a"}, {Key: "b"}}
	f, err := decode.OpenAnswers(path, tasks, settings("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range tasks {
		if err := f.Add(decode.Answer{Index: i, Prompt: x.Key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil || strings.Count(string(raw), `"made_with":{"function":{"id":"talf-fn-1:`) != 1 {
		t.Errorf("the file is %s, %v", raw, err)
	}
	_, err = decode.OpenAnswers(path, tasks, settings("cuda sm_90"))
	if want := "the arithmetic is cuda sm_90, the answers were made with cpu"; !errors.Is(err, jsonl.ErrSettings) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
