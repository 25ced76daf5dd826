package data_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"talf/data"
)

// plainRow is a row as testdata/check_shards.py compares it: floats are given as
// integers with the same bits.
type plainRow struct {
	Tokens     []int32  `json:"tokens"`
	LossMask   []bool   `json:"loss_mask"`
	TreeToken  []int32  `json:"tree_token"`
	TreeParent []int32  `json:"tree_parent"`
	LabelID    []int32  `json:"label_id,omitempty"`
	LabelProb  []uint32 `json:"label_prob,omitempty"`
	LabelTail  []uint32 `json:"label_tail,omitempty"`
	LabelFull  []uint32 `json:"label_full,omitempty"`
	Feature    []int    `json:"feature,omitempty"` // bytes
}

func bits(x []float32) (out []uint32) {
	for _, v := range x {
		out = append(out, math.Float32bits(v))
	}
	return out
}

// TestExportForOtherReaders writes sets of every kind, and their rows as Go reads them,
// to the directory named by TALF_EXPORT. testdata/check_shards.py reads them with
// pyarrow and DuckDB.
func TestExportForOtherReaders(t *testing.T) {
	dir := os.Getenv("TALF_EXPORT")
	if dir == "" {
		t.Skip("TALF_EXPORT is not set; testdata/check_shards.py sets it")
	}
	for _, m := range []data.Meta{meta(data.TopK, data.BF16), meta(data.TopK, data.None), meta(data.Full, data.BF16), meta(data.Full, data.None)} {
		name := filepath.Join(dir, string(m.Labels)+"-"+string(m.Features))
		var out []plainRow
		for _, r := range build(t, name, m, 50, 20, data.WriterOptions{RowGroup: 20_000}) {
			p := plainRow{
				Tokens: r.Tokens, LossMask: r.LossMask, TreeToken: r.TreeTokens, TreeParent: r.TreeParents, LabelID: r.LabelIDs,
				LabelProb: bits(r.LabelProbs), LabelTail: bits(r.Tail), LabelFull: bits(r.LabelFull),
			}
			for _, b := range r.Features {
				p.Feature = append(p.Feature, int(b))
			}
			out = append(out, p)
		}
		raw, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name+".json", raw, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
