package safetensors

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"talf/model/ggml"
)

// However many steps it takes, a conversion is that of all elements at once, and it ends with its context.
func TestConvertHasTheElementsOfTheWhole(t *testing.T) {
	x := make([]float32, convertStep+768)
	for i := range x {
		x[i] = float32(i%4099)/256 - 8
	}
	q := ggml.Blocks("Q4_0")
	blocks := Tensor{Name: "blocks", DType: q.Name, Shape: []int{len(x) / 256, 256}, Data: make([]byte, len(x)/q.Elems*q.Size)}
	q.Encode(blocks.Data, x)
	for _, from := range []Tensor{F32("f32", x, 2, len(x)/2), BF16("bf16", x, len(x)), blocks, F32("one", x[:1]), F32("none", nil, 0, 7)} {
		elements, err := from.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for _, encode := range []func(string, []float32, ...int) Tensor{F32, BF16} {
			want := encode(from.Name, elements, from.Shape...)
			got, err := Convert(t.Context(), from, encode)
			if err != nil || got.DType != want.DType || !bytes.Equal(got.Data, want.Data) || got.Len() != want.Len() || len(got.Shape) != len(want.Shape) {
				t.Errorf("%s to %s: %v, or other elements", from.Name, want.DType, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Convert(ctx, blocks, F32); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
