package kern

import (
	"reflect"
	"strings"
	"testing"
)

func TestSelfTestPasses(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		n := 0
		if err := f.SelfTest(func(string) { n++ }); err != nil || n == 0 {
			t.Errorf("%d kernels, %v", n, err)
		}
	})
}

// Every kernel of a table counts: one that changes the last bit of an element is named.
func TestSelfTestFindsEveryKernel(t *testing.T) {
	table, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	for field, v := range reflect.ValueOf(*table).Fields() {
		if v.Kind() != reflect.Func || !field.IsExported() || v.IsNil() || field.Name == "SplitA" || field.Name == "GemmSplit" {
			continue // tiles' products of bfloat16 have bits of their own
		}
		f := *table
		// The first slice, or the result, is spoilt.
		reflect.ValueOf(&f).Elem().FieldByName(field.Name).Set(reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
			out := v.Call(args)
			if len(out) > 0 {
				return []reflect.Value{spoilt(out[0])}
			}
			if args[0].Len() > 0 {
				last := args[0].Index(min(args[0].Len(), 16) - 1)
				last.Set(spoilt(last))
			}
			return nil
		}))
		if err := f.SelfTest(func(string) {}); err == nil || !strings.Contains(err.Error(), field.Name) {
			t.Errorf("%s differs from plain Go: %v", field.Name, err)
		}
	}
}

type unpackedProduct = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte)

func TestSelfTestFindsUnpackedProducts(t *testing.T) {
	table, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	// the first format that each multiplies
	minima := "Q4_1"
	if table.gemmQ41 != nil {
		minima = "Q5_1"
	}
	type product struct {
		name  string
		field func(f *Funcs) *unpackedProduct
	}
	products := []product{
		{"Q5_0", func(f *Funcs) *unpackedProduct { return &f.unpackedQ8 }},
		{minima, func(f *Funcs) *unpackedProduct { return &f.unpackedQ8M }},
	}
	if table.unpackedQ5 != nil {
		products = append(products,
			product{"Q5_0 with 1", func(f *Funcs) *unpackedProduct { return &f.unpackedQ5 }},
			product{minima + " with 1", func(f *Funcs) *unpackedProduct { return &f.unpackedQ5M }})
	}
	for _, p := range products {
		f := *table
		inner := *p.field(table)
		*p.field(&f) = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte) {
			inner(c, ldc, a, ars, b, rows, blocks, planes, acc, next)
			c[5]++
		}
		if err := f.SelfTest(func(string) {}); err == nil || !strings.Contains(err.Error(), "GemmCompact of "+p.name) {
			t.Errorf("a product with %s differs from plain Go: %v", p.name, err)
		}
	}
	for name, field := range map[string]func(f *Funcs) *gemmIntegers{
		"Q4_1": func(f *Funcs) *gemmIntegers { return &f.gemmQ41 },
		"Q5_0": func(f *Funcs) *gemmIntegers { return &f.gemmQ50 },
	} {
		f := *table
		inner := *field(table)
		if inner == nil {
			continue
		}
		*field(&f) = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
			inner(c, ldc, a, ars, b, rows, blocks, planes, acc)
			c[5]++
		}
		if err := f.SelfTest(func(string) {}); err == nil || !strings.Contains(err.Error(), "GemmCompact of "+name) {
			t.Errorf("a product that reads %s differs from plain Go: %v", name, err)
		}
	}
}

func spoilt(v reflect.Value) reflect.Value {
	switch x := v.Interface().(type) {
	case float32:
		return reflect.ValueOf(x + 1)
	case uint32:
		return reflect.ValueOf(x ^ 0x40)
	case int:
		return reflect.ValueOf(x + 1)
	}
	panic("a kernel of another type")
}
