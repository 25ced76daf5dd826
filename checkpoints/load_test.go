package checkpoints

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
)

// A saved head is tied to its target, by its manifest and by its weights' own metadata,
// and damage to its weights is found when it is loaded.
func TestAHeadIsLoadedForItsTargetAndWhole(t *testing.T) {
	_, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, nil))
	conf, err := os.ReadFile(filepath.Join(d.Dir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	c := &Checkpoint{Config: conf, Weights: d.Tensors}
	c.Kind, c.Step, c.Model, c.Hidden, c.Vocab = KindHead, 1, m.Identity(), m.Spec().Hidden, m.Spec().Vocab
	s := store(t, 0)
	load := func() error {
		h, err := LoadHead(s.Dir(), m, head.Default())
		if err == nil {
			err = h.Close()
		}
		return err
	}
	dir := save(t, s, c)
	if err := load(); err != nil {
		t.Fatal(err)
	}
	if got := openDraft(t, dir).Target; !cmp.Equal(got, identity.To(m.Identity())) {
		t.Errorf("the weights are tied to %v, want %v", got, m.Identity())
	}
	path := filepath.Join(dir, WeightsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := load(); err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Errorf("damaged weights: %v", err)
	}
	c.Step, c.Model = 2, &identity.Model{Spec: m.Identity().Spec, Tensors: strings.Repeat("0", 64)}
	save(t, s, c)
	if err := load(); err == nil || !strings.Contains(err.Error(), "the hash of the weights is") {
		t.Errorf("a head of another target: %v", err)
	}
}
