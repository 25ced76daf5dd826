package prefix_test

import (
	"testing"

	"talf/compute/cpu"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/modeltest"
)

// Of prompts that share a beginning, the first is read and the second, which shows where they part, is read again; the
// third goes on there, whose windows the second has kept. A prompt that continues another goes on at its end.
func TestAPlaceIsKeptWherePromptsPart(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Of("gemma3_text")
	m, err := model.Load(modeltest.Random(t, conf, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := prefix.Of(m, 8)
	if l := c.Limit(); l.PerWindow*2 != l.PerToken || l.Window < 4*conf.Window {
		t.Errorf("limit %+v, want half of a token's bytes in layers with windows", l)
	}
	read := func(prompt []int32) (kept int) {
		s := m.NewSeq()
		k, n := c.FindOf(prefix.Owner{}, prompt[:len(prompt)-1])
		if n > 0 {
			s.Close()
			s = k.Fork()
			s.Truncate(n)
		}
		prefix.Mark(c, prefix.Owner{}, prompt, n, s)
		for from := n; from < len(prompt); from += 16 {
			if _, err := s.Append(t.Context(), prompt[from:min(from+16, len(prompt))], nil, model.WantNone); err != nil {
				t.Fatal(err)
			}
		}
		c.PutOf(prefix.Owner{}, prompt, s)
		return n
	}
	prompt := func(own int32) []int32 {
		p := make([]int32, 350)
		for i := range p {
			if p[i] = int32(i % 50); i >= 150 {
				p[i] = own
			}
		}
		return p
	}
	for i, want := range []int{0, 0, 150, 150} {
		if n := read(prompt(60 + int32(i))); n != want {
			t.Errorf("prompt %d goes on after %d tokens, want %d", i, n, want)
		}
	}
	if n := read(append(prompt(60), 1, 2, 3)); n != 350 {
		t.Errorf("a prompt that continues the first goes on after %d tokens, want 350", n)
	}
	c.Bound(prefix.Limit{})
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d blocks in use after the cache is empty", used)
	}
}
