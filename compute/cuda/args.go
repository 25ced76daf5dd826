//go:build gpu && linux && cgo

package cuda

import "unsafe"

// A kernel is a number of the table kernels.
type kernel int

// The kernels. Linear's and staged's are followed by those for more rows.
const (
	embedF32 kernel = iota
	embedBF16
	embedQ8
	embedQ4
	embedQ4K
	embedQ6K
	gatherRows
	normRows
	foursRows
	splitRows
	splitSums
	linearF32
	linearF32x16
	linearBF16
	linearBF16x16
	linearBF16x32
	linearBF16x64
	linearQ8
	linearQ8x16
	linearQ8x32
	linearQ8x64
	stagedBF16x16
	stagedBF16x32
	stagedBF16x64
	stagedQ8x16
	stagedQ8x32
	stagedQ8x64
	linearQ4
	linearQ4x16
	linearQ4x32
	linearQ4x64
	linearQ4K
	linearQ4Kx16
	linearQ4Kx32
	linearQ4Kx64
	linearQ6K
	linearQ6Kx16
	linearQ6Kx32
	linearQ6Kx64
	stagedQ4x16
	stagedQ4x32
	stagedQ4x64
	stagedQ4Kx16
	stagedQ4Kx32
	stagedQ4Kx64
	stagedQ6Kx16
	stagedQ6Kx32
	stagedQ6Kx64
	roundRows
	singleBF16x16
	singleBF16x64
	singleBF16x128
	singleBF16x256
	swiglu
	topkPieces
	topkMerge
	chooseNodes
	drawTops
	drawBins
	drawFind
	prepareF32
	prepareBF16
	paths
	attendF32
	attendBF16x16
	attendBF16x64
	attendWideF32
	attendWideBF16x16
	attendWideBF16x64
	attendSum
	moveSlots
	addScaled
	normColumns
	scaleCap
	scatterScaled
	unpackBF16
	unpackF32
	planes
	finishRows
	roundBF16

	// Of train.cu.
	gemmF32
	gemmF32Packed
	gemmBF16
	gemmBF16Packed
	productNT
	productNN
	productTN
	halve
	widen
	halvePacked
	addRows
	clearRows
	turnHeads
	swigluGrad
	adamW
	columnSums
	normScales
	normGrad
	squares
	total
	scatterAdd
	smoothL1
	softCE
	treeAttend
	treeDelta
	treeQueries
	treeKeys
	treeNodes
	treeAttendHalf
	treeQueriesHalf
	treeKeysHalf
	treeAttendWide
	treeDeltaWide
	treeQueriesWide
	treeKeysWide
	treeNodesWide

	kernelCount
)

// kernels are the kernels of kernels/kernels.cu and train.cu, the threads of a block, and whether a kernel waits for
// its predecessors by itself, from sm_90 on.
var kernels = [kernelCount]struct {
	name    string
	threads uint32
	waits   bool
}{
	embedF32:      {"embed_f32", 128, true},
	embedBF16:     {"embed_bf16", 128, true},
	embedQ8:       {"embed_q8", 128, true},
	embedQ4:       {"embed_q4", 128, true},
	embedQ4K:      {"embed_q4k", 128, true},
	embedQ6K:      {"embed_q6k", 128, true},
	gatherRows:    {"gather", 128, true},
	normRows:      {"norm", 256, true},
	foursRows:     {"fours_rows", 256, true},
	splitRows:     {"split_rows", 256, true},
	splitSums:     {"split_sums", 256, true},
	linearF32:     {"linear_f32_8", 256, true},
	linearF32x16:  {"linear_f32_16", 256, true},
	linearBF16:    {"linear_bf16_8", 256, true},
	linearBF16x16: {"linear_bf16_16", 256, true},
	linearBF16x32: {"linear_bf16_32", 256, true},
	linearBF16x64: {"linear_bf16_64", 256, true},
	linearQ8:      {"linear_q8_8", 256, true},
	linearQ8x16:   {"linear_q8_16", 256, true},
	linearQ8x32:   {"linear_q8_32", 256, true},
	linearQ8x64:   {"linear_q8_64", 256, true},
	stagedBF16x16: {"staged_bf16_16", 256, true},
	stagedBF16x32: {"staged_bf16_32", 256, true},
	stagedBF16x64: {"staged_bf16_64", 128, true},
	stagedQ8x16:   {"staged_q8_16", 256, true},
	stagedQ8x32:   {"staged_q8_32", 256, true},
	stagedQ8x64:   {"staged_q8_64", 128, true},

	linearQ4:     {"linear_q4_8", 256, true},
	linearQ4x16:  {"linear_q4_16", 256, true},
	linearQ4x32:  {"linear_q4_32", 256, true},
	linearQ4x64:  {"linear_q4_64", 256, true},
	linearQ4K:    {"linear_q4k_8", 256, true},
	linearQ4Kx16: {"linear_q4k_16", 256, true},
	linearQ4Kx32: {"linear_q4k_32", 256, true},
	linearQ4Kx64: {"linear_q4k_64", 256, true},
	linearQ6K:    {"linear_q6k_8", 256, true},
	linearQ6Kx16: {"linear_q6k_16", 256, true},
	linearQ6Kx32: {"linear_q6k_32", 256, true},
	linearQ6Kx64: {"linear_q6k_64", 256, true},
	stagedQ4x16:  {"staged_q4_16", 256, true},
	stagedQ4x32:  {"staged_q4_32", 256, true},
	stagedQ4x64:  {"staged_q4_64", 128, true},
	stagedQ4Kx16: {"staged_q4k_16", 256, true},
	stagedQ4Kx32: {"staged_q4k_32", 256, true},
	stagedQ4Kx64: {"staged_q4k_64", 256, true},
	stagedQ6Kx16: {"staged_q6k_16", 256, true},
	stagedQ6Kx32: {"staged_q6k_32", 256, true},
	stagedQ6Kx64: {"staged_q6k_64", 256, true},

	roundRows:      {"round_rows", 256, true},
	singleBF16x16:  {"single_bf16_16", 64, true},
	singleBF16x64:  {"single_bf16_64", 128, true},
	singleBF16x128: {"single_bf16_128", 128, true},
	singleBF16x256: {"single_bf16_256", 256, true},

	swiglu:        {"swiglu", 256, true},
	topkPieces:    {"topk_pieces", 256, true},
	topkMerge:     {"topk_merge", 256, true},
	chooseNodes:   {"choose", 256, true},
	drawTops:      {"draw_tops", 256, false},
	drawBins:      {"draw_bins", 256, false},
	drawFind:      {"draw_find", 256, false},
	prepareF32:    {"prepare_f32", 128, true},
	prepareBF16:   {"prepare_bf16", 128, true},
	paths:         {"paths", 32, true},
	attendF32:     {"attend_f32", 128, true},
	attendBF16x16: {"attend_bf16_16", 128, true},
	attendBF16x64: {"attend_bf16_64", 128, true},
	attendSum:     {"attend_sum", 128, true},

	addScaled:     {"add_scaled", 256, false},
	normColumns:   {"norm_columns", 256, false},
	scaleCap:      {"scale_cap", 256, false},
	scatterScaled: {"scatter_scaled", 128, false},

	attendWideF32:     {"attend_wide_f32", 128, true},
	attendWideBF16x16: {"attend_wide_bf16_16", 128, true},
	attendWideBF16x64: {"attend_wide_bf16_64", 128, true},

	moveSlots:  {"move_slots", 128, true},
	unpackBF16: {"unpack_bf16", 256, false},
	unpackF32:  {"unpack_f32", 256, false},
	planes:     {"planes", 256, false},
	finishRows: {"finish_rows", 256, false},
	roundBF16:  {"round_bf16", 256, false},

	gemmF32:        {"gemm_f32", 256, false},
	gemmF32Packed:  {"gemm_f32_packed", 256, false},
	gemmBF16:       {"gemm_bf16", 256, false},
	gemmBF16Packed: {"gemm_bf16_packed", 256, false},
	productNT:      {"product_nt", 128, false},
	productNN:      {"product_nn", 128, false},
	productTN:      {"product_tn", 128, false},
	halve:          {"halve", 256, false},
	widen:          {"widen", 256, false},
	halvePacked:    {"halve_packed", 256, false},
	addRows:        {"add", 256, false},
	clearRows:      {"clear", 256, false},
	turnHeads:      {"turn", 256, false},
	swigluGrad:     {"swiglu_grad", 256, false},
	adamW:          {"adamw", 256, false},
	columnSums:     {"column_sums", 256, false},
	normScales:     {"norm_scales", 256, false},
	normGrad:       {"norm_grad", 256, false},
	squares:        {"squares", 256, false},
	total:          {"total", 256, false},
	scatterAdd:     {"scatter_add", 128, false},
	smoothL1:       {"smooth_l1", 256, false},
	softCE:         {"soft_ce", 256, false},
	treeAttend:     {"tree_attend", 128, false},
	treeDelta:      {"tree_delta", 256, false},
	treeQueries:    {"tree_queries", 128, false},
	treeKeys:       {"tree_keys", 256, false},
	treeNodes:      {"tree_nodes", 128, false},

	treeAttendHalf:  {"tree_attend_half", 128, false},
	treeQueriesHalf: {"tree_queries_half", 128, false},
	treeKeysHalf:    {"tree_keys_half", 128, false},

	treeAttendWide:  {"tree_attend_wide", 128, false},
	treeDeltaWide:   {"tree_delta_wide", 256, false},
	treeQueriesWide: {"tree_queries_wide", 128, false},
	treeKeysWide:    {"tree_keys_wide", 128, false},
	treeNodesWide:   {"tree_nodes_wide", 128, false},
}

// The arguments of kernels, as kernels.cu declares them. Every field is 8 bytes, and
// pointers are device addresses. Live is the address of a count of rows or of attention's
// items, or 0: all that are launched.

const maxArgs = 24

type embedArgs struct {
	dst, w, ids, live       uint64
	out, in, ld, col, first int64
}

type gatherArgs struct {
	dst, src, rows, live uint64
	ld, width            int64
}

type normArgs struct {
	dst, x, weight, bias, live uint64
	width, center              int64
	eps                        uint64
}

type linearArgs struct {
	dst, w, up, x, bias, upBias, part, tickets, live uint64
	rows, out, in, splits, act, add, ld              int64
	limit                                            uint64
}

type swigluArgs struct {
	dst, gu, live uint64
	n, width      int64
}

type topArgs struct {
	ids, logp, x, best, sums, live uint64
	width, k, pieces, kept, row0   int64
}

type chooseArgs struct {
	ids, logp, score, above    uint64
	tokens, rows, scores, anc  uint64
	n, k, m, words, row0, node int64
}

type drawArgs struct {
	tokens, x, draws, bins, tops, live uint64
	width, pieces                      int64
}

type storeArgs struct {
	chunks                  uint64
	per, layers, heads, dim int64
}

type prepareArgs struct {
	qkv, rope, rows                uint64
	qWeight, qBias, kWeight, kBias uint64
	live                           uint64
	qEps, kEps                     uint64
	qCenter, kCenter               int64
	rot, qHeads, layer             int64
	kv                             storeArgs
}

type pathsArgs struct {
	paths, rows, own, anc, live uint64
	ld                          int64
}

type attendArgs struct {
	part, qkv, rows, items, blocks, paths, live uint64
	qHeads, layer, ld, chunks                   int64
	scale, cap                                  uint64
	kv                                          storeArgs
}

type attendSumArgs struct {
	dst, part, rows, live, sinks uint64
	qHeads, dim, chunks          int64
}

type moveArgs struct {
	dst, src uint64
	n, size  int64
	kv       storeArgs
}

type unpackArgs struct {
	dst, w             uint64
	out, in, first, ld int64
}

type planeArgs struct {
	norm normArgs
	lo   uint64
	ld   int64
}

type roundArgs struct {
	dst, src uint64
	n        int64
}

// The largest structures fit into a command.
var (
	_ [maxArgs*8 - unsafe.Sizeof(prepareArgs{})]byte
	_ [maxArgs*8 - unsafe.Sizeof(attendArgs{})]byte
)

// A row is kernels.cu's Row.
type row struct {
	pos, slot, prefix, len, first, blocks, own, words int32
	anc                                               int64
}

// An item is kernels.cu's Item.
type item struct{ row, rows, chunk, _ int32 }

// Their sizes on the device.
const (
	rowBytes  = int(unsafe.Sizeof(row{}))
	itemBytes = int(unsafe.Sizeof(item{}))
)
