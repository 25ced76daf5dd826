package quantize

import (
	"slices"
	"testing"

	"talf/compute"
	"talf/model/safetensors"
)

func TestOnlyMatricesOfWeightsAreConverted(t *testing.T) {
	for _, c := range []struct {
		name, dtype string
		shape       []int
		q8, bf16    []string // types of the tensors that replace it; none: unchanged
	}{
		{"a.weight", "F32", []int{4, 64}, []string{"I8", "F16"}, []string{"BF16"}},
		{"a.weight", "F16", []int{4, 64}, []string{"I8", "F16"}, []string{"BF16"}},
		{"a.weight", "BF16", []int{4, 64}, []string{"I8", "F16"}, nil},
		{"a.weight", "I8", []int{4, 64}, nil, nil},
		{"norm.weight", "F32", []int{64}, nil, nil},
		{"a.bias", "F32", []int{64}, nil, nil},
		{"attention.masked_bias", "F32", []int{4, 64}, nil, nil},
	} {
		for as, want := range map[compute.DType][]string{compute.Q8: c.q8, compute.BF16: c.bf16} {
			var got []string
			for _, p := range planned(safetensors.Tensor{Name: c.name, DType: c.dtype, Shape: c.shape}, as) {
				got = append(got, p.DType)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s %v as %v becomes %v, want %v", c.name, c.dtype, c.shape, as, got, want)
			}
		}
	}
}
