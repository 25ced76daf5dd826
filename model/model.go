// Package model runs decoder-only language models and draft heads over trees.
//
// A Model and everything made from it (sequences, branches, outputs, stores) belong to
// one goroutine at a time, because nothing here locks. Several models may share a
// device and run concurrently.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"talf/compute"
	"talf/internal/mapped"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/ggml"
	"talf/model/identity"
	"talf/model/internal/footprint"
	"talf/model/internal/kvpool"
	"talf/model/internal/mla"
	"talf/model/internal/moe"
	"talf/model/internal/recur"
	"talf/model/internal/stored"
	"talf/model/safetensors"
)

// Forward's error wraps ErrContext when a node lies past the model's last position.
var ErrContext = errors.New("beyond the model's last position")

// A Phase is long work on all the weights of a model.
type Phase string

// The phases.
const (
	Loading     Phase = "loading"     // packing them
	Identifying Phase = "identifying" // reading them for Identity or Function
)

// A Watch is called when done of total bytes have been processed. An error ends the work, which
// returns it. Calls do not overlap, but come from several goroutines.
type Watch func(p Phase, done, total int64) error

// Options say how a model is loaded.
type Options struct {
	DType   compute.DType // of packed weights: F32, BF16, BF16DP, Q8, Stored, or Q4 if some are stored in blocks that it keeps
	KV      compute.DType // of keys and values: F32 or BF16
	MaxRows int           // maximum rows of one internal pass; larger batches run in blocks of rows
	// Lazy postpones packing the weights until the model first runs or a draft head is
	// made for it. This saves memory for callers that need only its tensors.
	Lazy bool
	// Positions is the number of positions of keys and values, for all sequences
	// together, that are reserved when a model is loaded onto a device of limited
	// memory (compute.DeviceAbilities.Plan). A model that does not fit is refused
	// before anything is loaded. 0 takes memory as needed.
	Positions int
	// LogitRows is how many rows have logits at one time, if they are more than decoding has: memory for
	// them has to be there, too, when Positions are reserved.
	LogitRows int
	// KVBlocks is the capacity of the KV pool, which all sequences, branches and kept
	// prefixes share, in blocks of compute.BlockLen positions of a group of layers: of all
	// layers, unless some have a window and others none or another. 0 is half of the memory that
	// the model leaves, where the device accounts for memory; a draft head then has
	// as many blocks as its target.
	KVBlocks int
	// AllowNonFinite loads weights that are NaN, infinite or too large for DType, which are
	// otherwise refused with a *safetensors.ValueError. Draft heads are never refused,
	// because they cannot change what their target says: see Model.Flaw.
	AllowNonFinite bool
	// Watch, unless nil, is called with the progress of long work on all the weights.
	Watch Watch

	kept   map[string]compute.Kept  // the tensors that are stored in blocks which Q4 and Stored keep
	table  int64                    // bytes of an embedding whose rows stay in the file; 0: it is packed
	floats map[string]compute.DType // the matrices in floating-point numbers
}

// Default returns the options for CPU decoding.
func Default() Options { return Options{DType: compute.F32, MaxRows: 512} }

// maxRows keeps buffer sizes within reason.
const maxRows = 1 << 16

// Validate reports the first invalid option.
func (o Options) Validate() error {
	if t := o.DType; t != compute.F32 && t != compute.BF16 && t != compute.BF16DP && t != compute.Q8 && t != compute.Q4 && t != compute.Stored {
		return fmt.Errorf("weights as %v are not supported, want F32, BF16, BF16DP, Q8, Q4 or Stored", o.DType)
	}
	if o.KV != compute.F32 && o.KV != compute.BF16 {
		return fmt.Errorf("keys and values as %v are not supported, want F32 or BF16", o.KV)
	}
	if o.MaxRows < 1 || o.MaxRows > maxRows {
		return fmt.Errorf("MaxRows is %d, want 1 to %d", o.MaxRows, maxRows)
	}
	if o.Positions < 0 {
		return fmt.Errorf("%d positions, want 0 or more", o.Positions)
	}
	if o.KVBlocks < 0 {
		return fmt.Errorf("a KV pool of %d blocks, want 0 or more", o.KVBlocks)
	}
	if o.KVBlocks > 0 && nblocks(o.Positions) > o.KVBlocks {
		return fmt.Errorf("%d positions of keys and values do not fit in a KV pool of %d blocks of %d", o.Positions, o.KVBlocks, blockLen)
	}
	return nil
}

// A Model is a loaded network. Only one goroutine at a time may call Forward; its
// sequences and branches belong to that goroutine too.
type Model struct {
	spec     *arch.Spec
	dev      compute.Device
	q        compute.Queue
	can      compute.Abilities // of q
	opt      Options
	set      *safetensors.Set
	function *identity.Function // nil until first asked for

	embed  compute.Weight // [Vocab][Hidden]
	lmHead compute.Linear // [Vocab][Hidden]; embed if tied
	ids    []int32        // draft head: the target's id for each row of lmHead; nil: the row's index
	ones   compute.Linear // [1][Vocab]: sums of logits; unset where the device checks them
	fc     compute.Linear // draft head: [Hidden][2·Hidden], EAGLE-3: [Hidden][taps·target's Hidden]
	fusion *fusion        // of an EAGLE-3 head, or nil
	join   *joint         // of a multi-token prediction module, or nil
	block  *blockHead     // of a block drafter, or nil
	norm   *compute.Norm  // final, of what the pass returns as hidden states; nil in most draft heads
	taps   []int          // boundaries at which passes record the residual stream

	moe                  *moe.Runner   // of layers with experts, or nil
	mla                  *mla.Runner   // of latent attention, or nil
	rec                  *recur.Runner // of recurrent layers, or nil
	logitScale, logitCap float32       // 1 and 0: nothing happens to logits

	layers []layer

	rope   turns
	kv     compute.KV
	layout kvpool.Layout
	places []kvpool.Place // of the keys and values of every layer
	blocks kvpool.Pool
	spare  []*Branch // labelling branches, for reuse
	tails  []int32   // tail blocks that a pass has to copy
	act    activations
	pass   int  // number of the pass, to catch a branch given twice
	lazy   bool // the weights are not packed yet
	looked bool // all weights have been checked
	flaw   error
	held   Held
	probe  *probe // looks at a pass that is run again, or nil
}

// A layer is attention, the feed-forward network and their products. A draft head has
// no first norm.
type layer struct {
	qkv    compute.Linear // [(Heads+2·KVHeads)·HeadDim][Hidden]
	attn   compute.Attention
	o      compute.Linear // [Hidden][Heads·HeadDim]
	gateUp compute.Linear // [FFN][Hidden], gated or not
	down   compute.Linear // [Hidden][FFN]

	moe   *moe.Layer     // in place of gateUp and down, or nil
	mla   *mla.Layer     // in place of qkv, or nil
	rec   *recur.Layer   // in place of qkv and attention, or nil
	block *blockLayer    // in place of qkv, or nil
	gate  compute.Linear // [Heads·HeadDim][Hidden] of attention's output, or none
	kv    kvpool.Place   // of its keys and values

	qNorm, kNorm    *compute.Norm // of all queries and of all keys, or nil
	oNorm, downNorm *compute.Norm // [Hidden] of what is added to the residual stream, or nil
}

// Load reads a Hugging Face directory: config.json, safetensors (one file or
// sharded), generation_config.json.
func Load(dir string, dev compute.Device, opt Options) (*Model, error) {
	spec, err := arch.Load(dir)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	m, err := New(spec, set, dev, opt)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return m, nil
}

// New builds a model from its tensors and takes ownership of set, which Close closes.
// Tensors that spec does not list are ignored. If New fails, set stays open.
func New(spec *arch.Spec, set *safetensors.Set, dev compute.Device, opt Options) (m *Model, err error) {
	defer mapped.Guard(&err)()
	if spec.Draft {
		return nil, errors.New("a draft head needs its target: use NewDraft")
	}
	if m, err = newModel(spec, set, dev, opt); err != nil {
		return nil, err
	}
	m.lazy = opt.Lazy
	return m, newLoader(m, opt.Lazy).all()
}

// load packs the weights if that was postponed until the model runs.
func (m *Model) load() error {
	if !m.lazy {
		return nil
	}
	if err := footprint.Check(m.set.Name, m.spec, m.dev, m.opt.footprint()); err != nil {
		return err
	}
	return m.pack()
}

func (m *Model) pack() (err error) {
	defer mapped.Guard(&err)()
	m.layers = nil // left over from the check
	err = newLoader(m, false).all()
	m.lazy = err != nil
	return err
}

// all loads a model that is not a draft head.
func (l *loader) all() error {
	m := l.m
	if m.spec.Tied {
		m.embed = l.linear(noLayer, arch.Embed).W
		m.lmHead.W = m.embed
	} else {
		m.embed = l.embedding()
		m.lmHead = l.linear(noLayer, arch.LMHead)
	}
	m.norm = l.norm(arch.FinalNorm, noLayer, m.spec.LayerNorm)
	l.layers()
	return l.done()
}

// NewDraft builds a draft head for target and shares target's embedding and LM head. A
// head whose own embedding has different values uses its own, and a head with a draft
// vocabulary packs only those rows of the LM head. An EAGLE-3 head may have an LM head of
// its own, as may a block drafter; target taps what they read from now on. The head runs on target's device and
// must not outlive target. Otherwise NewDraft is like New.
func NewDraft(spec *arch.Spec, set *safetensors.Set, target *Model, opt Options) (m *Model, err error) {
	defer mapped.Guard(&err)()
	t := target.spec
	switch {
	case !spec.Draft:
		return nil, fmt.Errorf("%s: the specification is not a draft head's", set.Name)
	case spec.TargetHidden() != t.Hidden:
		return nil, fmt.Errorf("%s: %s is %d, but the target's hidden_size is %d", configOf(set), spec.TargetHiddenKey(), spec.TargetHidden(), t.Hidden)
	case spec.Vocab != t.Vocab:
		return nil, fmt.Errorf("%s: vocab_size is %d, but the target's is %d", configOf(set), spec.Vocab, t.Vocab)
	}
	if opt.KVBlocks == 0 {
		opt.KVBlocks = target.blocks.Most() / max(1, target.layout.Full()) // as many positions as the target's longest text
	}
	if m, err = newModel(spec, set, target.dev, opt); err != nil {
		return nil, err
	}
	if err := target.load(); err != nil {
		return nil, err
	}
	if m.ids, err = draftvocab.Read(set, spec.DraftVocab, spec.Vocab); err != nil {
		return nil, err
	}
	spec.DraftVocab = len(m.ids)
	l := newLoader(m, false)
	if err := l.loadDraft(target, set); err != nil {
		return nil, err
	}
	l.layers()
	if err := l.done(); err != nil {
		return nil, err
	}
	target.tapFor(m.reads())
	return m, nil
}

// configOf returns the name of the file that has the sizes of a set's model.
func configOf(set *safetensors.Set) string {
	if filepath.Ext(set.Name) != ".safetensors" {
		return set.Name
	}
	return filepath.Join(filepath.Dir(set.Name), "config.json")
}

func newModel(spec *arch.Spec, set *safetensors.Set, dev compute.Device, opt Options) (*Model, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", set.Name, err)
	}
	opt.look(spec, set, dev)
	if opt.DType == compute.Q4 && len(opt.kept) == 0 && !spec.Draft {
		return nil, fmt.Errorf("%s: no matrix is stored in blocks that weights as Q4 keep: want some in %s", set.Name, stored.Kinds(dev.Abilities()))
	}
	if !opt.Lazy {
		if err := footprint.Check(set.Name, spec, dev, opt.footprint()); err != nil {
			return nil, err
		}
	}
	m := &Model{spec: spec, dev: dev, q: dev.Queue(), opt: opt, set: set}
	m.can = m.q.Abilities()
	if what := spec.Lacks(m.can); what != "" {
		return nil, fmt.Errorf("%s: %s models have %s, which %s does not have yet: use the CPU", set.Name, spec.Arch, what, dev.Name())
	}
	m.layout, m.places = footprint.Layout(spec)
	var err error
	if m.kv, err = dev.NewKV(footprint.KVConfig(spec, opt.KV)); err != nil {
		return nil, fmt.Errorf("make KV store: %w", err)
	}
	m.logitScale, m.logitCap = cmp.Or(spec.LogitScale, 1), spec.LogitCap
	if spec.Mixture.Experts > 0 {
		m.moe = moe.New(m.q, spec)
	}
	if spec.Latent.On() {
		m.mla = mla.New(m.q, spec)
	}
	most := opt.KVBlocks
	if most == 0 && !spec.Draft {
		most = footprint.Pool(spec, dev, opt.footprint())
	}
	m.blocks = kvpool.New(dev, m.kv, most)
	m.rec, err = recur.New(m.q, dev, spec, &m.blocks, m.kv.Config())
	return m, err
}

// Spec returns the model's configuration, which the caller must not change.
func (m *Model) Spec() *arch.Spec { return m.spec }

// Options returns the options that the model was loaded with.
func (m *Model) Options() Options { return m.opt }

// HeadOptions returns the options to load a draft head with that drafts for m: m's, but q8 where m's matrices are kept
// as they are stored and some in integers. What a head rounds changes no output, and its floating-point numbers would
// be read more slowly than all else.
func (m *Model) HeadOptions() Options {
	opt := m.opt
	if m.Products() == compute.Stored {
		opt.DType = compute.Q8
	}
	return opt
}

// look notes how the weights of a set are stored.
func (o *Options) look(spec *arch.Spec, set *safetensors.Set, dev compute.Device) {
	o.kept, o.floats, o.table = stored.Kept(set, dev.Abilities()), stored.Floats(set), 0
	if spec.Draft || spec.Tied || o.DType != compute.Stored || dev.Abilities().Table == nil {
		return
	}
	t, _ := set.Describe(spec.Weight(arch.Embed, noLayer))
	if b := ggml.Blocks(t.DType); b != nil && (o.kept[t.Name] != compute.NotKept || b.Exact() && !b.Varies()) {
		o.table = int64(t.Size())
	}
}

// Device returns the device that the model runs on.
func (m *Model) Device() compute.Device { return m.dev }

// WeightBytes returns the size of the weights that a pass over one row reads: all packed weights
// except an untied embedding, of which a pass reads only a few rows, and experts that the row does
// not choose.
func (m *Model) WeightBytes() int {
	n := m.lmHead.Bytes()
	if m.fc.W != nil {
		n += m.fc.Bytes()
	}
	for i := range m.layers {
		y := &m.layers[i]
		n += y.o.Bytes()
		switch {
		case y.mla != nil:
			n += y.mla.Bytes()
		case y.rec != nil:
			n += y.rec.Bytes()
		case y.block != nil:
			n += y.block.q.Bytes() + y.block.kv.Bytes()
		default:
			n += y.qkv.Bytes()
		}
		if y.gate.W != nil {
			n += y.gate.Bytes()
		}
		if y.moe != nil {
			n += y.moe.Bytes(m.spec.Mixture.Top)
		} else {
			n += y.gateUp.Bytes() + y.down.Bytes()
		}
	}
	return n
}

// Tensors returns the weights as stored. They are valid until Close.
func (m *Model) Tensors() *safetensors.Set { return m.set }

// HostEmbed returns a copy of the embedding table [Vocab][Hidden] on the host, for
// training a head.
func (m *Model) HostEmbed() ([]float32, error) { return m.host(arch.Embed) }

// HostLMHead returns a copy of the LM head [Vocab][Hidden].
func (m *Model) HostLMHead() ([]float32, error) {
	return m.host(m.headRole())
}

// PackEmbed packs only the embedding [Vocab][Hidden], as bfloat16 if it is stored that
// way and otherwise as float32, so its values are those of HostEmbed.
func (m *Model) PackEmbed() (w compute.Weight, err error) {
	defer mapped.Guard(&err)()
	l := newLoader(m, false)
	want, _ := l.take(arch.Embed, noLayer, false)
	t, dt := l.get(want)
	if l.err != nil {
		return nil, l.err
	}
	as := compute.F32
	if dt == compute.BF16 {
		as = compute.BF16
	}
	w = l.as(as, t.Name, []compute.Matrix{l.rows(&t, dt, 0, m.spec.Vocab)})
	return w, l.err
}

// PackLMHead packs the given rows of the LM head, or all rows if rows is nil.
func (m *Model) PackLMHead(as compute.DType, ids []int32) (w compute.Weight, err error) {
	defer mapped.Guard(&err)()
	l := newLoader(m, false)
	t, _ := l.take(m.headRole(), noLayer, false)
	x := l.some(t, ids)
	if l.err != nil {
		return nil, l.err
	}
	w = l.as(as, t.Name, []compute.Matrix{x})
	return w, l.err
}

// headRole returns the role of the tensor that serves as the LM head.
func (m *Model) headRole() arch.Role {
	if m.spec.Tied {
		return arch.Embed
	}
	return arch.LMHead
}

func (m *Model) host(role arch.Role) (x []float32, err error) {
	defer mapped.Guard(&err)()
	l := newLoader(m, false)
	want, _ := l.take(role, noLayer, false)
	t, dt := l.get(want)
	if l.err != nil {
		return nil, l.err
	}
	if dt == compute.Q8 {
		if t, err = Plain(m.set, t.Name); err != nil {
			return nil, err
		}
	}
	x, err = t.Float32s()
	m.set.Release(t.Name, 0, m.set.Size(t.Name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.set.Name, err)
	}
	return x, nil
}

// Close frees the model's memory, including its tensors. The device stays open.
func (m *Model) Close() error { return m.set.Close() }

var _ io.Closer = (*Model)(nil)

// Bulk sets whether passes may use products that are faster for many rows but whose
// bits depend on the other rows of the pass: good for labelling, not for decoding. It
// returns the name of the library that computes them, or an error if the device has no
// such products.
func (m *Model) Bulk(on bool) (by string, err error) {
	if m.can.Bulk == nil {
		return "", errors.New("the device has no separate products for many rows")
	}
	return m.can.Bulk.Bulk(on)
}
