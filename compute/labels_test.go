package compute_test

import (
	"strings"
	"testing"

	"talf/compute"
)

// Labels are for two rows of a vocabulary of five.
func TestSoftLabelsThatLackSomethingAreRefused(t *testing.T) {
	ids, prob := []int32{0, 4, 1, -1}, []float32{0.5, 0.5, 0.9, 0}
	for _, c := range []struct {
		labels compute.SoftLabels
		want   string
	}{
		{compute.SoftLabels{K: 2, IDs: ids, Prob: prob, Tail: []float32{0, 0.1}}, ""},
		{compute.SoftLabels{K: 2, IDs: ids, Prob: prob}, ""},
		{compute.SoftLabels{Full: make([]float32, 10)}, ""},
		{compute.SoftLabels{Full: make([]float32, 9)}, "len(Full) is 9, want 10"},
		{compute.SoftLabels{K: 2, IDs: ids[:3], Prob: prob}, "len(IDs) is 3, want 4"},
		{compute.SoftLabels{K: 2, IDs: ids, Prob: prob[:2]}, "len(Prob) is 2, want 4"},
		{compute.SoftLabels{K: 2, IDs: ids, Prob: prob, Tail: []float32{0}}, "len(Tail) is 1, want 2"},
		{compute.SoftLabels{K: 2, IDs: []int32{0, 1, 2, 5}, Prob: prob}, "row 1: id 5 with probability 0"},
		{compute.SoftLabels{K: 2, IDs: []int32{0, -1, 2, 3}, Prob: prob}, "row 0: id -1 with probability 0.5"},
	} {
		if err := c.labels.Check(5, 2); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.labels, err, c.want)
		}
	}
}
