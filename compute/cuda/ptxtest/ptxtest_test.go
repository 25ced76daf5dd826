package ptxtest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/compute/cuda/ptxtest"
)

const version = ".version 7.8\n.target sm_80\n.address_size 64\n"

// entry returns a kernel of blocks of 64 threads with two pointers, %a and %b, a thread's number %t,
// and addresses of its words, %at and %bt.
func entry(shared, body string) string {
	return version + `.visible .entry k(
	.param .align 8 .b8 k_param_0[16]
)
.maxntid 64, 1, 1
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .f32 %f<16>;
	.reg .b64 %rd<16>;
	.reg .b32 %t;
	.reg .b32 %c;
	.reg .b64 %a;
	.reg .b64 %b;
	.reg .b64 %at;
	.reg .b64 %bt;
	.reg .b64 %four;
` + shared + `
	mov.u32 %t, %tid.x;
	mov.u32 %c, %ctaid.x;
	ld.param.u64 %a, [k_param_0];
	ld.param.u64 %b, [k_param_0+8];
	mul.wide.u32 %four, %t, 4;
	add.s64 %at, %a, %four;
	add.s64 %bt, %b, %four;
` + body + `
	ret;
}
`
}

const words = 64

// launch runs entry's kernel with two allocations of a word for each thread, the second of which
// has been written, and returns both.
func launch(t *testing.T, ptx string, blocks int, seed uint64) (a, b []byte, d *ptxtest.Device, err error) {
	t.Helper()
	d = ptxtest.NewDevice(seed)
	a, b, _, err = launchOn(t, d, ptx, blocks)
	return a, b, d, err
}

// launchOn does so on a device, and returns the kernel.
func launchOn(t *testing.T, d *ptxtest.Device, ptx string, blocks int) (a, b []byte, k *ptxtest.Kernel, err error) {
	t.Helper()
	m, err := ptxtest.Parse(ptx)
	if err != nil {
		t.Fatal(err)
	}
	a, b, k = make([]byte, 4*words), make([]byte, 4*words), m.Kernel("k")
	for i := range words {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(i))
	}
	const atA, atB = 0x10000, 0x20000
	if err := errors.Join(d.Map(atA, a), d.Map(atB, b), d.Written(atB, len(b))); err != nil {
		t.Fatal(err)
	}
	args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, atA), atB)
	return a, b, k, d.Launch(k, [3]int{blocks, 1, 1}, 64, args)
}

// shipped returns the PTX of all kernels.
func shipped(t *testing.T) (texts []string) {
	t.Helper()
	for _, name := range []string{"../kernels.ptx", "../kernels90.ptx"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

func TestShippedKernelsAreRead(t *testing.T) {
	for _, text := range shipped(t) {
		m, err := ptxtest.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Count(text, ".entry "); m.Len() != want || want == 0 {
			t.Errorf("%d kernels, want %d", m.Len(), want)
		}
	}
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"ex2.approx.f32 %f1, %f2;", "ex2.approx.f32 is not known"},
		{"add.s32 %r1, %r2;", "2 operands, want 3"},
		{"add.s32 %r1, %rd2, %r3;", "another width"},
		{"mov.u32 %r1, %laneid;", `"%laneid" is not known`},
		{"bra $L_nowhere;", "label $L_nowhere is not there"},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};", "is not known"},
		{"ld.global.v4.f32 {%f1,%f2}, [%a];", "2 elements, want 4"},
		{"setp.nan.f32 %p1, %f1, %f2;", "comparison nan"},
		{"@%q9 ret;", "is no predicate"},
		{"bar.sync 1;", "is not known"},
	} {
		_, err := ptxtest.Parse(entry("", c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "line 28: ") {
			t.Errorf("%s: %v, want line 28 and %q", c.body, err, c.want)
		}
	}
}

// Every opcode of the shipped kernels with parts or operands left out is read or refused.
func TestInstructionsThatAreCutShortAreRefused(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(strings.Join(shipped(t), "\n")) {
		op, rest, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ";"), " ")
		op, rest, _ = strings.Cut(op+" "+rest, "\t")
		if op = strings.TrimSpace(op); !strings.HasSuffix(strings.TrimSpace(line), ";") || strings.HasPrefix(op, ".") || strings.HasPrefix(op, "@") || seen[op] {
			continue
		}
		seen[op] = true
		parts, args := strings.Split(op, "."), strings.Split(rest, ",")
		for n := range parts {
			for m := range len(args) + 1 {
				body := strings.Join(parts[:n+1], ".") + "\t" + strings.Join(args[:m], ",") + ";"
				_, _ = ptxtest.Parse(entry("", body))
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("%d opcodes are too few for a test", len(seen))
	}
	for _, c := range []struct{ body, want string }{
		{"bra;", "0 operands, want 1"},
		{"cp.async.wait_group;", "0 operands, want 1"},
		{"cp.async.cg.shared.global [%r1];", "1 operands, want 4"},
		{"cvt;", "cvt is not known"},
		{"cvt.rn.bf16x2 %r1;", "1 operands, want 2"},
		{"cvt.u32.u64;", "0 operands, want 2"},
		{"setp.eq;", "setp.eq is not known"},
		{"griddepcontrol;", "griddepcontrol is not known"},
		{"prefetch.global.L2;", "prefetch.global.L2 is not known"},
	} {
		if _, err := ptxtest.Parse(entry("", c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

func TestAKernelWithoutAnEndIsRefused(t *testing.T) {
	text := entry("", "")
	for _, cut := range []string{text[:len(text)-2], text[:strings.Index(text, "\tld.param")], text[:strings.Index(text, "{")+1]} {
		if _, err := ptxtest.Parse(cut); err == nil || !strings.Contains(err.Error(), "kernel k has no end") {
			t.Errorf("%q at the end: %v", cut[len(cut)-8:], err)
		}
	}
}

// store writes %r1 to the thread's word of a.
const store = "st.global.u32 [%at], %r1;"

func TestFaultsAreFound(t *testing.T) {
	const buffer = ".shared .align 16 .b8 s[256]; .shared .align 16 .b8 other[16];"
	const place = "mov.u64 %rd1, s; add.s64 %rd2, %rd1, %four;"
	for _, c := range []struct{ name, shared, body, want string }{
		{"nothing", buffer, place + "ld.global.u32 %r1, [%bt]; st.shared.u32 [%rd2], %r1; bar.sync 0; ld.shared.u32 %r1, [s+252];" + store, ""},
		{"a load behind an allocation", "", "ld.global.u32 %r1, [%bt+4];", "0 bytes behind the end of an allocation of 256 bytes"},
		{"a load before an allocation", "", "ld.global.u32 %r1, [%bt+-4];", "4 bytes before an allocation of 256 bytes"},
		{"a load behind a shared variable", buffer, "ld.shared.u32 %r1, [s+256];", "beyond the end of shared variable s"},
		{"a load before a shared variable", buffer, "ld.shared.u32 %r1, [s+-4];", "outside of shared variables"},
		{"a wide load at an odd place", "", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%b+4];", "no multiple of that"},
		{"a branch on an uninitialised value", "", "ld.global.u32 %r1, [%at]; setp.eq.s32 %p1, %r1, 0; @%p1 bra $L_1; $L_1: ret;", "the predicate comes from uninitialised memory"},
		{"an address in an uninitialised register", "", "ld.global.u32 %r1, [%rd9];", "the address comes from uninitialised memory"},
		{"a race within a block", buffer, "st.shared.u32 [s], %t;", "a store without an order"},
		{"a barrier that is missing", buffer, place + "st.shared.u32 [%rd2], %t; ld.shared.u32 %r1, [s+252];", "without an order"},
		{"a barrier behind a load that is missing", buffer, place + "st.shared.u32 [%rd2], %t; bar.sync 0; ld.shared.u32 %r1, [s+252]; st.shared.u32 [%rd2], %r1;", "without an order"},
		{"a race of single bytes", buffer, "cvt.u64.u32 %rd1, %t; shr.u64 %rd1, %rd1, 1; mov.u64 %rd2, s; add.s64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t;", "a store without an order"},
		{"single bytes", buffer, "cvt.u64.u32 %rd1, %t; mov.u64 %rd2, s; add.s64 %rd2, %rd2, %rd1; st.shared.u8 [%rd2], %t;", ""},
		{"what the launch writes, loaded as read-only", "", "st.global.u32 [%at], %t; ld.global.nc.u32 %r1, [%at];", "read-only"},
		{"a barrier in a branch", "", "setp.lt.s32 %p1, %t, 32; @%p1 bra $L_1; bar.sync 0; $L_1: ret;", "bar.sync 0: other threads wait at a barrier that this one does not reach"},
		{"a barrier for half a warp", "", "setp.lt.s32 %p1, %t, 16; @%p1 bra $L_1; bar.sync 0; $L_1: ret;", "of the warp get here"},
		{"an exchange of half a warp", "", "setp.lt.s32 %p1, %t, 16; @%p1 bra $L_1; shfl.sync.bfly.b32 %r1, %t, 1, 31, -1; $L_1: ret;", "of the warp get here"},
		{"an exchange that the lanes reach one after the other", "", "setp.lt.s32 %p1, %t, 16; @%p1 bra $L_1; mov.u32 %r2, 1; $L_1: shfl.sync.bfly.b32 %r1, %t, 1, 31, -1;" + store, ""},
		{"a copy that is not waited for", buffer, place + copyWords + "bar.sync 0; ld.shared.u32 %r1, [%rd2];", "not waited for"},
		{"a copy that others do not wait for", buffer, place + copyWords + "cp.async.wait_group 0; ld.shared.u32 %r1, [%rd2];", "without an order|not waited for"},
		{"a copy to what others read", buffer, place + "st.shared.u32 [%rd2], %t; bar.sync 0; ld.shared.u32 %r1, [%rd2];" + copyWords, "a load without an order"},
		{"a copy", buffer, place + copyWords + "cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r1, [%rd2];" + store, ""},
		{"a copy to what was stored byte by byte", buffer, place + "st.shared.u8 [%rd2], %t; bar.sync 0;" + copyWords + "cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r1, [%rd2];" + store, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(8) {
				_, _, _, err := launch(t, entry(c.shared, strings.ReplaceAll(c.body, ";", ";\n")), 1, seed)
				told := func(want string) bool { return err != nil && strings.Contains(err.Error(), want) }
				if c.want == "" && err != nil || c.want != "" && !slices.ContainsFunc(strings.Split(c.want, "|"), told) {
					t.Fatalf("seed %d: %v, want %q", seed, err, c.want)
				}
			}
		})
	}
}

// copyWords copies 16 bytes of b to s in each of the first 16 threads.
const copyWords = `setp.gt.s32 %p1, %t, 15; mul.wide.u32 %rd3, %t, 16; add.s64 %rd4, %b, %rd3; add.s64 %rd5, %rd1, %rd3; cvt.u32.u64 %r5, %rd5;
	@%p1 bra $L_c; cp.async.cg.shared.global [%r5], [%rd4], 16, 16; $L_c: cp.async.commit_group; `

// TestKernelsThatBeginEarlyWait covers what a kernel that may begin before those in front have ended must not do before it
// has waited: the first launch stores numbers to a, and the second one runs body behind it.
func TestKernelsThatBeginEarlyWait(t *testing.T) {
	const wait = "griddepcontrol.wait;"
	for _, c := range []struct{ name, body, want string }{
		{"a wait before everything", wait + "ld.global.u32 %r1, [%at];" + store, ""},
		{"a load of what nobody stores to before the wait", "ld.global.nc.u32 %r2, [%bt]; prefetch.global.L2 [%b+255];" + wait + "ld.global.u32 %r1, [%at]; add.s32 %r1, %r1, %r2;" + store, ""},
		{"a wait behind the first load", "ld.global.u32 %r1, [%at];" + wait + store, "a load before the wait for the kernels in front, of which one stores to it"},
		{"a copy before the wait", "mov.u32 %r3, s; setp.ne.s32 %p1, %t, 0; @%p1 bra $L_1; cp.async.cg.shared.global [%r3], [%a], 16, 16; $L_1:" + wait, "a load before the wait"},
		{"a store before the wait", "st.global.u32 [%bt], %t;" + wait, "a store before the wait for the kernels in front"},
		{"an atomic operation before the wait", "atom.global.add.u32 %r1, [%b], 1;" + wait, "a store before the wait"},
		{"no wait", "ld.global.u32 %r1, [%bt];", "it ends without having waited"},
		{"a thread that does not wait", "setp.eq.s32 %p1, %t, 7; @%p1 ret;" + wait, "thread 7: @%p1 ret: it ends without having waited"},
		{"a prefetch beyond the end", "prefetch.global.L2 [%b+256];" + wait, "prefetch at 0x20100: 0 bytes behind the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(4) {
				d := ptxtest.NewDevice(seed)
				if _, _, _, err := launchOn(t, d, entry("", "st.global.u32 [%at], %t;\n"), 1); err != nil {
					t.Fatal(err)
				}
				m, err := ptxtest.Parse(entry(".shared .align 16 .b8 s[16];", strings.ReplaceAll(c.body, ";", ";\n")))
				if err != nil {
					t.Fatal(err)
				}
				run := func() error {
					return d.LaunchBehind(m.Kernel("k"), [3]int{1, 1, 1}, 64, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x10000), 0x20000))
				}
				if err := run(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Fatalf("seed %d: %v, want %q", seed, err, c.want)
				}
			}
		})
	}
}

// hand lets every block add its number to a word and the last one read what all have stored.
func hand(before, behind string) string {
	return entry(".shared .align 16 .u32 last;", strings.ReplaceAll(`
	mul.wide.u32 %rd1, %c, 4; add.s64 %rd1, %a, %rd1;
	setp.ne.s32 %p1, %t, 0;
	@%p1 bra $L_1;
	add.s32 %r9, %c, 7;
	st.global.u32 [%rd1], %r9;
	`+before+`
	atom.global.add.u32 %r1, [%b], 1;
	st.shared.u32 [last], %r1;
	`+behind+`
$L_1: bar.sync 0;
	ld.shared.u32 %r2, [last];
	setp.ne.s32 %p2, %r2, 4;
	setp.gt.s32 %p3, %t, 4;
	or.pred %p2, %p2, %p3;
	@%p2 ret;
	ld.global.cg.u32 %r3, [%at];
	st.global.u32 [%bt+16], %r3;
`, ";", ";\n"))
}

// TestBlocksSeeEachOthersStoresBehindFences covers the order of stores between blocks: with fences what the
// last block reads is there, and without one of them it is a fault, whatever it reads.
func TestBlocksSeeEachOthersStoresBehindFences(t *testing.T) {
	for _, c := range []struct {
		name, before, behind string
		ok                   bool
	}{
		{"both fences", "membar.gl;", "membar.gl;", true},
		{"none before the atomic operation", "", "membar.gl;", false},
		{"none behind it", "membar.gl;", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(8) {
				_, b, _, err := launch(t, hand(c.before, c.behind), 5, seed)
				if !c.ok {
					if err == nil || !strings.Contains(err.Error(), "a store without an order, by thread 0 of block") {
						t.Fatalf("seed %d: %v", seed, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				for i := range uint32(5) {
					if got := binary.LittleEndian.Uint32(b[16+4*i:]); got != i+7 {
						t.Fatalf("seed %d: block %d stored %d", seed, i, got)
					}
				}
			}
		})
	}
}

// TestUninitialisedResultsAreReported holds that the host learns of results that come from uninitialised memory, and not
// of what is left out by a choice.
func TestUninitialisedResultsAreReported(t *testing.T) {
	_, _, d, err := launch(t, entry("", "ld.global.u32 %r1, [%at];\nadd.s32 %r1, %r1, 1;\n"+store), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Read(0x10000, 4*words); err == nil || !strings.Contains(err.Error(), "byte 0 is uninitialised") {
		t.Errorf("the host reads %v", err)
	}
	_, _, d, err = launch(t, entry("", "ld.global.u32 %r1, [%at];\nsetp.ge.s32 %p1, %t, 0;\nselp.b32 %r1, %t, %r1, %p1;\n"+store), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Read(0x10000, 4*words); err != nil {
		t.Error(err)
	}
}

// TestAnotherRunMustHaveTheSameResults covers what Compare finds: stores with other values, and stores that only one of
// both runs makes, even where the launch leaves a whole allocation alone.
func TestAnotherRunMustHaveTheSameResults(t *testing.T) {
	same := func(a, _ []byte) {
		for i := range uint32(words) {
			binary.LittleEndian.PutUint32(a[4*i:], i+1)
		}
	}
	for _, c := range []struct {
		name  string
		again func(a, b []byte)
		want  string
	}{
		{"the same", same, ""},
		{"another value", func(a, b []byte) { same(a, b); a[8] = 9 }, "k: byte 8 of an allocation of 256 bytes: 0x3,"},
		{"no store", func(a, b []byte) { same(a, b); clear(a[:4]) }, "k: byte 0 of an allocation of 256 bytes: 0x1,"},
		{"a store that the launch lacks", func(a, b []byte) { same(a, b); b[20] = 99 }, "k: byte 20 of an allocation of 256 bytes: 0x5,"},
	} {
		d := ptxtest.NewDevice(1)
		d.Keep = true
		a, b, k, err := launchOn(t, d, entry("", "add.s32 %r1, %t, 1;\n"+store), 1)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Compare(k, func() {
			if a[0] != 0 {
				t.Errorf("%s: the memory is not as it was before: %d", c.name, a[0])
			}
			c.again(a, b)
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOperations compares operations with what the PTX ISA defines, on numbers that are hard for them.
func TestOperations(t *testing.T) {
	f := func(v float32) uint32 { return math.Float32bits(v) }
	minus := func(v int32) uint32 { return uint32(v) }
	for _, c := range []struct {
		body string // from %r2 and %r3 to %r1
		a, b uint32
		want uint32
	}{
		{"div.s32 %r1, %r2, %r3;", minus(-7), 2, minus(-3)},
		{"div.s32 %r1, %r2, %r3;", 1 << 31, minus(-1), 1 << 31},
		{"rem.s32 %r1, %r2, %r3;", minus(-7), 2, minus(-1)},
		{"rem.u32 %r1, %r2, %r3;", minus(-7), 2, 1},
		{"shl.b32 %r1, %r2, %r3;", 5, 32, 0},
		{"shr.s32 %r1, %r2, %r3;", minus(-5), 40, minus(-1)},
		{"shr.u32 %r1, %r2, %r3;", minus(-5), 28, 15},
		{"bfe.u32 %r1, %r2, %r3, 8;", 0x12345678, 8, 0x56},
		{"bfe.s32 %r1, %r2, %r3, 8;", 0x1234b678, 8, minus(-0x4a)},
		{"bfe.s32 %r1, %r2, %r3, 31;", 0x42345678, 0, minus(-0x3dcba988)},
		{"shf.l.wrap.b32 %r1, %r2, %r3, 8;", 0x12345678, 0x9abcdef0, 0xbcdef012},
		{"mul.lo.s32 %r1, %r2, %r3;", 1 << 20, 1 << 12, 0},
		{"min.s32 %r1, %r2, %r3;", minus(-1), 1, minus(-1)},
		{"min.u32 %r1, %r2, %r3;", minus(-1), 1, 1},
		{"mul.wide.u16 %r1, %r2, %r3;", 0x1ffff, 3, 0x2fffd},
		{"mul.wide.s32 %rd1, %r2, %r3; shr.s64 %rd1, %rd1, 32; cvt.u32.u64 %r1, %rd1;", minus(-2), 3, minus(-1)},
		{"mul.wide.u32 %rd1, %r2, %r3; shr.u64 %rd1, %rd1, 32; cvt.u32.u64 %r1, %rd1;", minus(-2), 3, 2},
		{"cvt.s64.s32 %rd1, %r2; bfe.s64 %rd1, %rd1, 1, 3; cvt.u32.u64 %r1, %rd1;", 0b1010, 0, minus(-3)},
		{"cvt.s64.s32 %rd1, %r2; popc.b64 %r1, %rd1;", minus(-1), 0, 64},
		{"mov.b32 %f1, %r2; cvt.rzi.s32.f32 %r1, %f1;", f(-2.9), 0, minus(-2)},
		{"mov.b32 %f1, %r2; cvt.rzi.s32.f32 %r1, %f1;", f(3e9), 0, math.MaxInt32},
		{"cvt.rn.f32.u32 %f1, %r2; mov.b32 %r1, %f1;", 0xff000000, 0, f(0xff000000)},
		{"mov.b32 %f1, %r2; cvt.rzi.s32.f32 %r1, %f1;", 0x7fc00000, 0, 0},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; add.rn.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", 0x7f800000, 0xff800000, 0x7fffffff},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; cvt.rn.bf16x2.f32 %r1, %f1, %f2;", f(1.00390625), f(1.01171875), 0x3f803f82},
		{"lop3.b32 %r1, %r2, %r3, 0x43004300, 0xea;", 0x12345678, 0x000f000f, 0x43044308},
		{"lop3.b32 %r1, %r2, %r3, 0x43804380, 0x6a;", 0x12b456f8, 0x00800080, 0x43004300},
		{"prmt.b32 %r1, %r2, %r3, 0x7442;", 0x12345678, 0x4b000000, 0x4b000034},
		{"prmt.b32 %r1, %r2, %r3, 0xb9a8;", 0x12845688, 0, 0xffff},
		// Integers of weights, exactly; halves between two bfloat16, to even; the last of the low numbers; no number.
		{"fma.rn.bf16x2 %r1, %r2, 0x3f803f80, %r3;", 0x430f4300, 0xc308c308, 0x40e0c100},
		{"fma.rn.bf16x2 %r1, %r2, %r3, 0x3f803f80;", 0x3b803c40, 0x3f803f80, 0x3f803f82},
		{"fma.rn.bf16x2 %r1, %r2, %r3, 0x80008000;", 0x00013f80, 0x3f000001, 0x00000001},
		{"fma.rn.bf16x2 %r1, %r2, %r3, 0xff80ff80;", 0x7f803f80, 0x3f803f80, 0x7fffff80},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; setp.leu.f32 %p1, %f1, %f2; selp.u32 %r1, 1, 0, %p1;", 0x7fc00000, f(1), 1},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; setp.neu.f32 %p1, %f1, %f2; selp.u32 %r1, 1, 0, %p1;", 0x7fc00000, 0x7fc00000, 1},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; setp.num.f32 %p1, %f1, %f2; selp.u32 %r1, 1, 0, %p1;", 0x7fc00000, f(1), 0},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; min.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", 0x7fc00000, f(-1), f(-1)},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; min.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", f(1), 0x7fc00000, f(1)},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; min.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", 0, 0x80000000, 0x80000000},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; max.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", 0x7fc00000, f(-1), f(-1)},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; max.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", f(1), 0x7fc00000, f(1)},
		{"mov.b32 %f1, %r2; mov.b32 %f2, %r3; max.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;", 0x80000000, 0, 0},
		{"mov.b32 %f1, %r2; sqrt.rn.f32 %f2, %f1; mov.b32 %r1, %f2;", f(2), 0, f(float32(math.Sqrt2))},
		{"shfl.sync.bfly.b32 %r1, %t, 5, 31, -1; setp.eq.s32 %p1, %t, 33; selp.u32 %r1, %r1, %r2, %p1;", 36, 0, 36},
		{"{ .reg .b16 x; .reg .b16 y; mov.b32 {x, y}, %r2; cvt.f32.f16 %f1, y; } mov.b32 %r1, %f1;", 0xc0010000, 0, f(-2.001953125)},
		{"mul.wide.u32 %rd1, %r2, %r3; { .reg .b32 x; mov.b64 {x, %r1}, %rd1; }", minus(-2), 3, 2},
		{"mul.wide.u32 %rd1, %r2, %r3; { .reg .b32 x; mov.b64 {%r1, x}, %rd1; }", minus(-2), 3, minus(-6)},
		{"{ .reg .f64 d; cvt.rn.f64.u32 d, %r2; cvt.rn.f32.f64 %f1, d; } mov.b32 %r1, %f1;", 1 << 31, 0, f(1 << 31)},
		{"{ .reg .b16 x; .reg .b16 y; mov.b32 {x, y}, %r2; cvt.f32.f16 %f1, x; } mov.b32 %r1, %f1;", 0x00000003, 0, f(3.0 / (1 << 24))},
	} {
		body := fmt.Sprintf("mov.u32 %%r2, %d;\nmov.u32 %%r3, %d;\n%s\n%s", c.a, c.b, c.body, store)
		a, _, _, err := launch(t, entry("", body), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(a[4*33:]); got != c.want {
			t.Errorf("%s with %#x and %#x is %#x, want %#x", c.body, c.a, c.b, got, c.want)
		}
	}
}

// TestFMAIsRoundedOnce compares with exact arithmetic, with numbers whose sums lie near the middle of two floats and
// below the normal ones.
func TestFMAIsRoundedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		x, y := float32(1+r.Uint32N(1<<12))*float32(math.Exp2(float64(-r.IntN(12)))), 1+float32(r.Uint32N(1<<12))/(1<<12)
		z := float32(math.Exp2(float64(24 + r.IntN(30))))
		if r.IntN(3) == 0 { // a subnormal result
			x, z = x*0x1p-130, float32(math.Exp2(float64(-149+r.IntN(20))))
		}
		if r.IntN(2) == 0 {
			z = -z
		}
		exact := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		exact.Add(exact, big.NewFloat(float64(z)))
		want, _ := exact.Float32()
		body := fmt.Sprintf("fma.rn.f32 %%f1, 0f%08X, 0f%08X, 0f%08X;\nmov.b32 %%r1, %%f1;\n%s",
			math.Float32bits(x), math.Float32bits(y), math.Float32bits(z), store)
		a, _, _, err := launch(t, entry("", body), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(a)); got != want {
			t.Errorf("%g·%g + %g is %g, want %g", x, y, z, got, want)
		}
	}
}

// tile returns a kernel of one product: a warp's matrices [16][16] and [16][8] of bfloat16 lie in b as the fragments
// of each lane, a float for each of c's four elements behind them.
func tile() string {
	return version + `.visible .entry k(
	.param .align 8 .b8 k_param_0[16]
)
.maxntid 32, 1, 1
{
	.reg .b32 %r<12>;
	.reg .f32 %f<8>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %tid.x;
	ld.param.u64 %rd1, [k_param_0];
	ld.param.u64 %rd2, [k_param_0+8];
	mul.wide.u32 %rd3, %r1, 48;
	add.s64 %rd2, %rd2, %rd3;
	ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd2];
	ld.global.v2.u32 {%r6,%r7}, [%rd2+16];
	ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd2+32];
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%f1,%f2,%f3,%f4};
	mul.wide.u32 %rd3, %r1, 16;
	add.s64 %rd1, %rd1, %rd3;
	st.global.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};
	ret;
}
`
}

// multiply runs a product of matrices whose elements bfloat16 has. Element (row, k) of x that is not written
// is poison.
func multiply(t *testing.T, d *ptxtest.Device, x [16][16]float32, y [16][8]float32, c [16][8]float32, without map[[2]int]bool) ([16][8]float32, func(row, col int) error) {
	t.Helper()
	m, err := ptxtest.Parse(tile())
	if err != nil {
		t.Fatal(err)
	}
	// From the figures of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": rows by the
	// lane's group, columns by its place in it.
	in, out := make([]byte, 32*48), make([]byte, 32*16)
	const atIn, atOut = 0x1000, 0x4000
	if err := errors.Join(d.Map(atIn, in), d.Map(atOut, out)); err != nil {
		t.Fatal(err)
	}
	put := func(at int, lo, hi float32) {
		binary.LittleEndian.PutUint32(in[at:], math.Float32bits(lo)>>16|math.Float32bits(hi)&0xffff0000)
	}
	for lane := range 32 {
		group, place := lane>>2, lane&3
		at := lane * 48
		for i := range 4 { // a0 and a1 are i = 0, a2 and a3 are i = 1, …
			row, k := group, place*2
			if i == 1 || i == 3 {
				row += 8
			}
			if i >= 2 {
				k += 8
			}
			put(at+4*i, x[row][k], x[row][k+1])
			if !without[[2]int{row, k}] {
				_ = d.Written(atIn+uint64(at+4*i), 4)
			}
		}
		for i := range 2 {
			put(at+16+4*i, y[place*2+8*i][group], y[place*2+8*i+1][group])
		}
		for i := range 4 {
			binary.LittleEndian.PutUint32(in[at+32+4*i:], math.Float32bits(c[group+i/2*8][place*2+i%2]))
		}
		_ = d.Written(atIn+uint64(at+16), 8)
		_ = d.Written(atIn+uint64(at+32), 16)
	}
	args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, atOut), atIn)
	if err := d.Launch(m.Kernel("k"), [3]int{1, 1, 1}, 32, args); err != nil {
		t.Fatal(err)
	}
	var z [16][8]float32
	place := func(row, col int) int { return (row%8*4+col/2)*16 + (row/8*2+col%2)*4 }
	for row := range 16 {
		for col := range 8 {
			z[row][col] = math.Float32frombits(binary.LittleEndian.Uint32(out[place(row, col):]))
		}
	}
	return z, func(row, col int) error { return d.Read(atOut+uint64(place(row, col)), 4) }
}

func TestProductsOfTensorCores(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	short := func() float32 { return float32(r.IntN(255)-127) / 16 } // eight bits
	var x [16][16]float32
	var y, c, want [16][8]float32
	for i := range x {
		for k := range x[i] {
			x[i][k] = short()
		}
		for j := range y[i] {
			y[i][j], c[i][j] = short(), short()
		}
	}
	for i := range want {
		for j := range want[i] {
			want[i][j] = c[i][j]
			for k := range 16 {
				want[i][j] += x[i][k] * y[k][j] // exact
			}
		}
	}
	for _, truncate := range []bool{false, true} {
		d := ptxtest.NewDevice(1)
		d.Truncate = truncate
		got, _ := multiply(t, d, x, y, c, nil)
		if got != want {
			t.Errorf("truncated %v: %v, want %v", truncate, got, want)
		}
	}
	// Poison is in the rows that it is multiplied into, and nowhere else.
	_, read := multiply(t, ptxtest.NewDevice(1), x, y, c, map[[2]int]bool{{3, 6}: true})
	for row := range 16 {
		for col := range 8 {
			if err := read(row, col); (err != nil) != (row == 3) {
				t.Errorf("row %d, column %d: %v", row, col, err)
			}
		}
	}
}

// TestTruncatedProductsLoseTheirLastBits covers what the option adds: small products vanish beside a large one, toward zero.
func TestTruncatedProductsLoseTheirLastBits(t *testing.T) {
	var x [16][16]float32
	var y, c [16][8]float32
	for k := range y {
		y[k][0] = 1
	}
	x[0][0], x[0][1] = 1, 0x1p-24                   // half of 1's last bit, rounded to even
	x[1][0], x[1][1], x[1][2] = 1, 0x1p-26, 0x1p-26 // together the same half, each beyond what is kept
	x[2][0], x[2][1] = 1, -0x1p-26                  // just below 1
	x[3][0], x[3][1] = 1, 0x1.8p-24                 // more than half
	c[4][0], x[4][1] = -1, -0x1.8p-24
	for _, v := range []struct {
		truncate bool
		want     [5]float32
	}{
		{false, [5]float32{1, 1, 1, 1 + 0x1p-23, -1 - 0x1p-23}},
		{true, [5]float32{1, 1, 1, 1, -1}},
	} {
		d := ptxtest.NewDevice(1)
		d.Truncate = v.truncate
		z, _ := multiply(t, d, x, y, c, nil)
		for row, want := range v.want {
			if z[row][0] != want {
				t.Errorf("truncated %v: row %d is %g, want %g", v.truncate, row, z[row][0]-1, want-1)
			}
		}
	}
}

// The rows of four matrices, which a lane names in an order of its own, go where the PTX ISA says, as rows or as columns.
// An uninitialised part of a matrix is poison in the lanes that get it.
func TestMatricesFromSharedMemory(t *testing.T) {
	for _, trans := range []string{"", ".trans"} {
		m, err := ptxtest.Parse(version + `.visible .entry k(
	.param .align 8 .b8 k_param_0[16]
)
.maxntid 32, 1, 1
{
	.reg .pred %p<2>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	.shared .align 16 .b8 s[512];
	mov.u32 %r1, %tid.x;
	ld.param.u64 %rd1, [k_param_0];
	ld.param.u64 %rd2, [k_param_0+8];
	mul.wide.u32 %rd3, %r1, 16;
	add.s64 %rd2, %rd2, %rd3;
	ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd2];
	mov.u32 %r6, s;
	shl.b32 %r7, %r1, 4;
	add.s32 %r8, %r6, %r7;
	cvt.u64.u32 %rd4, %r8;
	st.shared.v4.u32 [%rd4], {%r2,%r3,%r4,%r5};
	bar.sync 0;
	xor.b32 %r9, %r7, 48;
	add.s32 %r9, %r6, %r9;
	ldmatrix.sync.aligned.m8n8.x4` + trans + `.shared.b16 {%r10,%r11,%r12,%r13}, [%r9];
	add.s64 %rd1, %rd1, %rd3;
	st.global.v4.u32 [%rd1], {%r10,%r11,%r12,%r13};
	ret;
}
`)
		if err != nil {
			t.Fatal(err)
		}
		d := ptxtest.NewDevice(1)
		in, out := make([]byte, 512), make([]byte, 512)
		const atIn, atOut = 0x1000, 0x4000
		if err := errors.Join(d.Map(atIn, in), d.Map(atOut, out), d.Written(atIn, 510)); err != nil {
			t.Fatal(err)
		}
		for i := range 256 {
			binary.LittleEndian.PutUint16(in[2*i:], uint16(i))
		}
		args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, atOut), atIn)
		if err := d.Launch(m.Kernel("k"), [3]int{1, 1, 1}, 32, args); err != nil {
			t.Fatal(err)
		}
		for lane := range 32 {
			for matrix := range 4 {
				poison := false
				for e := range 2 {
					row, col := lane/4, lane%4*2+e
					if trans != "" {
						row, col = col, row
					}
					want := uint16((8*matrix+row)^3)*8 + uint16(col) // lane 8·matrix+row names row ^3
					at := lane*16 + matrix*4 + e*2
					if got := binary.LittleEndian.Uint16(out[at:]); got != want {
						t.Errorf("%s: lane %d, matrix %d, element %d is %d, want %d", trans, lane, matrix, e, got, want)
					}
					poison = poison || want >= 254 // words are poison
				}
				if err := d.Read(atOut+uint64(lane*16+matrix*4), 4); (err != nil) != poison {
					t.Errorf("%s: lane %d, matrix %d: %v, poison: %v", trans, lane, matrix, err, poison)
				}
			}
		}
	}
}
