//go:build gpu && linux && cgo

package cuda_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"talf/compute/cuda/cudatest/ptxdriver"
)

var (
	runPTX   = flag.Bool("ptx", false, "run the embedded PTX, interpreted, in place of the kernels that g++ compiled")
	ptxSeed  = flag.Uint64("ptx.seed", 1, "seed of -ptx: another one runs threads in another order")
	truncate = flag.Bool("ptx.truncate", false, "with -ptx, let tensor cores round toward zero; otherwise results are compared with g++'s, bit for bit")
)

// envPlant is the number of the bug that is planted in a process.
const envPlant = "TALF_TEST_PTX_PLANT"

// interpret makes this process run PTX.
func interpret() error {
	o := ptxdriver.Options{Seed: *ptxSeed, Truncate: *truncate, Compare: !*truncate, Faults: os.Stderr}
	if v := os.Getenv(envPlant); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return err
		}
		o.Edit = ptxBugs[n].edit
	}
	return ptxdriver.Install(o)
}

// report prints what every kernel did: launches, instructions of warps, and their time.
func report() {
	counts := ptxdriver.Counts()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		c := counts[name]
		fmt.Printf("ptx: %-18s %6d launches %11d instructions %8.2f s\n", name, c.Launches, c.Steps, c.Time.Seconds())
	}
}

// A ptxBug is planted in one kernel of the embedded PTX.
type ptxBug struct {
	name   string
	kernel string
	old    string // a regular expression, which matches in the kernel
	new    string
	nth    int    // which of its matches, from 0
	test   string // that must fail
	want   string // a part of the message, a regular expression: which access of two is reported depends on the order of threads
}

var ptxBugs = []ptxBug{
	{"a fence removed before the ticket", "linear_f32_8", `membar\.gl;`, "", 0, sharedTest + "F32", "a store without an order"},
	{"a fence removed behind the ticket", "linear_bf16_8", `membar\.gl;`, "", 1, sharedTest + "BF16", "a store without an order"},
	{"a wait for copies removed", "attend_f32", `cp\.async\.wait_group 1;`, "", 0, attendTest, "a copy to these bytes that was not waited for"},
	{"a barrier removed", "norm", `bar\.sync 	0;`, "", 2, normTest, "a store without an order"},
	{"a barrier removed that guards what is read", "norm", `bar\.sync 	0;`, "", 1, layerTest, "a load without an order"},
	{"a barrier that some do not reach", "norm", `bar\.sync 	0;`, "@%p1 bar.sync 0;", 2, normTest, "the warp get here"},
	{"a barrier removed behind a chunk's addresses", "attend_f32", `bar\.sync 	0;`, "", 0, attendTest, "without an order"},
	{"a wait for copies to a ring removed", "staged_bf16_16", `cp\.async\.wait_group 2;`, "", 0, sharedTest + "BF16", "a copy to these bytes that was not waited for"},
	{"a barrier removed between a ring's units", "staged_bf16_16", `bar\.sync 	0;`, "", 0, sharedTest + "BF16", "without an order"},
	{"a wait for copies of one plane removed", "single_bf16_16", `cp\.async\.wait_group 14;`, "", 0, planeTest + "33", "a copy to these bytes that was not waited for"},
	{"a barrier removed between steps of one plane", "single_bf16_256", `bar\.sync 	0;`, "", 0, planeTest + "290", "a copy to these bytes that was not waited for|a load without an order"},
	{"a barrier removed behind sums of one plane", "single_bf16_64", `bar\.sync 	0;`, "", 2, planeTest + "33", "without an order"},
	{"operands of a product in one plane swapped", "single_bf16_128", `(mma\S+ \{[^}]*\}, \{[^}]*\}, )\{(%r\d+),(%r\d+)\}`, "$1{$3,$2}", 0, planeTest + "290", "want 0x"},
	{"operands of a product swapped", "linear_bf16_8", `(mma\S+ \{[^}]*\}, \{[^}]*\}, )\{(%r\d+),(%r\d+)\}`, "$1{$3,$2}", 0, sharedTest + "BF16", "want 0x"},
	{"rows of a product swapped", "linear_q8_8", `(mma\S+ \{[^}]*\}, )\{(%r\d+),(%r\d+),`, "$1{$3,$2,", 0, sharedTest + "Q8", "want 0x"},
	{"a barrier removed behind queries", "attend_bf16_16", `bar\.sync 	0;`, "", 0, tensorTest, "without an order"},
	{"a barrier removed before weights take the place of queries", "attend_bf16_64", `bar\.sync 	0;`, "", 1, tensorTest, "without an order"},
	{"a barrier removed behind weights", "attend_bf16_64", `bar\.sync 	0;`, "", 2, tensorTest, "without an order"},
	{"a product of queries with swapped elements of keys", "attend_bf16_16", `(mma\S+ \{[^}]*\}, \{[^}]*\}, )\{(%r\d+),(%r\d+)\}`, "$1{$3,$2}", 0, tensorTest, "want 0x"},
	{"a load of values past their alignment", "attend_bf16_64", `(ld\.global\.v2\.u32 \{[^}]*\}, \[%rd\d+)\]`, "$1+4]", 0, tensorTest, "no multiple"},
	{"a barrier removed between the parts of wide heads", "attend_wide_bf16_64", `bar\.sync 	0;`, "", 1, wideTest, "without an order"},
	{"queries of wide heads of which a part is not written", "attend_wide_bf16_16", `st\.shared\.v4\.u32[^;]*;`, "", 2, wideTest, "want 0x"},
	{"a product of wide heads with swapped elements of keys", "attend_wide_bf16_16", `(mma\S+ \{[^}]*\}, \{[^}]*\}, )\{(%r\d+),(%r\d+)\}`, "$1{$3,$2}", 64, wideTest, "want 0x"},
	{"a wait for copies of wide heads removed", "attend_wide_f32", `cp\.async\.wait_group 0;`, "", 1, plainTest, "a copy to these bytes that was not waited for"},
	{"a barrier removed before values take the place of keys", "attend_wide_f32", `bar\.sync 	0;`, "", 2, plainTest, "without an order"},
	{"a wait for copies of factors removed", "product_nt", `cp\.async\.wait_group 1;`, "", 0, halvesTest, "a copy to these bytes that was not waited for"},
	{"a barrier removed between steps of factors", "product_nn", `bar\.sync 	0;`, "", 0, halvesTest, "without an order"},
	{"a factor that is not turned", "product_tn", `\.trans\.shared`, ".shared", 0, halvesTest, "want 0x"},
	{"matrices of a factor swapped", "product_nt", `(ldmatrix\S+ \{)(%r\d+),(%r\d+),`, "$1$3,$2,", 0, halvesTest, "want 0x"},
	{"a row of a factor at an odd place", "product_tn", `(ldmatrix\S+ \{[^}]*\}, \[%r\d+)\]`, "$1+8]", 0, halvesTest, "no multiple"},
	{"a copy that begins behind its first element", "halve", `(st\.global\.v4\.u32 	\[%rd\d+)\]`, "$1+16]", 0, halvesTest, "behind the end of an allocation"},
	{"a copy of a packed weight that lacks an element", "halve_packed", `(st\.global\.v2\.u32 	\[%rd\d+)\]`, "$1+4]", 0, halvesTest, "no multiple"},
	{"bfloat16 that is read past its alignment", "widen", `(ld\.global\S*\.v4\.u32 \{[^}]*\}, \[%rd\d+)\]`, "$1+4]", 0, "TestProductsOfUploads", "no multiple"},
	{"a float that is not written", "widen", `st\.global\.u32[^;]*;`, "", 0, "TestProductsOfUploads", "want 0x"},
	{"a wait for a tile of keys removed", "tree_attend_half", `cp\.async\.wait_group 0;`, "", 0, treeTest, "a copy to these bytes that was not waited for"},
	{"a barrier removed behind queries that were read", "tree_queries_half", `bar\.sync 	0;`, "", 1, treeTest, "without an order"},
	{"lines that are not turned", "tree_keys_half", `\.trans\.shared`, ".shared", 0, treeTest, "want 0x"},
	{"a barrier removed behind a tile of wide keys", "tree_attend_wide", `bar\.sync 	0;`, "", 1, levelTest, "without an order"},
	{"a wide head whose second part is not written", "tree_attend_wide", `st\.global\.f32 	\[%rd\d+\+512\][^;]*;`, "", 0, levelTest, "want 0x"},
	{"a barrier removed behind wide keys of a gradient", "tree_queries_wide", `bar\.sync 	0;`, "", 1, gradTest, "without an order"},
	{"a barrier removed behind weights of wide lines", "tree_keys_wide", `bar\.sync 	0;`, "", 2, gradTest, "without an order"},
	{"peaks that are not written", "scale_cap", `st\.global\.f32[^;]*;`, "", 1, variantsTest, "want 0x"},
	{"a weighted row that is not written", "scatter_scaled", `st\.global\.f32[^;]*;`, "", 0, variantsTest, "want 0x"},
	{"a barrier removed behind a sum of columns", "norm_columns", `bar\.sync 	0;`, "", 2, variantsTest, "without an order"},
	{"a scaled row one element off", "add_scaled", `(st\.global\.f32 	\[%rd\d+)\]`, "$1+4]", 0, variantsTest, "behind the end of an allocation"},
	{"lines at an odd place", "tree_delta", `(st\.global\.v4\.\S+ 	\[%rd\d+)\]`, "$1+4]", 0, treeTest, "no multiple"},
	{"nibbles of another register", "linear_q4_8", `(shr\.u32 	%r\d+, %r\d+, )8;`, "${1}4;", 0, fourTest + "Q4_0_33", "want 0x"},
	{"a bias of another kind", "linear_q4_16", `-1022835960`, "-1023360256", 0, fourTest + "Q4_0_33", "want 0x"},
	{"a minimum in place of a scale", "linear_q4k_8", `(prmt\.b32 [^;]*, )29760;`, "${1}29762;", 0, fourTest + "Q4_K_33", "want 0x"},
	{"sums of halves of units", "split_sums", `(shfl\.sync\.bfly\.b32[^;]*), 8, `, "$1, 4, ", 2, fourTest + "Q4_K_33", "want 0x"},
	{"a store of sums past its place", "split_sums", `(st\.global\.f32 	\[%rd\d+)\]`, "$1+2]", 0, fourTest + "Q4_K_33", "no multiple"},
	{"high bits of six that are lost", "linear_q6k_8", `(lop3\.b32 [^;]*, )0xea;`, "${1}0xaa;", 11, fourTest + "Q6_K_33", "want 0x"},
	{"a wait for copies of four bits removed", "staged_q4_16", `cp\.async\.wait_group 6;`, "", 0, fourTest + "Q4_0_290", "a copy to these bytes that was not waited for"},
	{"a barrier removed between units of four bits", "staged_q4k_32", `bar\.sync 	0;`, "", 0, fourTest + "Q4_K_290", "without an order"},
	{"a wait for copies of six bits removed", "staged_q6k_16", `cp\.async\.wait_group 6;`, "", 0, fourTest + "Q6_K_290", "a copy to these bytes that was not waited for"},
	{"a row of a table that is not the first of its run", "embed_q6k", `sub\.s64`, "add.s64", 0, "TestProductsOfFourBitsInAStack", "want 0x"},
	{"a load one past the end", "swiglu", `(ld\.global\.f32 	%f\d+, \[%rd\d+)\]`, "$1+4]", 1, normTest, "0 bytes behind the end of an allocation"},
	{"a store one past the end", "swiglu", `(st\.global\.f32 	\[%rd\d+)\]`, "$1+4]", 0, normTest, "0 bytes behind the end of an allocation"},
	{"a store removed", "swiglu", `st\.global\.f32[^;]*;`, "", 0, normTest, "want 0x"},
	{"uninitialised shared memory", "norm", `st\.shared\.f32[^;]*;`, "", 1, normTest, "uninitialised"},
	{"a branch on an uninitialised value", "topk_pieces", `st\.shared\.f32[^;]*;`, "", 0, topkTest, "the predicate comes from uninitialised memory"},
	{"a barrier removed behind the largest of warps", "draw_tops", `bar\.sync 	0;`, "", 0, drawTest, "without an order"},
	{"a lane of a bin that is left out", "draw_bins", `shfl\.sync\.bfly\.b32(\s+%r\d+, %r\d+, )4,`, "shfl.sync.bfly.b32${1}0,", 0, drawTest, "want 0x"},
	{"a barrier removed behind what is left of a quantile", "draw_find", `bar\.sync 	0;`, "", 2, drawTest, "without an order"},
	{"a store of a bin behind the last one", "draw_bins", `(st\.global\.f64 	\[%rd\d+)\]`, "$1+8]", 0, drawTest, "across the end of an allocation"},
	{"a wait for the kernels in front removed", "split_rows", `griddepcontrol\.wait;`, "", 0, passTest, "the kernels in front"},
	{"a wait for the kernels in front behind what one of them stores", "linear_bf16_8", `griddepcontrol\.wait;((?:[^g]|g[^r])*?ld\.global\.v4[^;]*;)`, "$1 griddepcontrol.wait;", 0, passTest, "a load before the wait"},
	{
		"a store before the wait for the kernels in front", "swiglu", `griddepcontrol\.wait;`,
		"{ .reg .b64 q; .reg .b32 z; ld.param.u64 q, [swiglu_param_0]; mov.u32 z, 0; st.global.u32 [q], z; } griddepcontrol.wait;", 0, passTest, "a store before the wait",
	},
	{"a wide load at an odd place", "linear_f32_8", `(ld\.global\.v4\.u32 \{[^}]*\}, \[%rd\d+)\]`, "$1+4]", 0, linearTest, "no multiple"},
}

const (
	drawTest     = "TestDeviceConforms$/^Draw"
	attendTest   = "TestDeviceConforms$/^Attend_agrees"
	fourTest     = "TestProductsOfFourBits$/^"
	halvesTest   = "TestProductsInBF16"
	layerTest    = "TestDeviceConforms$/^LayerNorm"
	linearTest   = "TestDeviceConforms$/^Linear_agrees_with_the_reference$"
	normTest     = "TestDeviceConforms$/^Norm_and_SwiGLU"
	passTest     = "TestPassesHaveTheSameBits/planes_2"
	planeTest    = "TestProductsInOnePlane$/^"
	sharedTest   = "TestProductsWhoseInputsBlocksShare$/^"
	plainTest    = "TestDeviceConforms$/^Attend_of_wide_heads"
	tensorTest   = "TestAttentionOnTensorCores$/^4"
	wideTest     = "TestAttentionOnTensorCores$/^1"
	treeTest     = "TestTreeAttentionOnTensorCores"
	topkTest     = "TestDeviceConforms$/^TopK"
	gradTest     = "TestDeviceConforms$/^TreeAttendGrad"
	levelTest    = "TestDeviceConforms$/^TreeAttend_agrees"
	variantsTest = "TestDeviceConforms$/^operations_of_variants"
)

// edit plants the bug.
func (b ptxBug) edit(ptx string) string {
	from := strings.Index(ptx, ".entry "+b.kernel+"(")
	if from < 0 {
		panic("there is no kernel " + b.kernel)
	}
	to := len(ptx)
	if n := strings.Index(ptx[from:], "\n}\n"); n >= 0 {
		to = from + n
	}
	text, re, n := ptx[from:to], regexp.MustCompile(b.old), -1
	edited := re.ReplaceAllStringFunc(text, func(s string) string {
		if n++; n != b.nth {
			return s
		}
		return re.ReplaceAllString(s, b.new)
	})
	if n < b.nth {
		panic(fmt.Sprintf("%s matches %d times in %s", b.old, n+1, b.kernel))
	}
	return ptx[:from] + edited + ptx[to:]
}

// What the interpreter looks for is found where it is.
func TestPlantedPTXBugsAreCaught(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("begins as many processes as there are bugs")
	}
	for i, b := range ptxBugs {
		t.Run(b.name, func(t *testing.T) {
			out, err := run(t, b.test, []string{"-ptx", "-test.short"}, envPlant+"="+strconv.Itoa(i))
			if err == nil || !strings.Contains(out, "ptx: "+b.kernel) || !regexp.MustCompile(b.want).MatchString(out) {
				t.Errorf("%v, want a message about %s that says %q:\n%s", err, b.kernel, b.want, out)
			}
		})
	}
}
