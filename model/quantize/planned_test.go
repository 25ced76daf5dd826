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
		q4          []string
	}{
		{"a.weight", "F32", []int{4, 64}, []string{"I8", "F16"}, []string{"BF16"}, []string{"U8"}},
		{"a.weight", "F16", []int{4, 64}, []string{"I8", "F16"}, []string{"BF16"}, []string{"U8"}},
		{"a.weight", "BF16", []int{4, 64}, []string{"I8", "F16"}, nil, []string{"U8"}},
		{"a.weight", "F32", []int{4, 70}, []string{"I8", "F16"}, []string{"BF16"}, []string{"I8", "F16"}},
		{"a.weight", "Q4_K", []int{4, 256}, []string{"I8", "F16"}, []string{"BF16"}, []string{"U8"}},
		{"a.weight", "Q6_K", []int{4, 256}, []string{"I8", "F16"}, []string{"BF16"}, []string{"U8"}},
		{"a.weight", "Q3_K", []int{4, 256}, []string{"I8", "F16"}, []string{"BF16"}, []string{"I8", "F16"}},
		{"a.weight", "I8", []int{4, 64}, nil, nil, nil},
		{"norm.weight", "F32", []int{64}, nil, nil, nil},
		{"a.bias", "F32", []int{64}, nil, nil, nil},
		{"attention.masked_bias", "F32", []int{4, 64}, nil, nil, nil},
	} {
		for as, want := range map[compute.DType][]string{compute.Q8: c.q8, compute.BF16: c.bf16, compute.Q4: c.q4} {
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
