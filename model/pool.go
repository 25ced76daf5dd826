package model

import (
	"talf/compute"
	"talf/model/internal/kvpool"
)

const blockLen = compute.BlockLen

// ErrKVFull says that the KV pool has too few free blocks for a pass. Forward returns it, as a
// *KVFullError, before anything has changed: the pass can run once other sequences have
// given blocks back.
var ErrKVFull = kvpool.ErrFull

// A KVFullError is an ErrKVFull with its figures, in blocks of compute.BlockLen positions.
type KVFullError = kvpool.FullError

// KVStats describe a model's KV pool, in blocks.
type KVStats = kvpool.Stats

// KV returns the state of the pool.
func (m *Model) KV() KVStats {
	s := m.blocks.Stats(&m.layout)
	s.State = m.rec.Worth()
	return s
}

// PoolBytes returns the memory that the pool takes when all of its blocks are in use, less what it
// holds already.
func (m *Model) PoolBytes() int64 {
	s := m.KV()
	return int64(max(0, s.Total-s.Held)) * m.BlockBytes()
}

// ReleaseKV gives the memory of all blocks that are not in use back to the system. The pool does
// this by itself after a burst, but only as sequences end: a server calls it when it has nothing
// to do.
func (m *Model) ReleaseKV() { m.blocks.ReleaseAll() }
