package micro

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"talf/model/arch"
	"talf/model/safetensors"
)

// Sizes of a block of Q4_0: a float16 scale, and two elements in each of the other bytes.
const (
	blockElems = 32
	blockBytes = 18
)

// FourBit returns random weights in which matrices whose rows fill whole blocks are in Q4_0, as GGUF files
// have them: integers of −8 to 7, all as likely, times the power of two that brings their deviation closest to
// that of RandomWeights. All else, routers and gates of recurrent layers too, is that of set.
func FourBit(s *arch.Spec, set *safetensors.Set) *safetensors.Set {
	var all []safetensors.Tensor
	for i, t := range s.Tensors() {
		x, _ := set.Tensor(t.Name)
		if t.Cols > 0 && t.Cols%blockElems == 0 && t.Role != arch.Router && t.Role != arch.DeltaGates && t.Role != arch.DeltaConv {
			x = safetensors.Tensor{Name: t.Name, DType: "Q4_0", Shape: []int{t.Rows, t.Cols}, Data: q4(t.Rows, t.Cols, uint64(i))}
		}
		all = append(all, x)
	}
	return set.With(all...)
}

// q4 returns random blocks of a matrix.
func q4(rows, cols int, seed uint64) []byte {
	const deviation = 4.61 // of integers of −8 to 7
	exponent := int(math.Round(math.Log2(1 / (deviation * math.Sqrt(float64(cols))))))
	scale := uint16(exponent+15) << 10 // a power of two in float16
	r := rand.New(rand.NewPCG(seed, 4))
	data := make([]byte, rows*cols/blockElems*blockBytes)
	for at := 0; at < len(data); at += blockBytes {
		binary.LittleEndian.PutUint16(data[at:], scale)
		binary.LittleEndian.PutUint64(data[at+2:], r.Uint64())
		binary.LittleEndian.PutUint64(data[at+10:], r.Uint64())
	}
	return data
}
