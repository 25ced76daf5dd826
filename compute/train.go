package compute

import (
	"cmp"
	"fmt"
)

// Mat is a matrix inside a buffer for Gemm: op(M) is [Rows][Cols]. T says that
// it is stored transposed, [Cols][Rows]. Element (i,j) of the stored matrix is
// Buf[Off + i·Stride + j].
type Mat struct {
	Buf        Buffer
	Off        int
	Rows, Cols int
	Stride     int
	T          bool
}

// TrainAttention is the geometry of tree attention in training. Queries of one
// level attend to the level-0 rows [First[r], Last[r]] (the true prefix of their
// own sequence) and then to one row of each deeper level, Anc[j][r] of level j+1.
// The own row is the last of these; on level 0 it is Last[r] and Anc is empty.
// Rows of one sequence are consecutive on every level. Deeper levels may share their
// buffers: then no query attends to a row through two of them.
type TrainAttention struct {
	Heads, KVHeads, HeadDim int
	// First is the same for all rows of a sequence or, with Abilities.Block, that of the first row
	// or more: see BlockOps.
	First, Last []int32   // [rows]
	Anc         [][]int32 // [level][rows]; −1, with Abilities.Block: the query has no key there
}

// SoftLabels are target distributions of rows: K most likely tokens, and the
// rest of the mass as one tail bucket. A row's IDs are distinct; negative ones
// pad it, with Prob 0.
type SoftLabels struct {
	K    int
	IDs  []int32   // [rows][K]
	Prob []float32 // [rows][K]
	Tail []float32 // [rows]; nil ignores the tail
	Full []float32 // [rows][V]: the whole distribution; IDs and Prob are unused
}

// Check reports what l lacks for rows of a vocabulary.
func (l *SoftLabels) Check(vocab, rows int) error {
	short := func(what string, got, want int) error {
		if got < want {
			return fmt.Errorf("len(%s) is %d, want %d", what, got, want)
		}
		return nil
	}
	if l.Full != nil {
		return short("Full", len(l.Full), rows*vocab)
	}
	err := cmp.Or(short("IDs", len(l.IDs), rows*l.K), short("Prob", len(l.Prob), rows*l.K))
	if l.Tail != nil {
		err = cmp.Or(err, short("Tail", len(l.Tail), rows))
	}
	if err != nil {
		return err
	}
	for i, id := range l.IDs[:rows*l.K] {
		if int(id) >= vocab || (id < 0 && l.Prob[i] != 0) {
			return fmt.Errorf("row %d: id %d with probability %g, vocabulary of %d", i/l.K, id, l.Prob[i], vocab)
		}
	}
	return nil
}

// AdamW are the constants of one update. Bias corrections use Step from 1.
type AdamW struct {
	LR, Beta1, Beta2, Eps, Decay float32
	Scale                        float32 // multiplies the gradient first: clipping
	Step                         int
}

// TrainOps are gradients and updates. Gradients are overwritten unless a comment
// says added. Every sum over rows
// runs in fixed blocks of rows, so results do not depend on the thread count.
type TrainOps interface {
	// Host makes data usable as a buffer of this device without a copy where
	// the device shares the host's memory.
	Host(data []float32, shape ...int) Buffer
	// Gemm computes c = op(a)·op(b) + beta·c, beta 0 or 1.
	Gemm(c, a, b Mat, beta float32)
	// Add computes dst = a + b over the first n elements; dst may be a or b.
	Add(dst, a, b Buffer, n int)
	// AddBias adds bias [W] to each of the first n rows of x [n][W].
	AddBias(x, bias Buffer, n int)
	// SumRows sets dst [W] to the sum of the first n rows of x [n][W].
	SumRows(dst, x Buffer, n int)
	// NormGrad computes dx and, if dw is not nil, dw of Norm.
	NormGrad(dx, dw, dy, x, weight Buffer, eps float32, n int)
	// Rope rotates the first heads·headDim columns of x [n][W] from column col
	// at pos[r], backwards (the gradient) if inverse.
	Rope(x Buffer, col, heads, headDim int, rope Buffer, pos []int32, inverse bool, n int)
	// SwiGLUGrad computes dgu [n][2F] of SwiGLU.
	SwiGLUGrad(dgu, dy, gu Buffer, n int)
	// TreeAttend computes o [n][Heads·HeadDim] and lse [n][Heads] (log Σ exp of
	// the scaled scores) from q [n][Heads·HeadDim] and the levels' keys and
	// values k[j], v[j] [rows_j][KVHeads·HeadDim], level 0 first, own level last.
	TreeAttend(o, lse, q Buffer, k, v []Buffer, g *TrainAttention)
	// TreeAttendGrad computes dq and adds to dk[j] and dv[j].
	TreeAttendGrad(dq Buffer, dk, dv []Buffer, do, o, lse, q Buffer, k, v []Buffer, g *TrainAttention)
	// SoftCE computes loss[r] = −Σ p·log softmax(h[r]·wᵀ) and dh[r] =
	// scale[r]·∂loss[r]/∂h[r], in chunks of rows: logits are never kept. With
	// labels.Tail the tail is one bucket, tail·log(1−Σ_topK q). If dw is not nil
	// [V][H], Σ_r scale[r]·∂loss[r]/∂w is added to it. Rows with scale 0 give
	// their loss and a zero gradient. A Weight of a device that trains is also a
	// Buffer [Out][In]: as w it costs no packing, so a frozen LM head is best
	// given so.
	SoftCE(loss, dh, dw, h, w Buffer, labels *SoftLabels, scale []float32, n int)
	// Probs writes the distributions softmax(h[r]·wᵀ) to dst [n][V], in the host's memory, and
	// returns when they are there. h and w are as SoftCE takes them.
	Probs(dst []float32, h, w Buffer, n int)
	// LabelProbs writes what Probs gives to tokens ids [n][k] to dst [n][k], 0 for negative ids, and
	// to rest [n] what it gives to all other tokens together, which is summed, not subtracted.
	LabelProbs(dst, rest []float32, h, w Buffer, ids []int32, k, n int)
	// SmoothL1 computes loss[r] = mean over columns of SmoothL1(y−t), and dy[r] =
	// scale[r]·∂loss[r]/∂y; l1 takes |y−t| instead.
	SmoothL1(loss, dy, y, t Buffer, scale []float32, l1 bool, n int)
	// EmbedGrad adds dy[r][col:col+W] to row ids[r] of dtable [V][W], rows in
	// ascending r.
	EmbedGrad(dtable, dy Buffer, col int, ids []int32)
	// SumSquares returns Σ g² over fixed blocks, in float64, the buffers' sums
	// added in order.
	SumSquares(g ...Buffer) float64
	// AdamW updates p, m and v by gradient g: decoupled decay, then the step.
	AdamW(p, g, m, v Buffer, h AdamW)
}

// BlockOps are what training block heads takes beyond TrainOps. A queue that has them computes
// TrainAttention also with ancestors −1, and with windows: rows of a sequence whose First is more
// than that of its first row, and at most the largest Last of the rows before. Rows whose First is
// larger than that begin a sequence, whose keys no row of another sequence sees.
type BlockOps interface {
	// Mul sets the first n elements of dst to a·b; dst may be a or b.
	Mul(dst, a, b Buffer, n int)
	// Gate sets the first n elements of dst to σ(gate)·x.
	Gate(dst, gate, x Buffer, n int)
	// GateGrad computes dgate and dx of Gate.
	GateGrad(dgate, dx, dy, gate, x Buffer, n int)
	// Logistic computes loss[r] = −label[r]·log σ(x[r]) − (1−label[r])·log(1−σ(x[r])) and dx[r] =
	// scale[r]·∂loss[r]/∂x[r].
	Logistic(loss, dx, x Buffer, label, scale []float32, n int)
	// Convolve computes y [n][W] of rows x [n][W] in blocks, where the row before a block's first is 0:
	//
	//	y_t = (base_0 + k_t0)·x_t + (base_1 + k_t1)·x_{t−1}
	//
	// coef [n][…] has k_t0 and then k_t1 from column c.Col on, each element for c.Group channels, and base
	// base_0 and then base_1 from element c.Base on.
	Convolve(y, x, coef, base Buffer, c Taps, n int)
	// ConvolveGrad computes dx, sets the columns of dcoef, and adds to dbase.
	ConvolveGrad(dx, dcoef, dbase, dy, x, coef, base Buffer, c Taps, n int)
	// Candidates writes the k columns of h·wᵀ with the largest values to ids [n][k], best first, and returns
	// when they are there.
	Candidates(ids []int32, h, w Buffer, k, n int)
	// CandidateCE computes loss[r] = −Σ_i p[r][i]·log softmax_i(h[r]·w[ids[r][i]]) over k rows of w alone, dh as
	// SoftCE does, and adds the gradient by w to dw.
	CandidateCE(loss, dh, dw, h, w Buffer, ids []int32, p, scale []float32, k, n int)
}

// Taps say where Convolve finds its coefficients.
type Taps struct{ Col, Group, Base, Block int }

// Remote is the memory of a device that does not share the host's: what
// TrainOps.Host returns there is a copy, and the two are independent afterwards.
type Remote interface {
	// Alloc returns a zeroed buffer.
	Alloc(t DType, shape ...int) (Buffer, error)
	// View returns the first elements of b in another shape. It shares b's memory.
	View(b Buffer, shape ...int) Buffer
	// Clear sets the first n elements of b to zero.
	Clear(b Buffer, n int)
}

// A Stasher keeps values in bfloat16 while nothing reads them.
type Stasher interface {
	// Stash returns room for n elements: a BF16 buffer [n].
	Stash(n int) Buffer
	// Narrow sets the first n elements of dst, which Stash returned, to those of src,
	// an F32 buffer, rounded to the nearest, ties to even. A NaN stays a NaN.
	Narrow(dst, src Buffer, n int)
	// Widen sets the first n elements of dst, an F32 buffer, to those of src, which
	// Stash returned, exactly.
	Widen(dst, src Buffer, n int)
}
