package sample

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
)

// reference is transformers' chain of processors, written the way its warpers work: on
// scores, removing tokens by −Inf, sorting in ascending order for top-p. vLLM's bias and
// penalties come first.
func reference(p Params, logits []float32, prompt int, context []int32) []float64 {
	logits = slices.Clone(logits)
	for _, b := range p.LogitBias {
		logits[b.Token] += float32(b.By)
	}
	x := make([]float64, len(logits))
	for i, l := range logits {
		x[i] = float64(l)
	}
	done := map[int32]bool{}
	for _, id := range context {
		if done[id] {
			continue
		}
		done[id] = true
		pen := float32(p.RepetitionPenalty)
		if l := logits[id]; l < 0 {
			x[id] = float64(l * pen)
		} else {
			x[id] = float64(l / pen)
		}
	}
	counts := map[int32]int{}
	for _, id := range context[min(prompt, len(context)):] {
		counts[id]++
	}
	for id, n := range counts {
		l := float32(x[id]) - float32(p.PresencePenalty)
		for range n {
			l -= float32(p.FrequencyPenalty)
		}
		x[id] = float64(l)
	}
	if held := slices.Compact(slices.Sorted(slices.Values(p.Held))); len(context) < prompt+p.MinTokens && len(held) < len(x) {
		for _, id := range held {
			x[id] = math.Inf(-1)
		}
	}
	for i := range x {
		x[i] /= p.Temperature
	}
	order := make([]int, len(x)) // ascending; among equals the higher id first
	sorted := func() {
		for i := range order {
			order[i] = i
		}
		sort.SliceStable(order, func(a, b int) bool {
			if x[order[a]] != x[order[b]] {
				return x[order[a]] < x[order[b]]
			}
			return order[a] > order[b]
		})
	}
	softmax := func() []float64 {
		top, sum := math.Inf(-1), 0.0
		for _, v := range x {
			top = max(top, v)
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = math.Exp(v - top)
			sum += out[i]
		}
		for i := range out {
			out[i] /= sum
		}
		return out
	}
	inf := math.Inf(-1)
	if p.TopK > 0 {
		sorted()
		kth := x[order[len(x)-min(p.TopK, len(x))]]
		for i := range x {
			if x[i] < kth {
				x[i] = inf
			}
		}
	}
	if p.TopP < 1 {
		sorted()
		q, cum := softmax(), 0.0
		var drop []int
		for _, i := range order[:len(x)-1] {
			if cum += q[i]; cum <= 1-p.TopP {
				drop = append(drop, i)
			}
		}
		for _, i := range drop {
			x[i] = inf
		}
	}
	if p.MinP > 0 {
		q, top := softmax(), 0.0
		for _, v := range q {
			top = max(top, v)
		}
		for i := range x {
			if q[i] < p.MinP*top {
				x[i] = inf
			}
		}
	}
	return softmax()
}

func TestAgreesWithTheReferenceChain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 3000 {
		n := 1 + r.IntN(60)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * 3)
			if r.IntN(4) == 0 { // ties
				logits[i] = float32(r.IntN(3))
			}
		}
		p := Params{
			Temperature: 0.2 + r.Float64()*2, TopK: r.IntN(n + 3), TopP: 0.05 + r.Float64(), MinP: r.Float64() * 0.3,
			RepetitionPenalty: 1,
		}
		p.TopP = min(p.TopP, 1)
		if r.IntN(2) == 0 {
			p.MinP = 0
		}
		var ctx []int32
		if r.IntN(2) == 0 {
			p.RepetitionPenalty = 0.7 + r.Float64()
			for range r.IntN(10) {
				ctx = append(ctx, r.Int32N(int32(n)))
			}
		}
		cut, prompt := 0, 0
		if len(ctx) > 0 {
			cut, prompt = r.IntN(len(ctx)), r.IntN(len(ctx)+2)
		}
		if r.IntN(2) == 0 {
			p.FrequencyPenalty, p.PresencePenalty = r.NormFloat64(), r.NormFloat64()
		}
		for _, id := range r.Perm(n)[:r.IntN(min(n, 4))] {
			p.LogitBias = append(p.LogitBias, Bias{int32(id), 5 * r.NormFloat64()})
		}
		if r.IntN(3) == 0 {
			p.MinTokens = r.IntN(6)
			for range r.IntN(n + 2) {
				p.Held = append(p.Held, r.Int32N(int32(n)))
			}
		}
		got, want := make([]float32, n), reference(p, logits, prompt, ctx)
		New(p, prompt).Dist(got, logits, ctx[:cut], ctx[cut:])
		for i := range want {
			// Rounding a float64 value to float32: half an ulp of 1, plus a margin.
			if math.Abs(float64(got[i])-want[i]) > 1e-7 || (got[i] == 0) != (want[i] == 0) {
				t.Fatalf("round %d, %+v, context %v: token %d has %v, want %v\nlogits %v", round, p, ctx, i, got[i], want[i], logits)
			}
		}
		var sum float64
		whole := make([]float64, n)
		New(p, prompt).Dist64(whole, logits, ctx[:cut], ctx[cut:])
		for i, v := range whole {
			if sum += v; float32(v) != got[i] {
				t.Fatalf("round %d, %+v: token %d has %v in float64, %v in float32", round, p, i, v, got[i])
			}
		}
		if math.Abs(sum-1) > 1e-13 {
			t.Fatalf("round %d, %+v: the float64 sum is %v", round, p, sum)
		}
	}
}

// TestWorkedExample is small enough to be checked by hand: e^logit is 8, 4, 2, 1, 1.
func TestWorkedExample(t *testing.T) {
	ln2 := float32(math.Ln2)
	logits := []float32{3 * ln2, 2 * ln2, ln2, 0, 0}
	for _, c := range []struct {
		name string
		p    Params
		ctx  []int32
		want []float64
	}{
		{"plain", Default(), nil, []float64{8. / 16, 4. / 16, 2. / 16, 1. / 16, 1. / 16}},
		{"greedy", Greedy(), nil, []float64{1, 0, 0, 0, 0}},
		{"greedy, penalised", Params{TopP: 1, RepetitionPenalty: 2}, []int32{0, 0}, []float64{0, 1, 0, 0, 0}},
		{
			"half the temperature squares",
			Params{Temperature: .5, TopP: 1, RepetitionPenalty: 1},
			nil,
			[]float64{64. / 86, 16. / 86, 4. / 86, 1. / 86, 1. / 86},
		},
		{
			"top-k with a tie at the k-th",
			Params{Temperature: 1, TopK: 4, TopP: 1, RepetitionPenalty: 1},
			nil,
			[]float64{8. / 16, 4. / 16, 2. / 16, 1. / 16, 1. / 16},
		},
		{"top-p just reached", Params{Temperature: 1, TopP: 0.74, RepetitionPenalty: 1}, nil, []float64{8. / 12, 4. / 12, 0, 0, 0}},
		{"top-p of 0 keeps the best", Params{Temperature: 1, RepetitionPenalty: 1}, nil, []float64{1, 0, 0, 0, 0}},
		{
			"top-p ties go to the lower id",
			Params{Temperature: 1, TopP: 0.92, RepetitionPenalty: 1},
			nil,
			[]float64{8. / 15, 4. / 15, 2. / 15, 1. / 15, 0},
		},
		{"min-p", Params{Temperature: 1, TopP: 1, MinP: 0.3, RepetitionPenalty: 1}, nil, []float64{8. / 12, 4. / 12, 0, 0, 0}},
		{
			"the penalty counts a token once",
			Params{Temperature: 1, TopP: 1, RepetitionPenalty: 3},
			[]int32{0, 0, 0},
			[]float64{2. / 10, 4. / 10, 2. / 10, 1. / 10, 1. / 10},
		},
		{
			"presence counts once, frequency every time, and the prompt never",
			Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1, PresencePenalty: 2 * math.Ln2, FrequencyPenalty: math.Ln2},
			[]int32{2, 0, 1, 0},
			[]float64{.5 / 5, .5 / 5, 2. / 5, 1. / 5, 1. / 5},
		},
		{
			"a bias moves a token",
			Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1, LogitBias: []Bias{{4, 3 * math.Ln2}, {0, -100}}},
			nil,
			[]float64{0, 4. / 15, 2. / 15, 1. / 15, 8. / 15},
		},
		{
			"a bias comes before the penalty",
			Params{TopP: 1, RepetitionPenalty: 2, LogitBias: []Bias{{0, 3}}},
			[]int32{0},
			[]float64{1, 0, 0, 0, 0},
		},
	} {
		got := make([]float32, len(logits))
		New(c.p, 1).Dist(got, logits, c.ctx)
		for i := range c.want {
			if math.Abs(float64(got[i])-c.want[i]) > 2e-7 {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

func TestDistAlwaysHasMass(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, logits := range [][]float32{
		{-inf, -inf}, {inf, 0, inf}, {nan, nan}, {nan, 1, 2}, {0, -inf}, {1e30, -1e30}, {7},
	} {
		for _, p := range []Params{Default(), Greedy(), {Temperature: 1e-3, TopK: 2, TopP: .5, MinP: .1, RepetitionPenalty: 1}} {
			got := make([]float32, len(logits))
			New(p, 0).Dist(got, logits)
			var sum float64
			for _, v := range got {
				sum += float64(v)
			}
			if math.Abs(sum-1) > 1e-6 {
				t.Errorf("%v with %+v: %v", logits, p, got)
			}
		}
	}
}

func TestArgmaxTakesTheLowestId(t *testing.T) {
	for _, c := range []struct {
		x    []float32
		want int32
	}{
		{[]float32{1, 3, 3}, 1}, {[]float32{float32(math.NaN()), 2}, 1}, {[]float32{float32(math.Inf(-1))}, 0},
	} {
		if got := Argmax(c.x); got != c.want {
			t.Errorf("Argmax(%v) = %d, want %d", c.x, got, c.want)
		}
	}
	if got := New(Params{TopP: 1, RepetitionPenalty: 2}, 0).Argmax([]float32{3, 2}, []int32{0}); got != 1 {
		t.Errorf("penalised argmax is %d, want 1", got)
	}
}

func TestProbIsTheSoftmaxAtOneToken(t *testing.T) {
	row := []float32{0, float32(math.Log(3)), float32(math.Inf(-1)), 0}
	for id, want := range []float64{0.2, 0.6, 0, 0.2} {
		if got := Prob(row, int32(id)); math.Abs(got-want) > 1e-7 { // log 3 is rounded to float32
			t.Errorf("token %d: %v, want %v", id, got, want)
		}
	}
	if got := Prob([]float32{1e30, -1e30}, 0); got != 1 {
		t.Errorf("large logits: %v, want 1", got)
	}
}

// Draws at the quantiles of Uniform follow a distribution, both over positions and over
// seeds.
func TestUniformIsUniform(t *testing.T) {
	dist := []float64{0.1, 0, 0.4, 0.2, 0.3, 0}
	const n = 20_000
	for _, by := range []string{"position", "seed"} {
		var count [6]float64
		for i := range n {
			u := Uniform(42, i)
			if by == "seed" {
				u = Uniform(uint64(i), 42)
			}
			id, left := 0, u
			for left >= float64(dist[id]) {
				left -= float64(dist[id])
				id++
			}
			count[id]++
		}
		var chi2 float64
		for i, p := range dist {
			e := float64(p) * n
			if e == 0 {
				if count[i] > 0 {
					t.Errorf("by %s: token %d, which has no weight, was drawn", by, i)
				}
				continue
			}
			chi2 += (count[i] - e) * (count[i] - e) / e
		}
		// 3 degrees of freedom: one fixed seed in a thousand exceeds 16.3.
		if chi2 > 16.3 {
			t.Errorf("by %s: χ² is %.1f, counts %v", by, chi2, count)
		}
	}
}

// TestUniformIsPinned keeps the meaning of seeds from release to release.
func TestUniformIsPinned(t *testing.T) {
	got := fmt.Sprintf("%.17g %.17g %.17g", Uniform(0, 0), Uniform(1, 0), Uniform(1, 1000))
	if want := "0.88796057373486381 0.22135949631388685 0.026575460408048923"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestValidateNamesTheParameter(t *testing.T) {
	nan := math.NaN()
	for want, p := range map[string]Params{
		"temperature":        {Temperature: -1, TopP: 1, RepetitionPenalty: 1},
		"top-k":              {TopK: -1, TopP: 1, RepetitionPenalty: 1},
		"top-p":              {TopP: nan, RepetitionPenalty: 1},
		"min-p":              {TopP: 1, MinP: 2, RepetitionPenalty: 1},
		"repetition penalty": {TopP: 1},
		"frequency penalty":  {TopP: 1, RepetitionPenalty: 1, FrequencyPenalty: nan},
		"presence penalty":   {TopP: 1, RepetitionPenalty: 1, PresencePenalty: math.Inf(1)},
		"token -1":           {TopP: 1, RepetitionPenalty: 1, LogitBias: []Bias{{Token: -1}}},
		"token 7 is NaN":     {TopP: 1, RepetitionPenalty: 1, LogitBias: []Bias{{7, nan}}},
		"given twice":        {TopP: 1, RepetitionPenalty: 1, LogitBias: []Bias{{7, 1}, {7, 1}}},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %s", p, err, want)
		}
	}
	for _, p := range []Params{Default(), Greedy()} {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestDistDoesNotAllocate(t *testing.T) {
	s := New(Params{Temperature: 1, TopK: 50, TopP: .9, MinP: .01, RepetitionPenalty: 1.1, FrequencyPenalty: 1, LogitBias: []Bias{{3, 1}}}, 0)
	logits, dst, ctx := make([]float32, 1000), make([]float32, 1000), []int32{1, 2, 3}
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i)))
	}
	if n := testing.AllocsPerRun(50, func() { s.Dist(dst, logits, ctx) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestBits pins the bits of distributions: it fails for an exponential, a sum or a
// platform that computes others.
func TestBits(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	inf := float32(math.Inf(1))
	h := fnv.New64a()
	for round := range 500 {
		logits, ctx := make([]float32, 1+r.IntN(300)), []int32{0}
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * []float64{0.1, 3, 300}[round%3])
			switch k := r.IntN(400); {
			case k < 4:
				logits[i] = []float32{0, -inf, float32(math.NaN()), inf}[k]
			case round%50 == 0:
				logits[i] = -inf
			}
		}
		p := Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
		switch round % 5 {
		case 1:
			p.Temperature = 0.1 + r.Float64()
		case 2:
			p.TopK, p.Temperature = 1+r.IntN(40), 0.7
		case 3:
			p.TopP, p.MinP = r.Float64(), r.Float64()*0.1
		case 4:
			p.RepetitionPenalty, p.Temperature = 1.3, 1e-3
		}
		dist := make([]float64, len(logits))
		New(p, 0).Dist64(dist, logits, ctx)
		for _, v := range dist {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
			h.Write(b[:])
		}
	}
	if got, want := h.Sum64(), uint64(0x3bd302aefc2b431c); got != want {
		t.Errorf("bits hash to %#x, want %#x", got, want)
	}
}

func BenchmarkDist(b *testing.B) {
	logits, dst := make([]float32, 4096), make([]float32, 4096)
	for i := range logits {
		logits[i] = float32(3 * math.Sin(float64(i*i)))
	}
	for _, p := range []Params{Default(), {Temperature: .8, TopK: 50, TopP: .9, RepetitionPenalty: 1}} {
		b.Run(fmt.Sprintf("k=%d", p.TopK), func(b *testing.B) {
			s := New(p, 0)
			for b.Loop() {
				s.Dist(dst, logits)
			}
		})
	}
}

// BenchmarkDist64 measures what verifiers ask for, on a row too large for the caches
// near the core.
func BenchmarkDist64(b *testing.B) {
	logits, dst := make([]float32, 32000), make([]float64, 32000)
	for i := range logits {
		logits[i] = float32(3 * math.Sin(float64(i*i)))
	}
	for _, t := range []float64{1, 0.8} {
		b.Run(fmt.Sprintf("T=%v", t), func(b *testing.B) {
			p := Default()
			p.Temperature = t
			s := New(p, 0)
			for b.Loop() {
				s.Dist64(dst, logits)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(dst)), "ns/token")
		})
	}
}

// Mass that reaches top-p exactly is enough, as in transformers, which removes a token
// if those above it have at least top-p: of four equal tokens, half is two.
func TestTopPStopsWhereTheMassIsReached(t *testing.T) {
	p := Default()
	for top, want := range map[float64]int{0.25: 1, 0.5: 2, 0.75: 3, 0.7500001: 4} {
		p.TopP = top
		dist := make([]float32, 4)
		New(p, 0).Dist(dist, []float32{3, 3, 3, 3})
		kept := 0
		for i, x := range dist {
			if x > 0 {
				kept++
				if i >= want || x != float32(1/float64(want)) {
					t.Errorf("top-p %v: %v, want %d equal tokens, the lowest ids", top, dist, want)
				}
			}
		}
		if kept != want {
			t.Errorf("top-p %v keeps %d tokens, want %d", top, kept, want)
		}
	}
}

// What a restriction takes out is out before penalties' maximum, temperature and truncation: the
// result is the reference's for logits of which the others are −Inf.
func TestARestrictionComesBeforeTruncation(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	for round := range 2000 {
		n := 2 + r.IntN(200)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * 3)
		}
		allow := make([]uint64, 1+r.IntN(4)) // may be shorter than the row
		for i := range allow {
			allow[i] = r.Uint64() & r.Uint64()
		}
		may := func(id int) bool { return id/64 < len(allow) && allow[id/64]>>(id%64)&1 != 0 }
		ends := []int32{r.Int32N(int32(n)), int32(n) + 5}
		end := r.IntN(2) == 0
		p := Params{Temperature: 0.3 + r.Float64(), TopK: r.IntN(n), TopP: 0.3 + 0.7*r.Float64(), MinP: 0.2 * r.Float64(), RepetitionPenalty: 0.7 + r.Float64()}
		if r.IntN(2) == 0 {
			p.FrequencyPenalty, p.PresencePenalty = r.NormFloat64(), r.NormFloat64()
		}
		p.LogitBias = []Bias{{r.Int32N(int32(n)), 9 * r.NormFloat64()}}
		ctx := []int32{r.Int32N(int32(n)), r.Int32N(int32(n))}
		masked := slices.Clone(logits)
		left := 0
		for i := range masked {
			ok := may(i) && int32(i) != ends[0] || int32(i) == ends[0] && end
			if !ok {
				masked[i] = float32(math.Inf(-1))
			} else {
				left++
			}
		}
		if left == 0 {
			continue
		}
		s := New(p, 1)
		s.Restrict(allow, ends, end)
		if s.Plain() {
			t.Fatal("a restricted sampler is plain")
		}
		got, want := make([]float64, n), reference(p, masked, 1, ctx)
		before := slices.Clone(logits)
		s.Dist64(got, logits, ctx)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-7 || (got[i] == 0) != (want[i] == 0) {
				t.Fatalf("round %d: token %d has %v, want %v", round, i, got[i], want[i])
			}
		}
		if !slices.Equal(before, logits) {
			t.Fatal("the logits were written to")
		}
		if id := s.Argmax(logits, ctx); math.IsInf(float64(masked[id]), -1) {
			t.Fatalf("round %d: token %d is the most likely, which may not come", round, id)
		}
		s.Free()
		s.Dist64(got, logits, ctx)
		want = reference(p, logits, 1, ctx)
		if i := slices.IndexFunc(got, func(x float64) bool { return x == 0 }); i >= 0 && want[i] != 0 {
			t.Fatalf("round %d: token %d is still out", round, i)
		}
	}
}

// Penalties that make every token that is left infinitely unlikely leave the others out.
func TestARestrictionHoldsAgainstInfinitePenalties(t *testing.T) {
	p := Params{Temperature: 1, TopP: 1, RepetitionPenalty: math.MaxFloat32}
	s := New(p, 0)
	s.Restrict([]uint64{0b110}, []int32{1}, true)
	dist := make([]float64, 4)
	logits := []float32{5, -50, -60, 7}
	s.Dist64(dist, logits, []int32{1, 2})
	if want := []float64{0, .5, .5, 0}; !slices.Equal(dist, want) {
		t.Errorf("%v, want %v", dist, want)
	}
	s.Restrict([]uint64{0b100}, []int32{1}, false)
	if id := s.Argmax(logits, []int32{1, 2}); id != 2 {
		t.Errorf("token %d, want 2", id)
	}
}

// Quantile is Invert of the distribution, which a last bit of the quantile may put elsewhere, for any parameters.
func TestQuantileInvertsTheDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 21))
	for round := range 3000 {
		n := 1 + r.IntN(3*Bin)
		logits := make([]float32, n)
		for i := range logits {
			if logits[i] = float32(r.NormFloat64() * 3); r.IntN(4) == 0 { // ties
				logits[i] = float32(r.IntN(3))
			}
		}
		p := Params{Temperature: []float64{0, 0.2, 0.7, 1, 1.5, 1e-300}[r.IntN(6)], TopK: r.IntN(5) * r.IntN(n), TopP: 1, RepetitionPenalty: 1}
		var ctx []int32
		switch r.IntN(4) {
		case 0:
			p.TopP = r.Float64()
		case 1:
			p.MinP = 0.3 * r.Float64()
		case 2:
			p.RepetitionPenalty, p.PresencePenalty = 1.3, 0.2
			for range r.IntN(5) {
				ctx = append(ctx, r.Int32N(int32(n)))
			}
		}
		s := New(p, 0)
		d, u := make([]float64, n), r.Float64()
		s.Dist64(d, logits, ctx)
		if got, want := s.Quantile(logits, u, ctx), Invert(d, u); got != want {
			t.Fatalf("round %d, %+v: token %d at %v of %d, the distribution's %d", round, p, got, u, n, want)
		}
		by, ok := s.Scale()
		if alone := p.Temperature > 0 && p.TopK == 0 && p.TopP == 1 && p.MinP == 0 && p.RepetitionPenalty == 1; ok != alone {
			t.Fatalf("%+v: Scale says %v", p, ok)
		}
		if ok && by != min(1/p.Temperature, math.MaxFloat64) {
			t.Fatalf("temperature %v: scale %v", p.Temperature, by)
		}
	}
}
