package main

import (
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"talf/tools/avogen/tile"
)

// sum emits a sum of n registers that live at once.
func (g *gen) sum(n int) {
	p := g.ptr("p")
	all := make([]reg.VecVirtual, n)
	for i := range all {
		all[i] = g.YMM()
		g.VMOVUPS(operand.Mem{Base: p, Disp: 32 * i}, all[i])
	}
	for _, v := range all[1:] {
		g.VADDPS(v, all[0], all[0])
	}
	g.VMOVUPS(all[0], operand.Mem{Base: p})
}

func TestClassesHaveNothingElse(t *testing.T) {
	for _, c := range []struct {
		name, class string
		emit        func(g *gen)
		want        string // "": nothing is wrong
	}{
		{"sixteen registers", "avx2", func(g *gen) { g.sum(16) }, ""},
		{"seventeen registers", "avx2", func(g *gen) { g.sum(17) }, "uses register Y16: class AVX2 has 16 vector registers of 32 bytes"},
		{"a planted Y16", "avx2", func(g *gen) { g.VADDPS(reg.Y16, reg.Y1, reg.Y2) }, "fAVX2: VADDPS uses register Y16"},
		{"a planted X31", "avx2", func(g *gen) { g.VADDPS(reg.X31, reg.X1, reg.X2) }, "VADDPS uses register X31"},
		{"EVEX alone", "avx2", func(g *gen) { g.VPXORD(reg.Y1, reg.Y2, reg.Y3) }, "VPXORD needs AVX512F"},
		{"a broadcast operand", "avx2", func(g *gen) { g.VADDPS_BCST(operand.Mem{Base: g.ptr("p")}, reg.Y2, reg.Y3) }, "VADDPS.BCST needs AVX512F"},
		{"a mask", "avx2", func(g *gen) { g.VMOVUPS(reg.Y1, reg.K1, reg.Y2) }, "VMOVUPS needs AVX512F"},
		{"a wide register", "avx2", func(g *gen) { g.VADDPS(reg.Z1, reg.Z2, reg.Z3) }, "VADDPS needs AVX512F"},
		{"BMI2", "avx2", func(g *gen) { g.SHLXQ(reg.RAX, reg.RBX, reg.RCX) }, "SHLXQ needs BMI2"},
		{"BMI", "avx512", func(g *gen) { g.TZCNTQ(reg.RAX, reg.RBX) }, "TZCNTQ needs BMI"},
		{"seventeen registers", "avx512", func(g *gen) { g.sum(17) }, ""},
		{"VNNI", "avx512", func(g *gen) { g.VPDPBUSD(reg.Z1, reg.Z2, reg.Z3) }, "VPDPBUSD needs AVX512VNNI"},
		{"IFMA", "avx512vnni", func(g *gen) { g.VPMADD52LUQ(reg.Z1, reg.Z2, reg.Z3) }, "VPMADD52LUQ needs AVX512IFMA"},
		{"VNNI", "avx512vnni", func(g *gen) { g.VPDPBUSD(reg.Z1, reg.Z2, reg.Z3) }, ""},
		{"BF16", "avx512vnni", func(g *gen) { g.raw(tile.DotPairs(1, 2, 3)) }, "LONG needs AVX512BF16"},
		{"BF16", "avx512bf16", func(g *gen) { g.VPDPWSSD(reg.Z1, reg.Z2, reg.Z3) }, ""}, // becomes VDPBF16PS
		{"tiles", "avx512vnni", func(g *gen) { g.raw(tile.Zero(1)) }, "LONG needs AMX-TILE"},
		{"tiles", "amx", func(g *gen) { g.raw(tile.DotBF16(1, 2, 3)) }, ""},
	} {
		t.Run(c.class+"/"+c.name, func(t *testing.T) {
			g := &gen{Context: build.NewContext(), class: classes[c.class], bf16: c.class == "avx512bf16"}
			g.text("f", "func(p *float32)", "is a test.")
			c.emit(g)
			g.ret()
			_, err := g.compile()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("error %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one that contains %q", err, c.want)
			}
		})
	}
}
