package torchfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// An operand is the kind of data that follows an opcode.
type operand byte

const (
	none   operand = iota
	one            // 1 byte
	two            // 2 bytes
	four           // 4 bytes
	eight          // 8 bytes
	len1           // a byte n, then n bytes
	len4           // 4 bytes n, then n bytes
	lines          // two lines: a module and a name in it
	frame          // 8 bytes: the length of what follows, which is not skipped
	number         // an integer, as len1
)

// opcodes are the opcodes of pickle protocols 2 to 5 that make up a dictionary of
// tensors (Python's pickletools lists all opcodes).
var opcodes = map[byte]operand{
	'\x80': one, '.': none, '(': none, // PROTO, STOP, MARK
	'c': lines, '\x93': none, 'R': none, 'b': none, 'Q': none, // GLOBAL, STACK_GLOBAL, REDUCE, BUILD, BINPERSID
	'X': len4, '\x8c': len1, // BINUNICODE, SHORT_BINUNICODE
	'J': four, 'K': one, 'M': two, '\x8a': number, 'G': eight, // BININT, BININT1, BININT2, LONG1, BINFLOAT
	'N': none, '\x88': none, '\x89': none, // NONE, NEWTRUE, NEWFALSE
	')': none, 't': none, '\x85': none, '\x86': none, '\x87': none, // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
	'}': none, 's': none, 'u': none, ']': none, 'a': none, 'e': none, // EMPTY_DICT, SETITEM, SETITEMS, EMPTY_LIST, APPEND, APPENDS
	'q': one, 'r': four, 'h': one, 'j': four, '\x94': none, // BINPUT, LONG_BINPUT, BINGET, LONG_BINGET, MEMOIZE
	'\x95': frame,
}

// scan reads a pickle from end to end without executing it. Pickles have no jumps, so
// opcodes that are not in it cannot be executed. After a scan, no length in the pickle
// is larger than the pickle, and every name that it asks for is one that allowed
// accepts: gopickle resolves a few names itself, without asking findClass.
func scan(p []byte) error {
	known := texts{memo: make(map[uint32]*string)}
	for at := 0; at < len(p); {
		op, here := p[at], at
		at++
		kind, ok := opcodes[op]
		if !ok {
			return fmt.Errorf("byte %d: opcode %#02x, which no dictionary of tensors needs", here, op)
		}
		n, left := 0, p[at:]
		switch kind {
		case one:
			n = 1
		case two:
			n = 2
		case four:
			n = 4
		case eight, frame:
			n = 8
		case len1, number:
			if len(left) > 0 {
				n = 1 + int(left[0])
			} else {
				n = 1
			}
		case len4:
			n = 4
			if len(left) >= 4 {
				n += int(min(binary.LittleEndian.Uint32(left), 1<<30))
			}
		case lines:
			for range 2 {
				i := bytes.IndexByte(left[n:], '\n')
				if i < 0 {
					n = len(left) + 1
					break
				}
				n += i + 1
			}
		}
		if n > len(left) {
			return fmt.Errorf("byte %d: opcode %#02x takes %d bytes, but %d follow: truncated?", here, op, n, len(left))
		}
		switch arg := left[:n]; {
		case kind == frame && binary.LittleEndian.Uint64(arg) > uint64(len(left)-8):
			return fmt.Errorf("byte %d: a frame of %d bytes, but %d follow: truncated?", here, binary.LittleEndian.Uint64(arg), len(left)-8)
		case kind == number && (n < 2 || n > 9):
			return fmt.Errorf("byte %d: an integer of %d bytes, want 1 to 8", here, n-1)
		case kind == lines:
			f := bytes.Split(arg, []byte("\n"))
			if err := allowed(string(f[0]), string(f[1])); err != nil {
				return fmt.Errorf("byte %d: %w", here, err)
			}
		}
		if err := known.after(op, left[:n]); err != nil {
			return fmt.Errorf("byte %d: %w", here, err)
		}
		at += n
		if op == '.' {
			return nil
		}
	}
	return fmt.Errorf("%d bytes without an end: truncated?", len(p))
}

// texts are what scan knows of the machine's stack and memo. STACK_GLOBAL takes a module
// and a name from the stack, which a pickler has put there right before it, either as
// texts or by their numbers in the memo.
type texts struct {
	below, top *string // last two entries of the stack; nil: not known to be a text
	memo       map[uint32]*string
}

// after follows one opcode, and refuses a STACK_GLOBAL whose names are not known.
func (k *texts) after(op byte, arg []byte) error {
	push := func(s *string) { k.below, k.top = k.top, s }
	index := func() uint32 { // of BINPUT and BINGET, short and long
		if len(arg) == 1 {
			return uint32(arg[0])
		}
		return binary.LittleEndian.Uint32(arg)
	}
	switch op {
	case 'X': // BINUNICODE
		s := string(arg[4:])
		push(&s)
	case '\x8c': // SHORT_BINUNICODE
		s := string(arg[1:])
		push(&s)
	case 'h', 'j': // BINGET, LONG_BINGET
		push(k.memo[index()])
	case 'q', 'r': // BINPUT, LONG_BINPUT
		k.memo[index()] = k.top
	case '\x94': // MEMOIZE
		k.memo[uint32(len(k.memo))] = k.top
	case '\x95': // FRAME
	case '\x93': // STACK_GLOBAL
		if k.below == nil || k.top == nil {
			return errors.New("STACK_GLOBAL without a module and a name right before it")
		}
		if err := allowed(*k.below, *k.top); err != nil {
			return err
		}
		fallthrough
	default:
		k.below, k.top = nil, nil
	}
	return nil
}

// allowed refuses all names except those of tensors and dictionaries.
func allowed(module, name string) error {
	switch module {
	case "collections":
		if name == "OrderedDict" {
			return nil
		}
	case "torch._utils":
		if name == "_rebuild_tensor_v2" || name == "_rebuild_parameter" {
			return nil
		}
	case "torch":
		if _, ok := storages[name]; ok {
			return nil
		}
	}
	return fmt.Errorf("it asks for %q of module %q: refused, nothing but tensors is taken out of a pickle", clip(name), clip(module))
}

// clip shortens text from a file for error messages.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
