//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"talf/compute"
)

// positions is the number of positions in a KV block.
const positions = compute.BlockLen

// mostDim is the largest head dimension of the attention kernels, narrowDim that of the kernels with smaller blocks.
const (
	mostDim   = 256
	narrowDim = 128
)

// A store keeps keys and values in chunks that never move, found through a table on the
// device. Store in kernels.cu describes the layout of a chunk.
type store struct {
	dev   *device
	c     compute.KVConfig
	unit  int64 // bytes of a block, all layers and heads
	per   int   // blocks of a chunk
	table *block

	mu     sync.Mutex // of what follows
	chunks []*block
}

// maxChunks is the length of the table, chunkSize about the bytes of a chunk.
const (
	maxChunks = 1 << 14
	chunkSize = 16 << 20
)

// NewKV returns an empty store of F32 or BF16.
func (d *device) NewKV(c compute.KVConfig) (compute.KV, error) {
	if c.Layers < 1 || c.KVHeads < 1 || c.HeadDim < 2 || c.HeadDim%2 != 0 {
		return nil, fmt.Errorf("cuda: KV of %d layers, %d heads of %d", c.Layers, c.KVHeads, c.HeadDim)
	}
	if c.HeadDim > mostDim {
		return nil, fmt.Errorf("cuda: KV of heads of %d elements, want at most %d", c.HeadDim, mostDim)
	}
	if c.Latent != 0 {
		return nil, errors.New("cuda: KV whose values are parts of keys (multi-head latent attention)")
	}
	if c.Type != compute.F32 && c.Type != compute.BF16 {
		return nil, fmt.Errorf("cuda: KV of %v, want F32 or BF16", c.Type)
	}
	s := &store{dev: d, c: c}
	s.unit, s.per = kvUnit(c)
	var err error
	if s.table, err = d.alloc("a table of keys and values", 8*maxChunks, true); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return s, nil
}

// kvUnit returns the bytes of a block and the blocks of a chunk.
func kvUnit(c compute.KVConfig) (unit int64, per int) {
	unit = int64(c.Layers) * int64(c.KVHeads) * 2 * positions * int64((c.HeadDim+7)/8*8) * int64(c.Type.Size())
	return unit, int(max(1, chunkSize/unit))
}

func (s *store) Config() compute.KVConfig { return s.c }

// Blocks returns the blocks available.
func (s *store) Blocks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.chunks) * s.per
}

// Grow makes at least this many blocks available. Existing blocks do not move.
func (s *store) Grow(blocks int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if blocks < 0 || blocks > maxChunks*s.per {
		return fmt.Errorf("cuda: grow KV to %d blocks, want at most %d", blocks, maxChunks*s.per)
	}
	for len(s.chunks)*s.per < blocks {
		c, err := s.dev.alloc(fmt.Sprintf("keys and values of %d more positions", s.per*positions), s.unit*int64(s.per), false)
		if err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		var p [8]byte
		binary.LittleEndian.PutUint64(p[:], c.ptr)
		if err := s.dev.upload(s.table.ptr+8*uint64(len(s.chunks)), p[:]); err != nil {
			return fmt.Errorf("cuda: grow KV: %w", err)
		}
		s.chunks = append(s.chunks, c)
	}
	return nil
}

func (s *store) args() storeArgs {
	return storeArgs{
		chunks: s.table.ptr, per: int64(s.per),
		layers: int64(s.c.Layers), heads: int64(s.c.KVHeads), dim: int64(s.c.HeadDim),
	}
}

func (d *device) storeOf(op string, kv compute.KV) *store {
	s, ok := kv.(*store)
	if !ok || s.dev != d {
		panic("cuda: " + op + ": a KV of another device")
	}
	return s
}

// checkSlot panics unless slot is one of the first blocks.
func checkSlot(op string, slot int32, blocks int) {
	if slot < 0 || int(slot) >= blocks*positions {
		panic(fmt.Sprintf("cuda: %s: slot %d of %d blocks", op, slot, blocks))
	}
}
