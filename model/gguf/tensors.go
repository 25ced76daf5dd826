package gguf

import (
	"fmt"
	"strconv"
	"strings"

	"talf/internal/limits"
	"talf/internal/mapped"
	"talf/model/ggml"
)

// A Tensor is one of the model's, by its name in a Hugging Face directory; those that have none
// there keep theirs.
type Tensor struct {
	Name  string
	Type  *ggml.Type
	Shape []int  // the length of a row comes last
	Data  []byte // mapped until the file is closed
	// Order is the stored row that each row is, or nil if rows are in order. Rows of a vector are its
	// elements.
	Order []int
	File  string // that holds it, of a model in several
}

// Tensors returns the model's tensors in the order of the file.
func (f *File) Tensors() (all []Tensor, err error) {
	defer mapped.Guard(&err)()
	c, fam, err := f.config()
	if err != nil {
		return nil, err
	}
	from := make(map[string]string, len(f.infos))
	for i := range f.infos {
		t := &f.infos[i]
		switch t.name { // the configuration says so
		case ropeFactors:
			if fam.Arch == HeadArch {
				continue
			}
		case longFactors, shortFactors:
			continue
		}
		name, module := fam.rename(t.name)
		if other, dup := from[name]; dup {
			return nil, fmt.Errorf("%s: tensors %q and %q are both %s", t.file, other, t.name, name)
		}
		from[name] = t.name
		if module != "" && strings.Contains(name, "%d") {
			parts, err := t.apart(name)
			if err != nil {
				return nil, err
			}
			if all = append(all, parts...); len(all) > limits.Tensors {
				return nil, fmt.Errorf("%s: tensor %q: more than %d tensors of all experts", t.file, t.name, limits.Tensors)
			}
			continue
		}
		x := Tensor{Name: name, Type: t.typ, Shape: t.dims, Data: t.data, File: t.file}
		if t.typ == plainI64 {
			x.Data = t.offsets()
		}
		switch n := len(t.dims); {
		case module == sharedRouter && n == 1:
			x.Shape = []int{1, t.dims[0]} // files have no dimensions of 1 at the end
		case module == convolution && n == 2:
			x.Shape = []int{t.dims[0], 1, t.dims[1]}
		case stacked[module] && n == 3:
			x.Shape = []int{t.dims[0] * t.dims[1], t.dims[2]}
		}
		if fam.Order != nil {
			var ok bool
			if x.Order, ok = fam.Order(c, module, t.dims[0]); !ok || x.Order != nil && len(t.dims) == 1 && t.typ.Elems > 1 {
				return nil, fmt.Errorf("%s: tensor %q is %s of shape %v, want a row for each element of the heads, whose number and size the keys give", t.file, t.name, t.typ.Name, t.dims)
			}
		}
		all = append(all, x)
	}
	return all, nil
}

// rename returns the name that a tensor has in a Hugging Face directory, and its module as in
// family.Names; the module is "" if there is none.
func (fam *family) rename(name string) (to, module string) {
	module, kind := cutLast(name)
	if kind != "weight" && kind != "bias" {
		module, kind = name, ""
	}
	layer := 0
	if rest, ok := strings.CutPrefix(module, "blk."); ok {
		number, rest, _ := strings.Cut(rest, ".")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || strconv.FormatUint(n, 10) != number {
			return name, ""
		}
		layer, module = int(n), "blk."+rest
	}
	to, ok := fam.Names[module]
	if !ok || kind == "" && !bare[module] {
		return name, ""
	}
	to = strings.Replace(to, "%d", strconv.Itoa(layer), 1)
	if bare[module] {
		return to, module
	}
	return to + "." + kind, module
}

// apart returns the parts of a tensor of all experts, [experts][rows][columns] or biases of [experts][rows]. Name has
// a place for the number of the expert.
func (t *info) apart(name string) (all []Tensor, err error) {
	if len(t.dims) < 2 || len(t.dims) > 3 || t.dims[0] < 1 || t.dims[0] > limits.Tensors {
		return nil, fmt.Errorf("%s: tensor %q has shape %v, want [experts][rows][columns], or [experts][rows] of a bias, and at most %d experts", t.file, t.name, t.dims, limits.Tensors)
	}
	n := t.dims[0]
	size := len(t.data) / n
	for e := range n {
		all = append(all, Tensor{Name: strings.Replace(name, "%d", strconv.Itoa(e), 1), Type: t.typ, Shape: t.dims[1:], Data: t.data[e*size:][:size:size], File: t.file})
	}
	return all, nil
}

// cutLast cuts s around its last dot.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}
