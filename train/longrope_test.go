package train

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/data"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// digits is a tokenizer whose texts are decimal ids.
type digits struct{}

func (digits) Encode(text string, _ bool) (ids []int32, err error) {
	for _, f := range strings.Fields(text) {
		var id int32
		if _, err := fmt.Sscan(f, &id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Features are the same bits wherever they come from, also of texts around the length at which longrope turns all positions
// otherwise, where trees reach beyond it.
func TestFeaturesAroundTheSwitchOfLongropeMayBeRecomputed(t *testing.T) {
	const at = 24
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original, conf.EOS = 0, at, -1
	m, err := model.Load(modeltest.Random(t, conf, 5), device(t, 2), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var text strings.Builder
	rng := rand.New(rand.NewPCG(8, 9))
	for n := at - 8; n < at+8; n++ {
		for range n {
			fmt.Fprint(&text, rng.IntN(conf.Vocab), " ")
		}
		text.WriteString("\n\n")
	}
	file := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	c := preprocess.Default()
	c.Files, c.Out, c.Depth, c.K, c.TopK = []string{file}, t.TempDir(), 4, 2, 2
	if _, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: digits{}}); err != nil {
		t.Fatal(err)
	}
	set, err := data.Open(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	r, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	lengths := map[int]bool{}
	for range 16 {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		lengths[len(rec.Tokens)] = true
		h := &headTask{job: HeadJob{Target: m, Features: FeaturesRecompute}, meta: set.Meta()}
		got, err := h.features(t.Context(), rec, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(data.AppendBF16(nil, got)) != string(rec.Features) {
			t.Errorf("a text of %d tokens has other features when they are recomputed", len(rec.Tokens))
		}
	}
	if len(lengths) != 16 {
		t.Errorf("%d lengths, want 16", len(lengths))
	}

	// Texts of at most the switch are short ones, their last trees included.
	c.MaxLen, c.Out = at, t.TempDir()
	if _, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: digits{}}); err != nil {
		t.Fatal(err)
	}
	cut, err := data.Open(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	if r, err = cut.Sequential(data.Everything()); err != nil {
		t.Fatal(err)
	}
	longest := 0
	for rec, err := r.Next(); err != io.EOF; rec, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, len(rec.Tokens))
	}
	if want := at - (c.Depth - 1); longest != want {
		t.Errorf("with --max-len %d the longest text has %d tokens, want %d", at, longest, want)
	}
}
