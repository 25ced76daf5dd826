package checkpoints

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
	"talf/model"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

func sample(step int) *Checkpoint {
	x := float32(step)
	c := &Checkpoint{
		Config:    []byte("{}\n"),
		Weights:   []safetensors.Tensor{safetensors.F32("w", []float32{x, x + 1}, 2)},
		Optimizer: []safetensors.Tensor{safetensors.F32("m.w", []float32{x, 0}, 2)},
		State:     []byte(`{"step":1}`),
		Extra:     map[string][]byte{"tokenizer.json": []byte("[]")},
	}
	c.Kind, c.Step, c.Hidden, c.Vocab = KindHead, step, 4, 8
	c.Model = &identity.Model{Spec: identity.Spec{"vocab_size": []byte("8")}, Tensors: strings.Repeat("ab", 32)}
	return c
}

func store(t *testing.T, keep int) *Store {
	t.Helper()
	s, err := NewStore(filepath.Join(t.TempDir(), "run"), keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func save(t *testing.T, s *Store, c *Checkpoint) string {
	t.Helper()
	dir, err := s.Save(c)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func latestIs(t *testing.T, s *Store, want string) {
	t.Helper()
	got, err := s.Latest()
	if err != nil || got != want {
		t.Errorf("newest checkpoint %q, %v; want %q", got, err, want)
	}
}

func TestASavedCheckpointOpensWithItsContents(t *testing.T) {
	s := store(t, 0)
	latestIs(t, s, "")
	if _, err := Find(s.Dir()); err == nil {
		t.Error("an empty store has a checkpoint")
	}
	dir := save(t, s, sample(7))
	latestIs(t, s, dir)
	for _, p := range []string{dir, s.Dir()} {
		if got, err := Find(p); err != nil || got != dir {
			t.Errorf("Find(%s) = %s, %v", p, got, err)
		}
	}
	st, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	w, err := st.Weights.Get("w")
	if err != nil {
		t.Fatal(err)
	}
	if f, err := w.Float32s(); err != nil || f[1] != 8 {
		t.Errorf("weights %v, %v", f, err)
	}
	if _, err := st.Optimizer.Get("m.w"); err != nil {
		t.Error(err)
	}
	if string(st.Trainer) != `{"step":1}` || st.Manifest.Step != 7 || st.Manifest.Schema != Schema {
		t.Errorf("state %s, manifest %+v", st.Trainer, st.Manifest)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || string(b) != "[]" {
		t.Errorf("extra file %q, %v", b, err)
	}
}

func TestOnlyOneRunAtATimeOpensAStore(t *testing.T) {
	s := store(t, 0)
	if _, err := NewStore(s.Dir(), 0); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := NewStore(s.Dir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestOnlyTheNewestAreKept(t *testing.T) {
	s := store(t, 2)
	var last string
	for _, step := range []int{9, 10, 11, 100000000} { // more digits than the names' padding
		last = save(t, s, sample(step))
	}
	all, err := s.Steps()
	if err != nil || len(all) != 2 || filepath.Base(all[0]) != "step-00000011" || all[1] != last {
		t.Errorf("kept %v, %v", all, err)
	}
	latestIs(t, s, last)
}

func TestHalfWrittenCheckpointsAreIgnoredAndRemoved(t *testing.T) {
	s := store(t, 0)
	good := save(t, s, sample(1))
	temp := filepath.Join(s.Dir(), ".step-00000002.tmp")
	half := filepath.Join(s.Dir(), "step-00000003") // its removal was interrupted
	for _, d := range []string{temp, half} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, WeightsFile), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	latestIs(t, s, good)
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Error("the temporary directory is still there")
	}
	// A Save that was interrupted between its two renames.
	if err := os.Rename(good, filepath.Join(s.Dir(), ".old-step-00000001")); err != nil {
		t.Fatal(err)
	}
	latestIs(t, s, good)
	// Saving the same step again replaces the checkpoint.
	c := sample(1)
	c.State = []byte(`{"step":2}`)
	save(t, s, c)
	st, err := Open(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if string(st.Trainer) != `{"step":2}` {
		t.Errorf("state %s", st.Trainer)
	}
}

func TestAFullDiskLeavesThePreviousCheckpoint(t *testing.T) {
	for _, atSync := range []bool{false, true} {
		for room := 0; ; room += 97 {
			s := store(t, 1)
			good := save(t, s, sample(1))
			stop := vfstest.FullDisk(t, room, atSync)
			_, err := s.Save(sample(2))
			stop()
			if err == nil {
				if room < 500 {
					t.Fatalf("a checkpoint fits in %d bytes", room)
				}
				break
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%d bytes: %v", room, err)
			}
			latestIs(t, s, good)
			st, err := Open(t.Context(), good)
			if err != nil {
				t.Fatal(err)
			}
			st.Close()
			if es, err := os.ReadDir(s.Dir()); err != nil || len(es) != 2 { // and the lock
				t.Fatalf("%d bytes: left behind: %v, %v", room, es, err)
			}
			save(t, s, sample(2))
		}
	}
}

// If a checkpoint cannot replace an older one of the same step, the older one is found
// again without a sweep, because readers of a store do not sweep.
func TestACheckpointThatCannotBeReplacedIsPutBack(t *testing.T) {
	s := store(t, 0)
	good := save(t, s, sample(1))
	vfstest.Fail(t, func(op *vfs.Op) error {
		if op.Kind == vfs.Rename && strings.HasSuffix(op.Path, ".tmp") {
			return syscall.EIO
		}
		return nil
	})
	if _, err := s.Save(sample(1)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v, want EIO", err)
	}
	if dir, err := Find(s.Dir()); err != nil || dir != good {
		t.Errorf("found %s, %v, want %s", dir, err, good)
	}
	if _, err := s.Save(sample(2)); !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), ".old-") {
		t.Errorf("a new step: %v, want only EIO", err)
	}
	if es, err := os.ReadDir(s.Dir()); err != nil || len(es) != 2 { // and the lock
		t.Errorf("left behind: %v, %v", es, err)
	}
}

func TestDamageIsReportedWithFileAndExpectation(t *testing.T) {
	for _, c := range []struct {
		name, file, want string
		damage           func(b []byte) []byte
	}{
		{"truncated weights", WeightsFile, "bytes, want", func(b []byte) []byte { return b[:len(b)-3] }},
		{"a flipped bit", optimizerFile, "corrupt", func(b []byte) []byte { b[len(b)-1] ^= 4; return b }},
		{"an empty manifest", ManifestFile, "want a JSON object", func([]byte) []byte { return nil }},
		{"half a manifest", ManifestFile, "want a JSON object", func(b []byte) []byte { return b[:len(b)/2] }},
		{"a newer format", ManifestFile, "schema: version 9, want 2", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"schema": 2`, `"schema": 9`, 1))
		}},
		{"a missing file", StateFile, "no such file", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := store(t, 0)
			dir := save(t, s, sample(3))
			path := filepath.Join(dir, c.file)
			if c.damage == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, c.damage(b), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
				t.Errorf("error %v, want %q and %q in it", err, c.want, c.file)
			}
		})
	}
}

func TestAHeadOfAnotherTargetIsRefused(t *testing.T) {
	_, m := target(t, modeltest.Default())
	wider := modeltest.Default()
	wider.Hidden *= 2
	_, wide := target(t, wider)
	longer := modeltest.Default()
	longer.MaxPos++
	_, long := target(t, longer)
	of := func(x *model.Model) *Manifest {
		return &Manifest{Kind: KindHead, Hidden: x.Spec().Hidden, Vocab: x.Spec().Vocab, Model: x.Identity()}
	}
	quantised := of(m)
	quantised.Model = &identity.Model{Spec: m.Identity().Spec, Tensors: "cd", DerivedFrom: m.Identity().Tensors}
	for _, c := range []struct {
		of    *Manifest
		force bool
		want  string
	}{
		{of(m), false, ""},
		{quantised, false, ""},
		{of(long), false, "max_position_embeddings is"},
		{of(long), true, ""},
		{of(wide), true, fmt.Sprintf("hidden size %d", wider.Hidden)},
		{nil, false, ""},
	} {
		err := c.of.CheckTarget("dir", m, head.Options{Force: c.force})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"format":"talf-checkpoint","schema":2,"kind":"head","step":1,"hidden":1,"vocab":1,"files":{}}`))
	f.Add([]byte(`{"format":"talf-checkpoint","schema":2,"kind":"lm","hidden":1,"vocab":1,"files":{"config.json":{"bytes":1,"sha256":"00"},"model.safetensors":{}}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		for name := range m.Files {
			if name != filepath.Base(name) || name == ".." {
				t.Errorf("file name %q leaves the directory", name)
			}
		}
		if m.Files[WeightsFile].SHA256 == "" {
			t.Error("accepted without weights")
		}
	})
}
