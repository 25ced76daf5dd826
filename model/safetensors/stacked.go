package safetensors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/internal/limits"
	"talf/model/ggml"
)

// A view is a tensor that is made from parts of others each time that it is asked for.
type view struct {
	from [][]byte // what it reads
	make func() []byte
}

// The tensors of all E experts of a layer, as gpt-oss is published, of hidden size H and F elements
// between the projections.
//
//	gate_up_proj         [E][H][2F]            input first
//	gate_up_proj_blocks  [E][2F][H/32][16] U8  MXFP4, output first: two values a byte, the first in the low nibble
//	gate_up_proj_scales  [E][2F][H/32] U8      exponents, 127 for 1
//	gate_up_proj_bias    [E][2F]
//
// and so down_proj, with H in place of 2F and F in place of H. Of gate_up_proj's outputs the even
// ones are gate's and the odd ones up's.
const (
	stackedGateUp = ".mlp.experts.gate_up_proj"
	stackedDown   = ".mlp.experts.down_proj"
)

// A share says which outputs of a stacked tensor a projection has: each step-th from first on.
type share struct {
	name        string
	first, step int
}

var shares = map[string][]share{
	stackedGateUp: {{"gate_proj", 0, 2}, {"up_proj", 1, 2}},
	stackedDown:   {{"down_proj", 0, 1}},
}

// takeApart replaces the tensors of all experts of a layer by those of each expert, as other
// families have them: "….mlp.experts.3.gate_proj.weight" and its bias. Blocks of MXFP4 are in the
// order of GGUF's then, with the same values. Matrices that are stored in blocks of 4-bit integers get the
// names that a GGUF file gives them.
func (s *Set) takeApart() error {
	for _, name := range s.names {
		for stack, all := range shares {
			layer, ok := strings.CutSuffix(name, stack+"_bias")
			if !ok {
				continue
			}
			if err := s.split(layer, stack, all); err != nil {
				return fmt.Errorf("%s: %w", s.File(name), err)
			}
		}
	}
	blocks, err := s.blocks()
	if err != nil {
		return err
	}
	if len(s.views) > 0 || blocks {
		s.names = slices.Sorted(maps.Keys(s.tensors))
	}
	return nil
}

// BlocksSuffix returns what the name of a matrix in blocks of a type, such as "Q4_K", ends in in a file,
// where it is U8 [rows][bytes of a row's blocks]: "X.weight" is stored as "X.weight_q4_k".
func BlocksSuffix(dtype string) string { return "_" + strings.ToLower(dtype) }

// blocks gives matrices that are stored in blocks their names, types and shapes, and says whether
// there are any.
func (s *Set) blocks() (some bool, err error) {
	for _, b := range ggml.Kept() {
		for _, stored := range s.names {
			name, ok := strings.CutSuffix(stored, ".weight"+BlocksSuffix(b.Name))
			if !ok {
				continue
			}
			name += ".weight"
			t := s.tensors[stored]
			if t.DType != "U8" || len(t.Shape) != 2 || t.Shape[1]%b.Size != 0 {
				return false, fmt.Errorf("%s: tensor %q is %s of shape %v, want U8 of [rows][bytes], whole blocks of %d bytes", s.File(stored), stored, t.DType, t.Shape, b.Size)
			}
			if _, dup := s.tensors[name]; dup {
				return false, fmt.Errorf("%s: tensor %q is there beside %q, which has the same weights", s.File(stored), name, stored)
			}
			s.tensors[name] = Tensor{Name: name, DType: b.Name, Shape: []int{t.Shape[0], t.Shape[1] / b.Size * b.Elems}, Data: t.Data}
			if f, ok := s.files[stored]; ok {
				s.files[name] = f
			}
			delete(s.tensors, stored)
			some = true
		}
	}
	return some, nil
}

// apart returns s after takeApart, or closes it.
func (s *Set) apart() (*Set, error) {
	if err := s.takeApart(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// split takes the stacked tensors of one layer and projection apart.
func (s *Set) split(layer, stack string, all []share) error {
	bias := s.tensors[layer+stack+"_bias"]
	if len(bias.Shape) != 2 || sizes[bias.DType] == 0 {
		return fmt.Errorf("tensor %q is %s of shape %v, want floating-point numbers of [experts][outputs]", bias.Name, bias.DType, bias.Shape)
	}
	experts, outs := bias.Shape[0], bias.Shape[1]
	if outs%len(all) != 0 || len(s.tensors)+2*len(all)*experts > limits.Tensors {
		return fmt.Errorf("tensor %q has shape %v, want an even number of outputs and at most %d tensors of all experts", bias.Name, bias.Shape, limits.Tensors)
	}
	var matrix func(e int, of share) (Tensor, view)
	names := []string{bias.Name}
	if w, ok := s.tensors[layer+stack]; ok {
		if len(w.Shape) != 3 || w.Shape[0] != experts || w.Shape[2] != outs || sizes[w.DType] == 0 {
			return fmt.Errorf("tensor %q is %s of shape %v, want floating-point numbers of [%d][inputs][%d], as its bias says", w.Name, w.DType, w.Shape, experts, outs)
		}
		names = append(names, w.Name)
		matrix = func(e int, of share) (Tensor, view) { return transposed(w, e, of) }
	} else {
		q, ok := s.tensors[layer+stack+"_blocks"]
		if !ok {
			return fmt.Errorf("no tensor %q or %q, want the weights that %q belongs to", layer+stack, layer+stack+"_blocks", bias.Name)
		}
		if q.DType != "U8" || len(q.Shape) != 4 || q.Shape[0] != experts || q.Shape[1] != outs || q.Shape[3] != 16 {
			return fmt.Errorf("tensor %q is %q of shape %v, want U8 of [%d][%d][blocks][16], as its bias says", q.Name, q.DType, q.Shape, experts, outs)
		}
		scales, ok := s.tensors[layer+stack+"_scales"]
		switch want := q.Shape[:3]; {
		case !ok:
			return fmt.Errorf("no tensor %q, want U8 of %v", layer+stack+"_scales", want)
		case scales.DType != "U8" || !slices.Equal(scales.Shape, want):
			return fmt.Errorf("tensor %q is %q of shape %v, want U8 of %v", scales.Name, scales.DType, scales.Shape, want)
		}
		names = append(names, q.Name, scales.Name)
		matrix = func(e int, of share) (Tensor, view) { return mxfp4(q, scales, e, of) }
	}
	if s.views == nil {
		s.views = make(map[string]view)
	}
	for e := range experts {
		for _, of := range all {
			module := fmt.Sprintf("%s.mlp.experts.%d.%s", layer, e, of.name)
			w, how := matrix(e, of)
			w.Name = module + ".weight"
			b := Tensor{Name: module + ".bias", DType: bias.DType, Shape: []int{outs / of.step}}
			row := bias.Rows(e, e+1).Data
			size := sizes[bias.DType]
			for _, made := range []struct {
				t Tensor
				v view
			}{{w, how}, {b, view{[][]byte{row}, func() []byte { return column(row, size, outs, of) }}}} {
				if _, dup := s.tensors[made.t.Name]; dup {
					return fmt.Errorf("tensor %q is there beside %q, which has the same weights", made.t.Name, bias.Name)
				}
				s.tensors[made.t.Name], s.views[made.t.Name] = made.t, made.v
				if f, ok := s.files[bias.Name]; ok {
					s.files[made.t.Name] = f
				}
			}
		}
	}
	for _, name := range names {
		delete(s.tensors, name)
	}
	return nil
}

// column returns the elements of a share of a row of n elements.
func column(row []byte, size, n int, of share) []byte {
	out := make([]byte, 0, n/of.step*size)
	for i := of.first; i < n; i += of.step {
		out = append(out, row[i*size:][:size]...)
	}
	return out
}

// transposed is an expert's matrix of one that has inputs first.
func transposed(w Tensor, e int, of share) (Tensor, view) {
	in, outs, size := w.Shape[1], w.Shape[2], sizes[w.DType]
	data := w.Rows(e, e+1).Data
	rows := outs / of.step
	// Some rows at a time: a line of memory that is read has elements of several.
	const some = 32
	return Tensor{DType: w.DType, Shape: []int{rows, in}}, view{[][]byte{data}, func() []byte {
		out := make([]byte, rows*in*size)
		for first := 0; first < rows; first += some {
			for c := range in {
				for r := first; r < min(first+some, rows); r++ {
					copy(out[(r*in+c)*size:][:size], data[(c*outs+of.first+r*of.step)*size:])
				}
			}
		}
		return out
	}}
}

// mxfp4 is an expert's matrix in GGUF's order: a block is a scale, then values 0 to 15 in the low
// nibbles and 16 to 31 in the high ones.
func mxfp4(q, scales Tensor, e int, of share) (Tensor, view) {
	b := ggml.Blocks("MXFP4")
	outs, n := q.Shape[1], q.Shape[2]
	blocks, exps := q.Rows(e, e+1).Data, scales.Rows(e, e+1).Data
	rows := outs / of.step
	return Tensor{DType: b.Name, Shape: []int{rows, n * b.Elems}}, view{[][]byte{blocks, exps}, func() []byte {
		out := make([]byte, rows*n*b.Size)
		at := out
		for r := range rows {
			from := (of.first + r*of.step) * n
			for i := range n {
				src, dst := blocks[(from+i)*16:][:16], at[:b.Size]
				dst[0] = exps[from+i]
				for j := range 8 {
					lo, hi := src[j], src[8+j]
					dst[1+2*j] = lo&15 | hi<<4
					dst[2+2*j] = lo>>4 | hi&0xf0
				}
				at = at[b.Size:]
			}
		}
		return out
	}}
}
