package kern

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// A Class is a set of instructions that kernels are written for.
type Class uint8

// The classes, those of one architecture slowest first.
const (
	Portable   Class = iota
	AVX2             // AVX2, FMA and F16C
	AVXVNNI          // AVX2 and AVX-VNNI
	AVX512           // AVX2 and AVX-512 F, BW, DQ, VL
	AVX512VNNI       // AVX512 and AVX-512 VNNI, and AVX-512 BF16 where the processor has it
	AMX              // AVX512VNNI and AMX TILE, BF16, INT8
	NEON             // of arm64, which always has it
	NEONDot          // NEON and products of bytes, summed by fours (FEAT_DotProd)
	NEONI8MM         // NEONDot and products of 2×2 sums of bytes (FEAT_I8MM)
)

var names = [...]string{
	Portable:   "portable",
	AVX2:       "avx2",
	AVXVNNI:    "avxvnni",
	AVX512:     "avx512",
	AVX512VNNI: "avx512vnni",
	AMX:        "amx",
	NEON:       "neon",
	NEONDot:    "neondot",
	NEONI8MM:   "neoni8mm",
}

// String returns the name that ParseClass and EnvClass take.
func (c Class) String() string {
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// ParseClass returns the class called name.
func ParseClass(name string) (Class, error) {
	if i := slices.Index(names[:], name); i >= 0 {
		return Class(i), nil
	}
	last := len(names) - 1
	return 0, fmt.Errorf("kern: no class %q: want %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// EnvClass names the environment variable that bounds the classes of a process: it names the best that
// Available has, as on a machine without the better ones. A name that is none, or that of a class that the
// machine has not, leaves no class at all: For says so.
const EnvClass = "TALF_CLASS"

// bound is what EnvClass said when it was first asked for.
var bound = sync.OnceValues(func() (Class, error) { return boundOf(os.Getenv(EnvClass), Offered()) })

// boundOf returns the class called name, which is one of those offered, or their best if name is empty.
func boundOf(name string, offered []Class) (Class, error) {
	if name == "" {
		return offered[len(offered)-1], nil
	}
	c, err := ParseClass(name)
	if err == nil && !slices.Contains(offered, c) {
		err = missing(c, offered)
	}
	if err != nil {
		return Portable, fmt.Errorf("%s=%s: %w", EnvClass, name, err)
	}
	return c, nil
}

func missing(c Class, offered []Class) error {
	if c == AMX {
		return fmt.Errorf("kern: class %v is not available here: %w", c, NoAMX())
	}
	return fmt.Errorf("kern: class %v is not available here: have %v", c, offered)
}

// For returns the kernels of class c, or an error if this process cannot run them. The table is
// shared: treat it as constant.
func For(c Class) (*Funcs, error) {
	best, err := bound()
	switch {
	case err != nil:
		return nil, err
	case !offers(c):
		return nil, missing(c, Offered())
	case c > best:
		return nil, fmt.Errorf("kern: class %v is not available here: %s=%v", c, EnvClass, best)
	}
	return table(c), nil
}

// Best returns the fastest class that this process can run.
func Best() Class {
	c, _ := bound()
	return c
}

// Available returns the classes that this process can run, slowest first. Portable is always one of
// them.
func Available() []Class {
	best := Best()
	return slices.DeleteFunc(Offered(), func(c Class) bool { return c > best })
}

// Offered returns the classes that this machine and this build can run, slowest first, whatever
// EnvClass says.
func Offered() []Class {
	var cs []Class
	for c := range Class(len(names)) {
		if offers(c) {
			cs = append(cs, c)
		}
	}
	return cs
}
