package model_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// A tap is a device that records what no output of a pass contains: the keys and values
// of every layer, and the residual stream after each layer.
type tap struct {
	compute.Device
	width  int // of keys and values together: 2·KVHeads·HeadDim
	hidden int
	kv     map[[2]int][]float32 // by layer and position
	layers [][]float32          // residual stream after each layer, rows in order of passes
	adds   int                  // in this pass
	nlayer int
}

type tapQueue struct {
	compute.Queue
	t *tap
}

func (t *tap) Queue() compute.Queue { return &tapQueue{t.Device.Queue(), t} }

func (q *tapQueue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	q.Queue.Attend(dst, qkv, kv, layer, a, s)
	w := qkv.Shape()[1]
	for r := range s.Rows {
		x := make([]float32, q.t.width)
		q.Read(x, qkv, r*w+w-q.t.width)
		q.t.kv[[2]int{layer, int(s.Pos[r])}] = x
	}
}

func (q *tapQueue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	q.Queue.Linear(dst, x, l, epi, n)
	if epi != compute.Accumulate {
		return
	}
	// The second sum of a layer completes it.
	if q.t.adds++; q.t.adds%2 == 0 {
		l := (q.t.adds/2 - 1) % q.t.nlayer
		h := make([]float32, n*q.t.hidden)
		q.Read(h, dst, 0)
		q.t.layers[l] = append(q.t.layers[l], h...)
	}
}

// TestKeysAndValuesDoNotDependOnChunks compares the keys and values themselves, not
// just the results computed from them, and compares the residual stream with that of
// transformers, layer by layer.
func TestKeysAndValuesDoNotDependOnChunks(t *testing.T) {
	for _, name := range fixtures {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir, want := fixture(t, name)
			ids := ints(t, want, "input_ids")
			s, err := arch.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			for len(ids) < 100 { // more than one chunk of 64
				ids = append(ids, ids...)
			}
			ids = ids[:min(len(ids), s.MaxPos)]
			var first *tap
			for _, chunk := range []int{len(ids), 64, 7, 1} {
				d := &tap{Device: device(t, kern.Best(), 2), kv: make(map[[2]int][]float32)}
				m, err := model.Load(dir, d, model.Default())
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				d.width, d.hidden, d.nlayer = 2*s.KVHeads*s.HeadDim, s.Hidden, s.Layers
				d.layers = make([][]float32, s.Layers)
				run(t, m, ids, chunk)
				if first == nil {
					first = d
					compareLayers(t, d, want)
					continue
				}
				if len(d.kv) != len(first.kv) || len(d.kv) != s.Layers*len(ids) {
					t.Fatalf("%d rows of keys and values, want %d", len(d.kv), s.Layers*len(ids))
				}
				for at, x := range first.kv {
					if err := sameBits(d.kv[at], x); err != nil {
						t.Fatalf("chunks of %d, layer %d, position %d: %v", chunk, at[0], at[1], err)
					}
				}
				for l := range first.layers {
					if err := sameBits(d.layers[l], first.layers[l]); err != nil {
						t.Fatalf("chunks of %d, after layer %d: %v", chunk, l, err)
					}
				}
			}
		})
	}
}

// compareLayers compares the residual stream with the fixture where the fixture has it.
// Rows that the fixture lacks are skipped.
func compareLayers(t *testing.T, d *tap, want *safetensors.Set) {
	t.Helper()
	for l, x := range d.layers {
		name := fmt.Sprintf("layer_out.%d", l)
		if l == len(d.layers)-1 {
			name = "hidden_pre"
		}
		if _, ok := want.Tensor(name); ok {
			y := floats(t, want, name)
			close32(t, name, x[:len(y)], y)
		}
	}
}

// oracle is a decoder in float64, written from the definitions: the transformer of
// Touvron et al. 2023 with grouped queries and rotary angles by r.Frequencies, plus the
// variations of the other architectures.
func oracle(m *model.Model, ids []int32) (logits []float64) {
	s := m.Spec()
	get := func(name string) []float32 {
		t, ok := m.Tensors().Tensor(name)
		if !ok {
			return nil
		}
		x, err := t.Float32s()
		if err != nil {
			panic(err)
		}
		return x
	}
	linear := func(name string, x []float64) []float64 {
		w, b := get(name+".weight"), get(name+".bias")
		out := make([]float64, len(w)/len(x))
		for i := range out {
			for k, v := range x {
				out[i] += float64(w[i*len(x)+k]) * v
			}
			if b != nil {
				out[i] += float64(b[i])
			}
		}
		return out
	}
	norm := func(name string, x []float64) []float64 {
		w, b := get(name+".weight"), get(name+".bias")
		var mean, sum float64
		if s.LayerNorm {
			for _, v := range x {
				mean += v / float64(len(x))
			}
		}
		for _, v := range x {
			sum += (v - mean) * (v - mean)
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = (v - mean) / math.Sqrt(sum/float64(len(x))+float64(s.NormEps)) * float64(w[i])
			if b != nil {
				out[i] += float64(b[i])
			}
		}
		return out
	}
	name := func(r arch.Role, layer int) string { return strings.TrimSuffix(s.Weight(r, layer), ".weight") }
	rot := s.HeadDim
	if s.RotDim > 0 {
		rot = s.RotDim
	}
	freq := s.Rope.Frequencies(rot)
	scale := 1.0
	if s.Rope.Type == "yarn" {
		scale = s.Rope.Scale
	}
	// heads normalises and rotates every head of x.
	heads := func(x []float64, name string, pos int) {
		for at := 0; at < len(x); at += s.HeadDim {
			x := x[at:][:s.HeadDim]
			if s.Has(arch.QNorm) {
				copy(x, norm(name, x))
			}
			for j := range rot / 2 {
				sin, cos := math.Sincos(float64(pos) * float64(freq[j]))
				a, b := x[j], x[rot/2+j]
				x[j], x[rot/2+j] = scale*(a*cos-b*sin), scale*(b*cos+a*sin)
			}
		}
	}
	keys, values := make([][][]float64, s.Layers), make([][][]float64, s.Layers)
	table := get(name(arch.Embed, 0) + ".weight")
	for pos, id := range ids {
		x := make([]float64, s.Hidden)
		for i := range x {
			x[i] = float64(table[int(id)*s.Hidden+i])
		}
		for l := range s.Layers {
			in := func(r arch.Role) string { return name(r, l) }
			u := norm(in(arch.InputNorm), x)
			var q, k, v []float64
			if !s.Has(arch.QKV) {
				q, k, v = linear(in(arch.Q), u), linear(in(arch.K), u), linear(in(arch.V), u)
			} else {
				all := linear(in(arch.QKV), u)
				for at := 0; at < len(all); at += 3 * s.HeadDim {
					q = append(q, all[at:][:s.HeadDim]...)
					k = append(k, all[at+s.HeadDim:][:s.HeadDim]...)
					v = append(v, all[at+2*s.HeadDim:][:s.HeadDim]...)
				}
			}
			heads(q, in(arch.QNorm), pos)
			heads(k, in(arch.KNorm), pos)
			keys[l], values[l] = append(keys[l], k), append(values[l], v)
			first := 0
			if w := s.Window(l); w > 0 {
				first = max(0, pos-w+1)
			}
			att := make([]float64, len(q))
			for h := range s.Heads {
				g := h / (s.Heads / s.KVHeads) * s.HeadDim
				var p []float64
				var sum float64
				for _, k := range keys[l][first:] {
					var dot float64
					for d := range s.HeadDim {
						dot += q[h*s.HeadDim+d] * k[g+d]
					}
					p = append(p, math.Exp(dot/math.Sqrt(float64(s.HeadDim))))
					sum += p[len(p)-1]
				}
				for c, v := range values[l][first:] {
					for d := range s.HeadDim {
						att[h*s.HeadDim+d] += p[c] / sum * v[g+d]
					}
				}
			}
			if s.Parallel {
				u = norm(in(arch.PostNorm), x)
			}
			for i, v := range linear(in(arch.O), att) {
				x[i] += v
			}
			if !s.Parallel {
				u = norm(in(arch.PostNorm), x)
			}
			up := linear(in(arch.Up), u)
			if s.Has(arch.Gate) {
				for i, g := range linear(in(arch.Gate), u) {
					up[i] *= g / (1 + math.Exp(-g))
				}
			} else {
				for i, v := range up {
					up[i] = v / 2 * (1 + math.Erf(v/math.Sqrt2))
				}
			}
			for i, v := range linear(in(arch.Down), up) {
				x[i] += v
			}
		}
		out := name(arch.LMHead, 0)
		if s.Tied {
			out = name(arch.Embed, 0)
		}
		logits = append(logits, linear(out, norm(name(arch.FinalNorm, 0), x))...)
	}
	return logits
}

// TestAgreesWithFloat64 covers cases without a fixture: biases, scaled positions, one
// key head, sixteen-bit storage, windows in some layers, tied GPT-NeoX.
func TestAgreesWithFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	ids := make([]int32, 50)
	for i := range ids {
		ids[i] = r.Int32N(90)
	}
	dev := device(t, kern.Best(), 2)
	none := func(*modeltest.Config) {}
	plain := arch.Rope{Theta: 10000, Type: "default"}
	for _, c := range []struct {
		name string
		arch string
		edit func(*modeltest.Config)
		rope arch.Rope
	}{
		{"plain", "llama", none, plain},
		{"biases and tied", "llama", func(c *modeltest.Config) { c.AttnBias, c.MLPBias, c.Tied = true, true, true }, arch.Rope{Theta: 500, Type: "default"}},
		{"linear scaling", "llama", none, arch.Rope{Theta: 10000, Type: "linear", Factor: 3}},
		{"llama3 scaling", "llama", none, arch.Rope{Theta: 10000, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 32}},
		{"one key head of bfloat16", "llama", func(c *modeltest.Config) { c.KVHeads, c.BF16 = 1, true }, plain},
		{"as many key heads as heads", "llama", func(c *modeltest.Config) { c.KVHeads, c.HeadDim = 4, 34 }, plain},
		{"mistral", "mistral", none, plain},
		{"mistral that sees only itself", "mistral", func(c *modeltest.Config) { c.Window = 1 }, plain},
		{"qwen2 with a window in the upper layers", "qwen2", func(c *modeltest.Config) { c.Layers = 3 }, plain},
		{
			"qwen2 with YaRN", "qwen2", func(c *modeltest.Config) { c.Window = 0 },
			arch.Rope{Theta: 10000, Type: "yarn", Factor: 4, Original: 16, BetaFast: 2, BetaSlow: 0.5, Scale: 1.125, Truncate: true},
		},
		{"qwen3 with biases and a window", "qwen3", func(c *modeltest.Config) { c.AttnBias, c.Window = true, 9 }, plain},
		{"gpt_neox", "gpt_neox", none, plain},
		{
			"gpt_neox, sequential, tied, without biases of attention", "gpt_neox",
			func(c *modeltest.Config) { c.Sequential, c.Tied, c.AttnBias, c.RotaryPct = true, true, false, 1 },
			arch.Rope{Theta: 10000, Type: "linear", Factor: 2},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := modeltest.Of(c.arch)
			c.edit(&conf)
			spec := conf.Spec()
			spec.Rope = c.rope
			m, err := model.New(spec, safetensors.Of("test", modeltest.Tensors(spec, conf.BF16, 5)...), dev, model.Default())
			if err != nil {
				t.Fatal(err)
			}
			got, _ := run(t, m, ids, 16)
			want := make([]float32, len(got))
			for i, v := range oracle(m, ids) {
				want[i] = float32(v)
			}
			// Logits reach 10; float32 rounding through two layers gives errors near
			// 1e-5.
			close32(t, "logits", got, want)
		})
	}
}

func TestShardsGiveTheSameModel(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	c := modeltest.Default()
	whole := load(t, modeltest.Random(t, c, 3), dev, model.Default())
	dir := modeltest.Random(t, c, 3)
	var shards [2][]safetensors.Tensor
	index := map[string]string{}
	for i, x := range modeltest.Tensors(c.Spec(), false, 3) {
		shards[i%2] = append(shards[i%2], x)
		index[x.Name] = fmt.Sprintf("model-%d.safetensors", i%2)
	}
	for i, s := range shards {
		if err := safetensors.WriteFile(filepath.Join(dir, fmt.Sprintf("model-%d.safetensors", i)), nil, s...); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(map[string]any{"weight_map": index})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	parts := load(t, dir, dev, model.Default())
	if parts.Identity().Hash() != whole.Identity().Hash() {
		t.Error("another hash")
	}
	a, _ := run(t, whole, []int32{1, 2, 3}, 3)
	b, _ := run(t, parts, []int32{1, 2, 3}, 3)
	if err := sameBits(b, a); err != nil {
		t.Error(err)
	}
}

// TestBitsArePinned checks that every platform and every class computes the same
// logits.
func TestBitsArePinned(t *testing.T) {
	ids := []int32{1, 7, 20, 33, 5, 5, 96, 0, 41, 12, 3, 3, 17, 88, 64, 2, 9, 31, 70, 11, 6, 54, 23, 90}
	for _, name := range arch.Supported() {
		c := modeltest.Of(name)
		c.AttnBias, c.MLPBias = !slices.Contains([]string{"mistral", "qwen2", "phi3", "mixtral", "qwen2_moe", "qwen3_next"}, name), name == "llama"
		c.Window = min(c.Window, 7)
		for _, class := range classes() {
			m := load(t, modeltest.Random(t, c, 11), device(t, class, 2), model.Default())
			logits, _ := run(t, m, ids, 10)
			h := fnv.New64a()
			for _, x := range logits {
				binary.Write(h, binary.LittleEndian, x)
			}
			if got, want := h.Sum64(), pinned[name]; got != want {
				t.Errorf("%s, %v: logits hash to %#x, want %#x", name, class, got, want)
			}
		}
	}
}

var pinned = map[string]uint64{
	"llama": 0x3ec3daad36a69185, "mistral": 0xbc6dc458c3896941, "qwen2": 0x30ac2cc2e1311bc8,
	"qwen3": 0xdbaae000d709b843, "gpt_neox": 0x3ce5eaedbd23e78e,
	"gemma2": 0x5bb7b7fad49f424f, "gemma3_text": 0xfacd5665e3a3e3ef, "phi3": 0xa60cd6919d40d787, "olmo2": 0x325736cecdf2e240,
	"granite": 0xa8923c41f4eb5a8b, "smollm3": 0x45001b323d753d0a, "starcoder2": 0x1429ccc4d702714c, "cohere2": 0x6b14eebbd8a27945,
	"mixtral": 0xff3aa22b48eefb98, "qwen2_moe": 0x316ff90d1b9ff69, "qwen3_moe": 0xe5768195c2396618, "qwen3_next": 0x33c78c65c0bc5763, "glm4_moe": 0x798264ec59f1fb5e,
	"gpt_oss": 0x55c196c8a2a992fe, "deepseek_v3": 0xb85f07aa70aeee54,
}
