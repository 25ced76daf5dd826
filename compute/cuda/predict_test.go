//go:build gpu && linux && cgo

package cuda_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"talf/compute/cuda"
)

const predictionsFile = "../../docs/gpu/predictions.md"

var writePredictions = flag.Bool("predictions", false, "write docs/gpu/predictions.md")

// An H100 SXM as we take it to be: published rates, which docs/gpu/predictions.md repeats.
const (
	h100SMs       = 132
	h100Clock     = 1.755e9 // Hz
	h100Copy      = 3.0e12  // bytes per second of device memory
	h100L2        = 5.5e12  // bytes per second from L2 to the multiprocessors
	h100HMMA      = 613e12  // FLOP/s of mma.sync in bf16
	h100FMA       = h100SMs * 128 * 2 * h100Clock
	h100Issue     = h100SMs * 4 * h100Clock // instructions of warps per second
	h100Library   = 700e12                  // FLOP/s of cuBLAS in bf16
	h100Peak      = 989e12                  // FLOP/s of tensor cores in bf16, of wgmma
	h100Launch    = 1.5e-6                  // seconds between kernels of a graph that depend on each other
	h100Overlap   = 0.75e-6                 // seconds of it that remain where the second one begins early: an assumption
	h100Registers = 65536
	h100Shared    = 227 << 10
)

// fits returns the blocks of a multiprocessor. Registers go to warps in units of 256, shared memory
// to blocks in units of 128 bytes, behind 1024 of the driver's.
func (k *machineKernel) fits(threads int) int {
	registers, _ := strconv.Atoi(k.registers)
	shared, _ := strconv.Atoi(k.shared)
	warp := (registers*32 + 255) / 256 * 256
	return min(32, 2048/threads, h100Registers/(warp*threads/32), h100Shared/((shared+1024+127)/128*128))
}

// A cost is what a piece of work asks of every resource.
type cost struct {
	memory, l2   float64 // bytes
	tensor, fma  float64 // operations
	library      float64 // operations of cuBLAS
	instructions float64 // of warps, in hot loops
	kernels      float64
	chain        float64 // seconds of one thread's chain, which nothing hides
}

func (c cost) times(n float64) cost {
	return cost{c.memory * n, c.l2 * n, c.tensor * n, c.fma * n, c.library * n, c.instructions * n, c.kernels * n, c.chain * n}
}

func (c cost) plus(d cost) cost {
	return cost{c.memory + d.memory, c.l2 + d.l2, c.tensor + d.tensor, c.fma + d.fma, c.library + d.library, c.instructions + d.instructions, c.kernels + d.kernels, c.chain + d.chain}
}

// seconds returns what each resource needs: memory, L2, tensor cores, FMA and issue.
func (c cost) seconds() [5]float64 {
	return [5]float64{c.memory / h100Copy, c.l2 / h100L2, c.tensor/h100HMMA + c.library/h100Library, c.fma / h100FMA, c.instructions / h100Issue}
}

// gaps is the seconds between kernels, and of chains.
func (c cost) gaps() float64 { return c.kernels*h100Launch + c.chain }

// bound is the seconds of the resource that needs most, and of the gaps.
func (c cost) bound() float64 {
	s := c.seconds()
	return slices.Max(s[:]) + c.gaps()
}

// sum is the seconds where no memory is moved while tensor cores multiply.
func (c cost) sum() float64 {
	s := c.seconds()
	return s[0] + max(s[1], s[2], s[3], s[4]) + c.gaps()
}

// row formats c: seconds of each resource in milliseconds, and the one that is longest.
func (c cost) row(what string) string {
	names := []string{"memory", "L2", "tensor cores", "FMA", "issue"}
	seconds := c.seconds()
	longest := 0
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %.2f | %.2f |", what, c.memory/1e9, (c.tensor+c.fma+c.library)/1e12)
	for i, s := range seconds {
		fmt.Fprintf(&b, " %.2f |", 1e3*s)
		if s > seconds[longest] {
			longest = i
		}
	}
	gaps := c.gaps()
	fmt.Fprintf(&b, " %.2f | %s | %.2f | not measured |\n", 1e3*gaps, names[longest], 1e3*(seconds[longest]+gaps))
	return b.String()
}

// shapes of an 8B Llama.
const (
	shapeHidden, shapeQKV, shapeFFN, shapeVocab, shapeLayers = 4096, 6144, 14336, 128256, 32
	shapeHeads, shapeKVHeads, shapeDim                       = 32, 8, 128
)

// A predictor has the machine code for sm_90, and the planes of activations that weights meet.
type predictor struct {
	code   map[string]*machineKernel
	planes int
	wide   bool   // attention of the 16 heads of 256 elements and 8 of keys that Gemma 2 9B has
	format string // of weights, as kernels are named
}

// as is p for weights in another format.
func (p predictor) as(format string) predictor {
	p.format = format
	return p
}

// weightBytes are the bytes of a weight.
var weightBytes = map[string]float64{"bf16": 2, "q8": 17.0 / 16, "q4": 9.0 / 16, "q4k": 4.625 / 8, "q6k": 6.5625 / 8}

// linear is a product of n rows by a weight.
func (p predictor) linear(out, in, n int) cost {
	if p.planes == 1 {
		return p.single(out, in, n)
	}
	rows := 8
	for rows < n && rows < 64 {
		rows *= 2
	}
	kernel, outputs, blocks, loaded := "linear_"+p.format+"_", 32, (n+rows-1)/rows, rows
	if rows > 8 && cuda.Staged(h100SMs, blocks, out, in) {
		kernel, outputs = "staged_"+p.format+"_", 128
	}
	if rows == 8 && p.format != "bf16" {
		loaded = n // those that are there
	}
	hot := p.code[kernel+strconv.Itoa(rows)].hot()
	products := float64(count(hot, "HMMA"))
	weight := weightBytes[p.format] * float64(out) * float64(in)
	tensor := 2 * 2 * float64(out) * float64(in) * float64(rows) * float64(blocks) // two planes
	return cost{
		memory: weight, // other blocks of rows find it in L2
		l2:     float64(blocks) * (weight + float64(out/outputs)*float64(in)*float64(loaded)*4),
		tensor: tensor, instructions: tensor / (2 * 16 * 8 * 16) / products * float64(len(hot)),
		kernels: 2,
	}
}

// single is the same in one plane.
func (p predictor) single(out, in, n int) cost {
	kernel, rows, outputs := cuda.Single(h100SMs, out, n)
	blocks, launches := float64((n+rows-1)/rows), float64((n+cuda.SingleRows-1)/cuda.SingleRows)
	hot := p.code[kernel].hot()
	weight := 2 * float64(out) * float64(in)
	tensor := 2 * float64(out) * float64(in) * float64(rows) * blocks
	return cost{
		memory: launches * weight,
		l2:     blocks * (weight + float64(out/outputs)*float64(in)*float64(rows)*2),
		tensor: tensor, instructions: tensor / (2 * 16 * 8 * 16) / float64(count(hot, "HMMA")) * float64(len(hot)),
		kernels: 2 * launches,
	}
}

// attend is attention of n rows of one text, each after so many positions. Rows of a tree have the chunk behind the last whole
// one to themselves, half of it on average.
func (p predictor) attend(n, positions int, tree bool) cost {
	const chunk = 128
	group, heads, dim, kernel := shapeHeads/shapeKVHeads, shapeHeads, shapeDim, "attend_bf16_"
	if p.wide {
		group, heads, dim, kernel = 2, 16, 256, "attend_wide_bf16_"
	}
	keys := float64(2 * 2 * heads / group * dim)
	if n*group <= 16 {
		kernel += "16"
	} else {
		kernel += "64"
	}
	blocks, tiles, at := float64((n*group+63)/64), float64((n*group+15)/16), float64(positions)
	read, queries := keys*at*blocks, 16*tiles*at // of whole tiles, times positions
	if tree && n > 1 {
		read += keys * chunk / 2 * float64(n)
		queries += 16 * float64((group+15)/16) * chunk / 2 * float64(n)
	}
	rows := float64(n) * max(1, at/chunk) // for each chunk
	sums := float64(2*4*heads*(dim+2)) * rows
	products := 2 * 2 * queries * float64(heads/group*dim) / (16 * 8 * 16) // of queries and of weights, in two planes
	hot := p.code[kernel].hot()
	return cost{
		memory: keys*at + sums, l2: read + float64(4*heads*dim)*rows + sums,
		tensor: products * 2 * 16 * 8 * 16, instructions: products / float64(count(hot, "HMMA")) * float64(len(hot)),
		kernels: 3,
	}
}

func (p predictor) layer(n, positions int, tree bool) cost {
	return p.linear(shapeQKV, shapeHidden, n).plus(p.linear(shapeHidden, shapeHidden, n)).plus(p.linear(2*shapeFFN, shapeHidden, n)).
		plus(p.linear(shapeHidden, shapeFFN, n)).plus(p.attend(n, positions, tree))
}

func (p predictor) pass(n, positions int, tree bool) cost {
	top := cost{memory: 4 * shapeVocab * float64(n), kernels: 3}
	return p.layer(n, positions, tree).times(shapeLayers).plus(p.linear(shapeVocab, shapeHidden, n)).plus(top)
}

// file is a pass of a GGUF file as llama.cpp's quantizer makes them, in Q4_0 or, mixed, Q4_K_M, whose LM head is in Q6_K, and in the
// latter the values and the last product of the MLP of half of the layers.
func (p predictor) file(n, positions int, tree, mixed bool) cost {
	six := p.as("q6k")
	top := cost{memory: 4 * shapeVocab * float64(n), kernels: 3}.plus(six.linear(shapeVocab, shapeHidden, n))
	if !mixed {
		return top.plus(p.as("q4").layer(n, positions, tree).times(shapeLayers))
	}
	p = p.as("q4k")
	values := shapeKVHeads * shapeDim
	other := p.linear(shapeQKV-values, shapeHidden, n).plus(six.linear(values, shapeHidden, n)).plus(p.linear(shapeHidden, shapeHidden, n)).
		plus(p.linear(2*shapeFFN, shapeHidden, n)).plus(six.linear(shapeHidden, shapeFFN, n)).plus(p.attend(n, positions, tree))
	return top.plus(p.layer(n, positions, tree).plus(other).times(shapeLayers / 2))
}

// drawn draws a token for each of n rows, whose logits are still in L2. Half of a multiprocessor's units compute in double, so that such an
// instruction counts twice; one thread of a row adds and subtracts every bin, 8 cycles each.
func (p predictor) drawn(n int) cost {
	const bins = (shapeVocab + 127) / 128
	code := p.code["draw_bins"].code
	double := 0
	for _, in := range code {
		if strings.HasPrefix(in.op, "D") && !strings.HasPrefix(in.op, "DEP") {
			double++
		}
	}
	return cost{
		l2: 2 * 4 * shapeVocab * float64(n), instructions: float64(n) * shapeVocab / (16 * 32) * float64(len(code)+double),
		kernels: 3, chain: (2*bins + 4*128) * 8 / h100Clock,
	}
}

// shapeWeights is the number of weights that a pass multiplies by.
const shapeWeights = shapeLayers*(shapeQKV*shapeHidden+shapeHidden*shapeHidden+3*shapeFFN*shapeHidden) + shapeVocab*shapeHidden

// library is labelling of n rows: every product by cuBLAS, of weights that are unpacked for it.
func (p predictor) library(n, positions int) cost {
	c := cost{memory: 2 * 3 * shapeWeights, library: 2 * float64(p.planes) * shapeWeights * float64(n), kernels: 32 * 20}
	c.memory += 4 * shapeVocab * float64(n)
	return c.plus(p.attend(n, positions/2, false).times(shapeLayers)) // half of them on average
}

// The weights of a head of one layer of the shapes, and of the LM head.
const (
	headWeights = 2*shapeHidden*shapeHidden + shapeQKV*shapeHidden + shapeHidden*shapeHidden + 3*shapeFFN*shapeHidden
	lmWeights   = shapeVocab * shapeHidden
)

// train is a step of n positions of a head of one layer, forward and backward, whose products are shared out among kernels, each of so
// many operations in an instruction op, or cuBLAS's if op is "". Factors have so many bytes an element, logits are for so many rows at a time.
func (p predictor) train(n int, op string, flops, size float64, rows int, share map[string]float64) cost {
	work := (6*headWeights + 4*lmWeights) * float64(n)
	chunks := float64((n + rows - 1) / rows)
	c := cost{
		// The weights are read for the outputs and for the gradients of inputs; the LM head, for every chunk.
		memory:  2*size*headWeights + 4*(1+7)*headWeights + 2*size*chunks*lmWeights + (4*4+2*size)*shapeVocab*float64(n),
		l2:      work * size / side, // of tiles of 128 rows and columns
		kernels: 60,
	}
	if size < 4 {
		// Weights are written as copies, too. Factors are read and written: inputs of products, and gradients of their outputs.
		const inputs, gradients = 6*shapeHidden + shapeFFN, shapeQKV + 4*shapeHidden + 2*shapeFFN
		c.memory += size*headWeights + (4+size)*(inputs+gradients)*float64(n)
		c.kernels += 20
	}
	for name, part := range share {
		k := p.code[name]
		var hot []instruction
		for _, l := range k.loops() {
			if code := k.code[l[0]:l[1]]; count(code, op) >= 32 {
				hot = code
				break
			}
		}
		c.instructions += part * work / flops / float64(count(hot, op)) * float64(len(hot))
	}
	switch op {
	case "HMMA":
		c.tensor = work
	case "FFMA":
		c.fma = work
	case "":
		c.library, c.l2 = work, 0
	}
	return c
}

// treeAttend is attention of training over n positions in sequences of a length, and its gradient: outputs, gradients of queries, and
// of keys and values. On tensor cores, 16 lines or keys of a warp meet 32 of the other side in a turn of a loop.
func (p predictor) treeAttend(n, length int, half bool) cost {
	pairs := float64(n) * float64(length) / 2 * shapeHeads
	c := cost{memory: float64(n) * shapeDim * (4*shapeHeads + 4*shapeKVHeads) * 4, kernels: 4} // q, o, dq, do, and keys and values with theirs
	work := pairs * shapeDim * (4 + 6 + 8)
	if !half {
		c.fma = work
		// Keys and values are read for 16 and for 8 lines, lines and their gradients for 32 keys.
		c.l2 = pairs * 8 * shapeDim * (1.0/16 + 1.0/8 + 1.0/32)
		return c
	}
	c.tensor, c.l2 = work, pairs*4*shapeDim*3/64
	c.memory += float64(n) * shapeDim * (2*shapeHeads + 2*shapeKVHeads) * (4 + 2 + 2) // rounded
	c.kernels += 7
	for _, name := range []string{"tree_attend_half", "tree_queries_half", "tree_keys_half"} {
		k := p.code[name]
		turn := float64(len(k.hot()))
		if name == "tree_keys_half" { // has a loop over halves of a tile in it
			for _, l := range k.loops() {
				if code := k.code[l[0]:l[1]]; len(code) > len(k.hot()) && count(code, "HMMA") > 0 {
					turn += float64(len(code))
					break
				}
			}
		}
		c.instructions += pairs / (16 * 32) * turn
	}
	return c
}

// side is the rows and the columns of a block's tile of a product.
const side = 128

// predictions holds docs/gpu/predictions.md to what follows from the machine code and the shapes.
// -predictions writes it.
func predictions(t *testing.T, kernels []*machineKernel) {
	p := predictor{code: map[string]*machineKernel{}, planes: 2, format: "bf16"}
	var b bytes.Buffer
	b.WriteString(predictionsHead)
	for _, k := range kernels {
		p.code[k.name] = k
		threads := 256
		switch {
		case k.name == "single_bf16_16":
			threads = 64
		case strings.HasPrefix(k.name, "attend_") && k.name != "attend_sum", k.name == "tree_attend", k.name == "tree_queries", strings.HasSuffix(k.name, "_wide") && k.name != "tree_delta_wide" && k.name != "tree_nodes_wide",
			strings.HasSuffix(k.name, "_half"),
			k.name == "staged_bf16_64", k.name == "staged_q8_64", k.name == "staged_q4_64", k.name == "single_bf16_64", k.name == "single_bf16_128", strings.HasPrefix(k.name, "product_"):
			threads = 128
		case k.name == "tree_keys", strings.HasPrefix(k.name, "linear_"), strings.HasPrefix(k.name, "staged_"), strings.HasPrefix(k.name, "gemm_"), strings.HasPrefix(k.name, "topk_"), strings.HasPrefix(k.name, "draw_"), k.name == "split_rows", k.name == "split_sums", k.name == "round_rows", k.name == "single_bf16_256":
		default:
			continue
		}
		per := "–"
		if hot := k.hot(); hot != nil {
			per = fmt.Sprintf("%.1f", float64(len(hot))/float64(count(hot, "HMMA")))
		}
		n := k.fits(threads)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %d | %d%% | %s |\n", k.name, k.registers, k.shared, n, n*threads/32, 100*n*threads/2048, per)
	}
	b.WriteString(predictionsWork)
	head := p.linear(shapeHidden, 2*shapeHidden, 10).plus(p.layer(10, 1024, true)).plus(p.linear(shapeVocab, shapeHidden, 10)).plus(cost{memory: 10 * 4 * shapeVocab, kernels: 5})
	own := 6.0 * headWeights / (6*headWeights + 4*lmWeights) // of training's operations
	one, wide := p, p
	one.planes, wide.wide = 1, true
	eight := p.as("q8")
	var shares, gaps strings.Builder
	for _, w := range []struct {
		what string
		cost cost
		rows int // for which a share of the peak is given
		// whether its kernels begin early
		early bool
	}{
		{"decode, 1 row after 1024 positions", p.pass(1, 1024, false), 0, true},
		{"a tree of 16 rows", p.pass(16, 1024, true), 0, true},
		{"a tree of 60 rows", p.pass(60, 1024, true), 0, true},
		{"decode, 1 row after 32768 positions", p.pass(1, 32768, false), 0, true},
		{"a tree of 60 rows after 32768 positions", p.pass(60, 32768, true), 0, true},
		{"a draft step: a head of one layer, 10 rows", head, 0, true},
		{"tokens drawn for 1 row", p.drawn(1), 0, false},
		{"tokens drawn for 60 rows", p.drawn(60), 0, false},
		{"prefill, 512 rows, own products", p.pass(512, 256, false), 512, true},
		{"attention alone of it", p.attend(512, 256, false).times(shapeLayers), 0, false},
		{"labelling, 2048 rows, cuBLAS in two planes", p.library(2048, 2048), 2048, false},
		{"attention alone of it", p.attend(2048, 1024, false).times(shapeLayers), 0, false},
		{"attention alone of Gemma 2 9B: 1 row after 8192 positions", wide.attend(1, 8192, false).times(42), 0, false},
		{"attention alone of Gemma 2 9B: a tree of 60 rows after 8192 positions", wide.attend(60, 8192, true).times(42), 0, false},
		{"attention alone of Gemma 2 9B: prefill, 512 rows", wide.attend(512, 256, false).times(42), 0, false},
		{"q8: decode, 1 row after 1024 positions", eight.pass(1, 1024, false), 0, true},
		{"q8: a tree of 16 rows", eight.pass(16, 1024, true), 0, true},
		{"q8: a tree of 60 rows", eight.pass(60, 1024, true), 0, true},
		{"Q4_0: decode, 1 row after 1024 positions", p.file(1, 1024, false, false), 0, true},
		{"Q4_0: a tree of 16 rows", p.file(16, 1024, true, false), 0, true},
		{"Q4_0: a tree of 60 rows", p.file(60, 1024, true, false), 0, true},
		{"Q4_K_M: decode, 1 row after 1024 positions", p.file(1, 1024, false, true), 0, true},
		{"Q4_K_M: a tree of 16 rows", p.file(16, 1024, true, true), 0, true},
		{"Q4_K_M: a tree of 60 rows", p.file(60, 1024, true, true), 0, true},
		{"one plane: decode, 1 row after 1024 positions", one.pass(1, 1024, false), 0, true},
		{"one plane: a tree of 60 rows", one.pass(60, 1024, true), 0, true},
		{"one plane: prefill, 512 rows", one.pass(512, 256, false), 512, true},
		{"one plane: prefill, 2048 rows", one.pass(2048, 1024, false), 2048, false},
		{"one plane: labelling, 2048 rows, cuBLAS", one.library(2048, 2048), 2048, false},
		{"training a head, 4096 positions, f32", p.train(4096, "FFMA", 2*32, 4, 1<<26/shapeVocab, map[string]float64{"gemm_f32": own, "gemm_f32_packed": 1 - own}), 0, false},
		{"the same, bf16 that is rounded on load", p.train(4096, "HMMA", 2*16*8*16, 4, 1024, map[string]float64{"gemm_bf16": own, "gemm_bf16_packed": 1 - own}), 0, false},
		{"the same, bf16 of copies", p.train(4096, "HMMA", 2*16*8*16, 2, 1024, map[string]float64{
			"product_nt": own/3 + (1-own)/2, "product_nn": own/3 + (1-own)/2, "product_tn": own / 3,
		}), 0, false},
		{"the same, bf16 of copies, cuBLAS", p.train(4096, "", 0, 2, 1024, nil), 0, false},
		{"attention of it, sequences of 2048, f32", p.treeAttend(4096, 2048, false), 0, false},
		{"the same, bf16", p.treeAttend(4096, 2048, true), 0, false},
	} {
		b.WriteString(w.cost.row(w.what))
		if w.early {
			k := w.cost.kernels
			fmt.Fprintf(&gaps, "| %s | %.0f | %.2f | %.2f | %.2f | not measured |\n", w.what, k, 1e3*k*h100Launch, 1e3*k*h100Overlap, 1e3*(w.cost.bound()-k*(h100Launch-h100Overlap)))
		}
		if w.rows > 0 {
			work := 2 * shapeWeights * float64(w.rows) // in one plane, which is all that the model asks for
			bound, sum := w.cost.bound(), w.cost.sum()
			fmt.Fprintf(&shares, "| %s | %.0f%% | %.0f%% | %.0f%% | %.0f%% |\n", w.what,
				100*work/bound/h100Library, 100*work/bound/h100Peak, 100*work/sum/h100Library, 100*work/sum/h100Peak)
		}
	}
	b.WriteString(predictionsShares)
	b.WriteString(shares.String())
	b.WriteString(predictionsGaps)
	b.WriteString(gaps.String())
	b.WriteString(predictionsTail)
	if *writePredictions {
		if err := os.WriteFile(predictionsFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(predictionsFile); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the machine code gives (%v); -predictions writes it:\n%s", predictionsFile, err, &b)
	}
}

// The blocks of a multiprocessor are those that NVIDIA's occupancy calculator gives.
func TestBlocksOfAMultiprocessor(t *testing.T) {
	for _, c := range []struct{ registers, shared, threads, want int }{
		{32, 0, 256, 8}, {128, 0, 256, 2}, {70, 33796, 256, 3}, {255, 0, 256, 1}, {154, 27648, 128, 3}, {16, 100 << 10, 128, 2}, {16, 0, 32, 32},
	} {
		k := machineKernel{registers: strconv.Itoa(c.registers), shared: strconv.Itoa(c.shared)}
		if got := k.fits(c.threads); got != c.want {
			t.Errorf("%d registers and %d bytes, %d threads: %d blocks, want %d", c.registers, c.shared, c.threads, got, c.want)
		}
	}
}

const predictionsHead = `# Predictions for an H100

Nothing here has been measured. These are bounds to hold the first measurements against: what each resource needs if it
alone limited the work, from the shapes and from the machine code for sm_90. A kernel that is far slower than its bound
waits for something that the bound does not know, as a rule the latency of memory.

    PTXAS=… NVDISASM=… go test -tags gpu -run MachineCode ./compute/cuda -predictions

writes this file; without -predictions the test compares it. Both programs are those of ` + "`.ci/run cuda`" + `.

## Kernels

Registers and bytes of shared memory are ptxas's. Blocks and warps are those that fit a multiprocessor with 65,536
registers, 227 KiB of shared memory and 64 warps. The last column is instructions for one product of tensor cores
(m16n8k16) in the innermost loop with products, or in the whole of a kernel whose products are in no loop.

| kernel | registers | shared memory | blocks | warps | occupancy | instructions per product |
|---|---|---|---|---|---|---|
`

const predictionsWork = `
## Work

An 8B Llama: 32 layers of 4096, 32 heads and 8 of keys, 14,336 in the MLP, 128,256 tokens; weights, keys and values in
bf16 unless the line says otherwise. GB are bytes of device memory, TFLOP are all operations, all planes of activations
included. The next columns are milliseconds of each resource by itself; gaps are what lies between kernels.

| work | GB | TFLOP | memory | L2 | tensor cores | FMA | issue | gaps | limited by | bound, ms | measured, ms |
|---|---|---|---|---|---|---|---|---|---|---|---|
`

const predictionsShares = `
Of it, the operations of a model in one plane, 2 for each weight and row, as shares of cuBLAS's rate and of the dense
peak, 989 TFLOP/s: at the bound, and where nothing is moved to or from device memory while the longest of the others
works, which is nearer to what cuBLAS on unpacked weights does.

| work | bound, of cuBLAS's | bound, of the peak | in turn, of cuBLAS's | in turn, of the peak |
|---|---|---|---|---|
`

const predictionsGaps = `
With TALF_CUDA_OVERLAP=1 kernels of a pass of up to 512 rows begin before those in front have ended
([passes](../gpu.md#passes)). The table above takes the gaps of kernels that do not, which is what passes have without
it.

| work | kernels | gaps of kernels one after the other, ms | gaps of kernels that begin early, ms | bound with these, ms | measured, ms |
|---|---|---|---|---|---|
`

const predictionsTail = `
## Method

- Rates: 3.0 TB/s of a copy, 5.5 TB/s from L2, 613 TFLOP/s of mma.sync in bf16 (62% of the dense peak, which needs
  wgmma), 700 TFLOP/s of cuBLAS, 132 multiprocessors at 1.755 GHz with 128 FMA and 4 instructions of warps a cycle, 1.5
  µs between dependent kernels of a graph. All are published or commonly reported figures of the H100 SXM with HBM3.
- Gaps of kernels that begin early: of 1.5 µs, what lies before a kernel's first load of what the one in front stored is
  hidden: the launch of its blocks, their arguments and addresses. What remains is the end of the one in front, its
  stores becoming visible, and the wait's release. How long each of these takes is not published; half, 0.75 µs, is an
  assumption. A product of one row also asks for its first weights before it waits, 4 KB for each of eight warps with
  bf16; that less of its own time remains is left out.
- Products of few rows: a weight is read once from memory, and once from L2 for every block of rows. Rows' fragments, 4
  bytes an element, are read for each group of 32 outputs by ` + "`linear_…`" + `, and for 128 outputs by ` + "`staged_…`" + `, which serve
  nine or more rows where they occupy two thirds of the multiprocessors. Rows are rounded up to 8, 16, 32 or multiples
  of 64. Instructions are those of the hot loop alone.
- Weights of 8, 6 and 4 bits take 1.06, 0.82, 0.58 (Q4_K) and 0.56 (Q4_0) bytes. Their kernels for up to eight rows read
  the fragments of rows that are there. Of a Q4_0 file, the LM head is in Q6_K; of a Q4_K_M, also values and the last
  product of the MLP in half of the layers.
- One plane (` + "`--act-planes 1`" + `): the same, but rows' fragments have 2 bytes an element and are read for each block of
  outputs of ` + "`single_…`" + `, 64, 128 or 192. A block has 16, 64, 128 or 256 rows, of which the device takes the most that
  keep two thirds of the multiprocessors busy. An output is one chain over all inputs: with one row, what limits a step
  is not bandwidth alone but the time from one product of a chain to the next, which is left out here.
- Attention: keys and values are read once from memory, and once from L2 for every 64 queries (rows times the 4 heads of
  a group). Tiles are whole: 16 queries. Each row of a tree reads half a chunk of 128 positions by itself. 4 operations
  for each element of a head and position, in two planes. A chunk's sums, 130 numbers for each head and row, are written
  and read. Instructions are those of the whole kernel with all its tiles. Gemma 2 9B has 42 layers with 16 heads of 256
  elements and 8 of keys: each of its layers is taken as one without a window, and its soft caps are among the
  instructions. Prefill and labelling see half of their positions on average.
- Labelling: every weight is read, unpacked and read again; two planes double the products, but not those of attention,
  which has two always.
- Training: 6 operations for each weight of the head and 4 for each of the LM head, which does not learn. The head's
  weights are read for outputs, for gradients of inputs and by AdamW; it and the products read and write f32 gradients,
  weights and moments seven times in all. The LM head is read twice for a chunk of rows, 523 in f32 and 1024 in bf16;
  logits or their gradients are read or written six times. A block of a product reads 128 rows and 128 columns for as
  many results. Copies in bf16 are half of that, for factors that are read, rounded and written: weights by AdamW,
  gradients of logits with the loss, the rest by a kernel. What lies between products is left out: the four rows say
  what products ask for. What cuBLAS's products read from L2 is left out, too: its rate is that of whole products.
- Attention of training, for one level of a tree: half of a sequence's positions on average; 4 operations for each
  element of a head, line and key for the outputs, 6 for gradients of queries and 8 for those of keys and values. In f32
  only its multiplications are counted, not the instructions around them.
- torch.compile is expected to train about 60,000 positions of such a head a second in bf16, 68 ms for 4096. That is an
  estimate, and not measured either.
- Drawn tokens: logits are read twice, from L2. Instructions are those of all of ` + "`draw_bins`" + `, which does nearly all of
  the work; those in double count twice, because a multiprocessor has half as many units for them. One thread adds the
  1,002 sums of a row, subtracts them again and looks through one bin: a chain of 8 cycles a step, which is among the
  gaps. 8 cycles are an assumption.
- Left out: norms, top-k's selection, softmax of losses, quantisation of the grid over multiprocessors, and the host
  ([host time](../gpu.md#host-time)).
`
