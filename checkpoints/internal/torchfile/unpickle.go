package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"
)

// A storage is a run of elements in the archive.
type storage struct {
	key string
	el  element
	n   int
}

// A tensor is a view of a storage.
type tensor struct {
	name          string
	from          *storage
	offset        int
	shape, stride []int
}

func (t *tensor) len() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// gather returns the elements of t row by row; b is the bytes of t's storage.
func (t *tensor) gather(b []byte) []byte {
	size, n := t.from.el.size, t.len()
	want, contiguous := 1, true
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] != 1 && t.stride[i] != want {
			contiguous = false
		}
		want *= t.shape[i]
	}
	if contiguous || n == 0 {
		at := min(t.offset*size, len(b))
		return b[at : at+n*size : at+n*size]
	}
	out := make([]byte, 0, n*size)
	index := make([]int, len(t.shape))
	for range n {
		at := t.offset
		for i, x := range index {
			at += x * t.stride[i]
		}
		out = append(out, b[at*size:][:size]...)
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < t.shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return out
}

// load returns the value that a pickle describes, after checking that it contains only
// tensors, dictionaries, lists and numbers.
func load(p []byte) (v any, err error) {
	if err := scan(p); err != nil {
		return nil, err
	}
	// gopickle trusts its input: it panics on a dictionary of odd length or an invalid
	// key.
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, errors.New(clip(fmt.Sprintf("not a pickle: %v", r)))
		}
	}()
	u := pickle.NewUnpickler(bytes.NewReader(p))
	u.FindClass = findClass
	u.PersistentLoad = persistent
	if v, err = u.Load(); err != nil {
		return nil, errors.New(clip(err.Error()))
	}
	return v, nil
}

// unpickle returns the dictionary of tensors that a pickle describes.
func unpickle(p []byte) (ts []*tensor, err error) {
	v, err := load(p)
	if err != nil {
		return nil, err
	}
	add := func(key, value any) error {
		name, ok := key.(string)
		if !ok || len(name) > 1024 {
			return fmt.Errorf("a key is not a string of at most 1024 bytes")
		}
		t, ok := value.(*tensor)
		if !ok {
			return fmt.Errorf("%q is not a tensor: want a dictionary of tensors, as state_dict returns", clip(name))
		}
		one := *t
		one.name = name
		ts = append(ts, &one)
		return nil
	}
	seen := make(map[any]bool)
	switch d := v.(type) {
	case *types.OrderedDict:
		for e := d.List.Front(); e != nil; e = e.Next() {
			x := e.Value.(*types.OrderedDictEntry)
			if err := add(x.Key, x.Value); err != nil {
				return nil, err
			}
		}
	case *types.Dict:
		for _, x := range *d {
			if err := add(x.Key, x.Value); err != nil {
				return nil, err
			}
			if seen[x.Key] {
				return nil, fmt.Errorf("%q occurs twice", clip(x.Key.(string)))
			}
			seen[x.Key] = true
		}
	default:
		return nil, errors.New("want a dictionary of tensors, as state_dict returns")
	}
	return ts, nil
}

// findClass returns the meaning of the names that allowed accepts.
func findClass(module, name string) (any, error) {
	if err := allowed(module, name); err != nil {
		return nil, err
	}
	switch name {
	case "_rebuild_tensor_v2":
		return rebuild{}, nil
	case "_rebuild_parameter":
		return parameter{}, nil
	}
	return storages[name], nil
}

// persistent returns the storage that a persistent id refers to: ("storage", class,
// key, device, elements).
func persistent(id any) (any, error) {
	t, ok := id.(*types.Tuple)
	if !ok || t.Len() != 5 || t.Get(0) != "storage" {
		return nil, errors.New("a reference to something that is not a storage")
	}
	el, ok1 := t.Get(1).(element)
	key, ok2 := t.Get(2).(string)
	n, ok3 := t.Get(4).(int)
	if !ok1 || !ok2 || !ok3 || n < 0 || n > math.MaxInt32*16 {
		return nil, errors.New("a storage without a known type, key and size")
	}
	return &storage{key: key, el: el, n: n}, nil
}

// rebuild implements torch._utils._rebuild_tensor_v2.
type rebuild struct{}

// Call makes a tensor of (storage, offset, shape, strides, requires_grad, hooks).
func (rebuild) Call(args ...any) (any, error) {
	if len(args) < 6 || len(args) > 7 {
		return nil, fmt.Errorf("a tensor of %d arguments, want 6 or 7", len(args))
	}
	s, ok1 := args[0].(*storage)
	offset, ok2 := args[1].(int)
	shape, ok3 := ints(args[2])
	stride, ok4 := ints(args[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || len(shape) != len(stride) {
		return nil, errors.New("a tensor without storage, offset, shape and strides")
	}
	t := &tensor{from: s, offset: offset, shape: shape, stride: stride}
	outside := fmt.Errorf("a tensor of shape %v with strides %v from %d leaves its storage of %d elements", shape, stride, offset, s.n)
	if offset < 0 || offset > s.n {
		return nil, outside
	}
	if slices.Contains(shape, 0) {
		return t, nil
	}
	n, last := 1, offset
	for i, d := range shape {
		if n > s.n/d {
			return nil, fmt.Errorf("a tensor of shape %v in a storage of %d elements", shape, s.n)
		}
		n *= d
		if d > 1 && stride[i] > (s.n-last)/(d-1) {
			return nil, outside
		}
		if last += (d - 1) * stride[i]; last >= s.n {
			return nil, outside
		}
	}
	if last >= s.n {
		return nil, outside
	}
	return t, nil
}

// parameter implements torch._utils._rebuild_parameter, whose first argument is a
// tensor.
type parameter struct{}

func (parameter) Call(args ...any) (any, error) {
	if len(args) == 3 {
		if t, ok := args[0].(*tensor); ok {
			return t, nil
		}
	}
	return nil, errors.New("a parameter that is not a tensor")
}

// ints returns the integers of a tuple, which must be few and not negative.
func ints(v any) ([]int, bool) {
	t, ok := v.(*types.Tuple)
	if !ok || t.Len() > maxDims {
		return nil, false
	}
	out := make([]int, t.Len())
	for i := range out {
		x, ok := t.Get(i).(int)
		if !ok || x < 0 || x > math.MaxInt32 {
			return nil, false
		}
		out[i] = x
	}
	return out, true
}

var _, _ types.Callable = rebuild{}, parameter{}
