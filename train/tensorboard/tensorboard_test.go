package tensorboard

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/internal/vfs/vfstest"
	"talf/train"
)

func open(t *testing.T, dir string, at int64) *Log {
	t.Helper()
	l := New(Kind, dir, func(s string) { t.Error(s) })
	l.now = func() time.Time { return time.Unix(at, 500_000_000) }
	return l
}

func steps() []train.Progress {
	return []train.Progress{
		{Step: 7, Loss: 2.5, LR: 1e-3, Norm: 0.75, Positions: 300, Seconds: 2},
		{Step: 8, Stage: 1, Loss: 2.25, LR: 5e-4, Norm: 0.5, Eval: &train.Eval{
			Loss: 3, Tau: 2.5, TauGreedy: 3.5, Levels: []train.LevelEval{{Loss: 1, Top1: 0.5}, {Loss: 2, Top1: 0.25}},
		}},
	}
}

// The bytes are those of testdata/steps.hex, which TensorBoard itself has read: see
// testdata/README.md.
func TestFilesAreWhatTensorBoardHasRead(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 1_700_000_000)
	for _, p := range steps() {
		l.Step(p)
	}
	l.Close()
	l.Step(steps()[0]) // after Close: nothing
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 || !strings.HasPrefix(filepath.Base(names[0]), "events.out.tfevents.1700000000.") {
		t.Fatal(names, err)
	}
	got, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/steps.hex")
	if err != nil {
		t.Fatal(err)
	}
	if w, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), "")); err != nil || !bytes.Equal(got, w) {
		t.Errorf("%v; got\n%s", err, hex.Dump(got))
	}
}

// Two processes in one second have a file each, in order.
func TestEveryProcessHasItsOwnFile(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		l := open(t, dir, 1_700_000_000)
		l.Step(steps()[0])
		l.Close()
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 2 || !strings.HasSuffix(names[0], ".0") || !strings.HasSuffix(names[1], ".1") {
		t.Error(names, err)
	}
}

// A full disk ends the log, with one warning, and not the run.
func TestAnErrorEndsTheLogAlone(t *testing.T) {
	var said []string
	l := New(Kind, t.TempDir(), func(s string) { said = append(said, s) })
	vfstest.FullDisk(t, 40, false)
	for _, p := range steps() {
		l.Step(p)
	}
	l.Close()
	if len(said) != 1 || !strings.Contains(said[0], "no further figures") {
		t.Error(said)
	}
}

func TestNoLogIsAsked(t *testing.T) {
	l := New("", t.TempDir(), nil)
	l.Step(steps()[0])
	l.Close()
	if l != nil || Known("") != nil || Known(Kind) != nil || Known("wandb") == nil {
		t.Error("kinds of logs")
	}
}

// Masked checksums as RFC 3720 and TensorFlow's record format define them: the CRC-32C of
// "123456789" is 0xe3069283.
func TestChecksums(t *testing.T) {
	c := uint32(0xe3069283)
	if got, want := masked([]byte("123456789")), (c>>15|c<<17)+0xa282ead8; got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}
