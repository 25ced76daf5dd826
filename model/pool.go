package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/footprint"
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

// A Footprint is a model's use of device memory, in bytes.
type Footprint = footprint.Footprint

// Plan returns the memory that a model will take on a device of limited memory if it is
// loaded with opt. It does the same sums as loading, before anything is loaded. A draft
// head's embedding, and an LM head that is not its own, are not counted, because they
// belong to its target.
func Plan(spec *arch.Spec, dev compute.Planner, opt Options) Footprint {
	return footprint.Of(spec, dev, opt.footprint())
}

func (o *Options) footprint() footprint.Options {
	return footprint.Options{Weights: o.DType, Kept: o.kept, Floats: o.floats, Table: o.table, KV: o.KV, MaxRows: o.MaxRows, Positions: o.Positions, LogitRows: o.LogitRows}
}

// setAside reserves all memory that decoding needs, so that nothing is allocated later.
func (m *Model) setAside() error {
	if m.dev.Abilities().Plan == nil || m.opt.Positions == 0 {
		return nil
	}
	if err := m.blocks.Grow(m.opt.footprint().Blocks(&m.layout)); err != nil {
		return err
	}
	if err := m.growRope(m.spec.Rope.Switch() + min(m.opt.Positions, m.spec.MaxPos)); err != nil {
		return err
	}
	return m.grow(m.opt.MaxRows, footprint.PlanRows)
}
