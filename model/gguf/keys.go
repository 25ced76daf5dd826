package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"talf/internal/mapped"
)

// Kinds of values.
const (
	kindU8 = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// kindSizes are the bytes of values that have a fixed size.
var kindSizes = map[uint32]int{
	kindU8: 1, kindI8: 1, kindU16: 2, kindI16: 2, kindU32: 4, kindI32: 4, kindF32: 4, kindBool: 1,
	kindU64: 8, kindI64: 8, kindF64: 8,
}

// kindNames are the kinds in errors.
var kindNames = map[uint32]string{
	kindU8: "u8", kindI8: "i8", kindU16: "u16", kindI16: "i16", kindU32: "u32", kindI32: "i32", kindF32: "f32", kindBool: "bool",
	kindString: "texts", kindU64: "u64", kindI64: "i64", kindF64: "f64",
}

// A value is a value, or an array of them, as it lies in the file.
type value struct {
	kind  uint32 // of the elements of an array
	array bool
	n     uint64 // elements; 1 unless array
	raw   []byte
}

// int returns an integer of any width, if v is one that int64 holds.
func (v value) int() (int64, bool) {
	if v.array || len(v.raw) == 0 {
		return 0, false
	}
	return v.at(0)
}

// at returns element i of an array of integers.
func (v value) at(i int) (int64, bool) {
	b := v.raw
	switch v.kind {
	case kindU8:
		return int64(b[i]), true
	case kindI8:
		return int64(int8(b[i])), true
	case kindU16:
		return int64(binary.LittleEndian.Uint16(b[2*i:])), true
	case kindI16:
		return int64(int16(binary.LittleEndian.Uint16(b[2*i:]))), true
	case kindU32:
		return int64(binary.LittleEndian.Uint32(b[4*i:])), true
	case kindI32:
		return int64(int32(binary.LittleEndian.Uint32(b[4*i:]))), true
	case kindU64, kindI64:
		u := binary.LittleEndian.Uint64(b[8*i:])
		return int64(u), v.kind == kindI64 || u <= math.MaxInt64
	}
	return 0, false
}

// uint is int for what is not negative.
func (v value) uint() (uint64, bool) {
	n, ok := v.int()
	return uint64(n), ok && n >= 0
}

// is reports whether v is the integer n.
func (v value) is(n uint64) bool { got, ok := v.uint(); return ok && got == n }

// same reports whether v and w are equal integers.
func (v value) same(w value) bool { n, ok := w.uint(); return ok && v.is(n) }

// float returns a number of float type, as the shortest decimal number that rounds to it: a
// float32 of 1e-5 is 1e-5, as in the configuration that it was converted from.
func (v value) float() (float64, bool) {
	switch {
	case v.array:
	case v.kind == kindF32:
		f := math.Float32frombits(binary.LittleEndian.Uint32(v.raw))
		return short(f), true
	case v.kind == kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw)), true
	}
	return 0, false
}

// short returns the number of the shortest decimal that rounds to f.
func short(f float32) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil { // only of what is no finite number
		return float64(f)
	}
	return x
}

// texts calls f with the strings of v, which may be an array of them, until f returns false.
func (v value) texts(f func(i int, s []byte) bool) {
	b := v.raw
	for i := 0; len(b) >= 8; i++ {
		n := binary.LittleEndian.Uint64(b)
		if !f(i, b[8:][:n]) {
			return
		}
		b = b[8+n:]
	}
}

func (v value) text() (s string, ok bool) {
	if v.array || v.kind != kindString {
		return "", false
	}
	v.texts(func(_ int, b []byte) bool { s = string(b); return false })
	return s, true
}

// String describes v for errors.
func (v value) String() string {
	if v.array {
		return fmt.Sprintf("an array of %d %s", v.n, kindNames[v.kind])
	}
	if n, ok := v.int(); ok {
		return strconv.FormatInt(n, 10)
	}
	if x, ok := v.float(); ok {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	if s, ok := v.text(); ok {
		return fmt.Sprintf("%.40q", s)
	}
	switch {
	case len(v.raw) == 0:
		return "not set"
	case v.kind == kindBool:
		return strconv.FormatBool(v.raw[0] != 0)
	}
	return strconv.FormatUint(binary.LittleEndian.Uint64(v.raw), 10)
}

// A reader reads keys by name and keeps the first error, which names the file, the key and what
// was expected.
type reader struct {
	f        *File
	err      error
	warnings []string // each names the file, too
	pre      string   // what tokenizer.ggml.pre is taken to be; "" for what it is
}

func (f *File) reader() *reader { return &reader{f: f} }

func (k *reader) has(key string) bool { _, ok := k.f.keys[key]; return ok }

// bad records that a key is not what was expected.
func (k *reader) bad(key, want string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf("%s: key %q is %v, want %s", k.f.Path, key, k.f.keys[key], fmt.Sprintf(want, args...))
	}
}

// required is a default that makes a missing key an error.
const required = math.MinInt

// maxCount bounds every size. Those of layers and products of sizes are for package arch to check.
const maxCount = 1 << 26

// count reads an integer of at least 0. An array of equal ones is taken for one.
func (k *reader) count(key string, def int) int {
	v, ok := k.f.keys[key]
	if !ok {
		if def == required {
			k.bad(key, "an integer")
		}
		return def
	}
	n, ok := v.int()
	if v.array && v.n > 0 {
		if n, ok = v.at(0); ok {
			for i := range int(v.n) {
				if x, _ := v.at(i); x != n {
					k.bad(key, "one integer for all layers: %d and %d differ", n, x)
					return 0
				}
			}
		}
	}
	if !ok || n < 0 || n > maxCount {
		k.bad(key, "an integer from 0 to %d", maxCount)
		return 0
	}
	return int(n)
}

// float reads a number; a missing one is an error if def is NaN.
func (k *reader) float(key string, def float64) float64 {
	v, ok := k.f.keys[key]
	if !ok {
		if def != def {
			k.bad(key, "a number")
		}
		return def
	}
	x, ok := v.float()
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		k.bad(key, "a finite number of type f32 or f64")
		return 0
	}
	return x
}

func (k *reader) bool(key string, def bool) bool {
	v, ok := k.f.keys[key]
	if !ok {
		return def
	}
	if v.array || v.kind != kindBool {
		k.bad(key, "a bool")
		return def
	}
	return v.raw[0] != 0
}

// string reads a text; "" if it is missing.
func (k *reader) string(key string) string {
	v, ok := k.f.keys[key]
	if !ok {
		return ""
	}
	s, ok := v.text()
	if !ok || !utf8.ValidString(s) {
		k.bad(key, "a text in UTF-8")
		return ""
	}
	return s
}

// A Raw is a key with its value as it lies in a file: the number of its type and its bytes, which
// for an array begin with the type and the number of its elements.
type Raw struct {
	Name  string
	Type  uint32
	Value []byte
}

// Raw returns the keys whose names begin with prefix, by name. Their values are copies.
func (f *File) Raw(prefix string) (all []Raw) {
	for _, name := range slices.Sorted(maps.Keys(f.keys)) {
		v := f.keys[name]
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		r := Raw{Name: name, Type: v.kind}
		if v.array {
			r.Type = kindArray
			r.Value = binary.LittleEndian.AppendUint32(r.Value, v.kind)
			r.Value = binary.LittleEndian.AppendUint64(r.Value, v.n)
		}
		r.Value = append(r.Value, v.raw...)
		all = append(all, r)
	}
	return all
}

// Texts returns the keys whose names begin with prefix and whose values are texts.
func (f *File) Texts(prefix string) map[string]string {
	all := make(map[string]string)
	for name, v := range f.keys {
		if s, ok := v.text(); ok && strings.HasPrefix(name, prefix) {
			all[name] = s
		}
	}
	return all
}

// Tokenizer returns the keys of a file's tokenizer and chat template.
func Tokenizer(path string) (keys []Raw, err error) {
	defer mapped.Guard(&err)()
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	return f.Raw("tokenizer."), nil
}
