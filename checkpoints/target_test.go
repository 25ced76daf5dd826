package checkpoints

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/model/arch"
	"talf/model/identity"
	"talf/model/modeltest"
)

func openTarget(t testing.TB, dir string) *Target {
	t.Helper()
	x, err := OpenTarget(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func identityOf(t *testing.T, x *Target) *identity.Model {
	t.Helper()
	id, err := x.Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAnImportedHeadIsTiedToItsTarget(t *testing.T) {
	dir, m := target(t, modeltest.Default())
	own := openTarget(t, dir)
	if !cmp.Equal(identityOf(t, own), m.Identity()) || len(own.Classes) != 1 || own.Classes[0] != "LlamaForCausalLM" {
		t.Errorf("target %s of classes %q, want the model's hash %s", identityOf(t, own), own.Classes, m.Identity())
	}
	d := openDraft(t, writeHead(t, m, nil))
	retrained := t.TempDir()
	if err := modeltest.Write(retrained, modeltest.Default(), 2); err != nil {
		t.Fatal(err)
	}
	other := openTarget(t, retrained)
	out := func() string { return filepath.Join(t.TempDir(), "out") }

	var tied *TiedError
	if _, err := d.Import(t.Context(), out(), other, false); !errors.As(err, &tied) || len(tied.Differences) != 1 || !strings.Contains(err.Error(), d.Dir) {
		t.Errorf("another target: %v", err)
	}
	for _, c := range []struct {
		t     *Target
		force bool
		want  *identity.Model
	}{{nil, false, m.Identity()}, {own, false, m.Identity()}, {other, true, identityOf(t, other)}} {
		to := out()
		r, err := d.Import(t.Context(), to, c.t, c.force)
		if err != nil {
			t.Fatal(err)
		}
		if back := openDraft(t, to); r.Target != c.want.Hash() || !cmp.Equal(back.Target, identity.To(c.want)) {
			t.Errorf("force %v: tied to %s and %v, want %v", c.force, r.Target, back.Target, c.want)
		}
		want := fmt.Sprintf("%s: %d tensors from model.safetensors in the layout of eagle, for target %s\n", to, len(d.Tensors), identity.Short(c.want.Hash()))
		if r.String() != want {
			t.Errorf("%q, want %q", r, want)
		}
	}
}

func TestATargetOfOtherSizesIsRefused(t *testing.T) {
	_, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, nil))
	for name, change := range map[string]func(*modeltest.Config){
		"vocabulary": func(c *modeltest.Config) { c.Vocab++ },
		"hidden":     func(c *modeltest.Config) { c.Hidden *= 2 },
	} {
		c := modeltest.Default()
		change(&c)
		dir := t.TempDir()
		if err := modeltest.Write(dir, c, 1); err != nil {
			t.Fatal(err)
		}
		x := openTarget(t, dir)
		var e ExportConfig
		for _, err := range []error{x.Fits(d), e.For(t.Context(), d, x)} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d and %d", c.Hidden, c.Vocab)) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		if _, err := d.Import(t.Context(), filepath.Join(t.TempDir(), "out"), x, true); err == nil {
			t.Errorf("another %s: imported", name)
		}
	}
}

func TestAnExportUsesTheEmbeddingOfItsTarget(t *testing.T) {
	dir, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, nil))
	c := DefaultExport()
	r, err := d.Predict(c)
	if err != nil || len(r.Problems) == 0 || r.Problems[0].Grade != Refuses || !strings.HasPrefix(r.String(), "problem: EAGLE's loader would refuse it: ") {
		t.Fatalf("without an embedding %v, %v", r, err)
	}
	if err := c.For(t.Context(), d, openTarget(t, dir)); err != nil {
		t.Fatal(err)
	}
	if r, err = d.Predict(c); err != nil || slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Grade != Note }) || !strings.HasSuffix(r.String(), "no problems with the format eagle\n") {
		t.Errorf("with the target's %v, %v", r, err)
	}
	out, r := export(t, d, c)
	if e, ok := openDraft(t, out).Tensor("embed_tokens.weight"); !ok || string(e.Data) != string(embedOf(t, m).Data) {
		t.Error("the exported embedding is not the target's")
	}
	if want := fmt.Sprintf("%s: %d tensors, ", out, len(d.Tensors)+1); !strings.Contains(r.String(), want) || !strings.HasSuffix(r.String(), " as eagle: model.safetensors, README.md, config.json\n") {
		t.Errorf("export says %q, want %q", r, want)
	}
}

func TestAPathIsAHeadOrRefused(t *testing.T) {
	dir, m := target(t, modeltest.Default())
	head := writeHead(t, m, func(s *arch.Spec) { s.FCBias = true })
	d, err := FindDraft(t.Context(), head)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Dir != head || !d.Spec.FCBias {
		t.Errorf("found %s", d.Dir)
	}
	for path, want := range map[string]string{dir: "not a draft head", t.TempDir(): "neither a config.json nor"} {
		if _, err := FindDraft(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
