package safetensors

import "context"

// convertStep is how many elements Convert takes between two looks at its context: whole blocks of every type.
const convertStep = 1 << 20

// Convert returns t as encode, F32 or BF16, has it. It ends soon after ctx does.
func Convert(ctx context.Context, t Tensor, encode func(name string, x []float32, shape ...int) Tensor) (Tensor, error) {
	n := t.Len()
	out := encode(t.Name, nil, 0)
	out.Shape = t.Shape
	out.Data = make([]byte, 0, out.Size())
	for at := 0; at < n; at += convertStep {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		k := min(convertStep, n-at)
		part := Tensor{Name: t.Name, DType: t.DType, Shape: []int{at}}
		from := part.Size()
		part.Shape[0] = k
		part.Data = t.Data[from:][:part.Size()]
		x, err := part.Float32s()
		if err != nil {
			return out, err
		}
		out.Data = append(out.Data, encode(t.Name, x, k).Data...)
	}
	return out, nil
}
