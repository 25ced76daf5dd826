package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/reg"
)

// A class is what the processors of one have: functions of it may use nothing else.
type class struct {
	suffix    string
	width     int      // float32 of a register
	registers int      // vector registers
	isa       []string // instruction sets, as avo and package tile name them
}

// base is what every processor of amd64 has: SSE is MXCSR, MMX+ prefetching.
var base = []string{"CPUID", "MMX+", "SSE", "SSE2"}

// In an AVX-512 class, functions for registers of 32 bytes may use all 32 of these, as they need VL.
var (
	isaAVX2   = slices.Concat(base, []string{"AVX", "AVX2", "F16C", "FMA3"})
	isaAVX512 = slices.Concat(isaAVX2, []string{"AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL"})
)

var classes = map[string]*class{
	"avx2":       {"AVX2", 8, 16, isaAVX2},
	"avxvnni":    {"AVXVNNI", 8, 16, slices.Concat(isaAVX2, []string{"AVXVNNI"})},
	"avx512":     {"AVX512", 16, 32, isaAVX512},
	"avx512vnni": {"AVX512VNNI", 16, 32, slices.Concat(isaAVX512, []string{"AVX512VNNI"})},
	"avx512bf16": {"AVX512BF16", 16, 32, slices.Concat(isaAVX512, []string{"AVX512BF16"})},
	"amx":        {"AMX", 16, 32, slices.Concat(isaAVX512, []string{"AVX512VNNI", "AMX-BF16", "AMX-INT8", "AMX-TILE"})},
}

// evexVNNI is class avxvnni with the encoding of AVX-512 VNNI.
var evexVNNI = class{"AVXVNNI", 8, 16, slices.Concat(isaAVX2, []string{"AVX512VNNI", "AVX512VL"})}

func classNames() string { return strings.Join(slices.Sorted(maps.Keys(classes)), ", ") }

// check returns an error if a function uses an instruction or a register that processors of c need
// not have. It looks at what is printed: avo's allocator takes registers up to the 32nd for
// instructions that only the first 16 make one of AVX.
func (c *class) check(file *ir.File) error {
	for _, f := range file.Functions() {
		for _, i := range f.Instructions() {
			for _, isa := range i.ISA {
				if !slices.Contains(c.isa, isa) {
					return fmt.Errorf("%s: %s needs %s, which class %s has not", f.Name, i.OpcodeWithSuffixes(), isa, c.suffix)
				}
			}
			for _, r := range i.Registers() {
				p, ok := r.(reg.Physical)
				switch {
				case !ok:
					return fmt.Errorf("%s: %s has register %s, which is none of a processor", f.Name, i.OpcodeWithSuffixes(), r.Asm())
				case r.Kind() == reg.KindVector && int(p.PhysicalIndex()) >= c.registers,
					r.Kind() == reg.KindVector && int(r.Size()) > 4*c.width,
					r.Kind() == reg.KindOpmask && !slices.Contains(c.isa, "AVX512F"):
					return fmt.Errorf("%s: %s uses register %s: class %s has %d vector registers of %d bytes",
						f.Name, i.OpcodeWithSuffixes(), r.Asm(), c.suffix, c.registers, 4*c.width)
				}
			}
		}
	}
	return nil
}
