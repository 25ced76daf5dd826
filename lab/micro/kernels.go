package micro

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"talf/compute"
	"talf/internal/table"
	"talf/model/ggml"
)

// A Probe measures the limits of a device: bytes read and f32 operations per second.
type Probe interface {
	Read() float64
	Peak() float64
}

// A KernelDevice is a device whose matrix products are measured.
type KernelDevice struct {
	Name   string
	Device compute.Device
	// Probe returns a probe that reads size bytes.
	Probe func(size int) Probe
}

// A KernelConfig says how products are measured.
type KernelConfig struct {
	DTypes []compute.DType
	Rows   []int
	Sizes  [][2]int // [out, in] of the weights
	Reps   int
	Seed   uint64
}

// DefaultKernels returns a configuration with weights that fit into a core's own cache and
// weights that do not.
func DefaultKernels() KernelConfig {
	return KernelConfig{
		DTypes: []compute.DType{compute.F32, compute.BF16, compute.Q8},
		Rows:   []int{1, 2, 4, 8, 16, 32, 64},
		Sizes:  [][2]int{{512, 768}, {98304, 1024}},
		Reps:   9,
		Seed:   1,
	}
}

// Validate reports the first value that cannot be used.
func (c KernelConfig) Validate() error {
	if len(c.DTypes) == 0 || len(c.Rows) == 0 || len(c.Sizes) == 0 || c.Reps < 1 {
		return errors.New("nothing to measure: want at least one type, number of rows, size and repetition")
	}
	for _, n := range c.Rows {
		if n < 1 || n > 4096 {
			return fmt.Errorf("products of %d rows, want 1 to 4096", n)
		}
	}
	for _, s := range c.Sizes {
		if s[0] < 1 || s[1] < 1 || s[0] > 1<<30/s[1] {
			return fmt.Errorf("weights of [%d][%d], want at most 2³⁰ elements", s[0], s[1])
		}
	}
	return nil
}

// A KernelRow is the speed of one matrix product.
type KernelRow struct {
	Device string  `json:"device"`
	DType  string  `json:"dtype"`
	Out    int     `json:"out"`
	In     int     `json:"in"`
	Rows   int     `json:"rows"`
	Best   float64 `json:"best_us"`
	Ratio  float64 `json:"ratio"` // to Best of the first number of rows
	Bytes  float64 `json:"weight_bytes_per_s"`
	Flops  float64 `json:"flops_per_s"`
	Read   float64 `json:"read_bytes_per_s"` // best of the same run, over as much memory
	Peak   float64 `json:"peak_flops_per_s"` // best of the same run, f32
}

// Kernels measures the matrix products of every device, type and size. The numbers of rows
// take turns, so that a change of the machine's speed affects them all alike.
func Kernels(ctx context.Context, devices []KernelDevice, c KernelConfig) ([]KernelRow, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	most := slices.Max(c.Rows)
	var out []KernelRow
	for _, d := range devices {
		q := d.Device.Queue()
		for _, size := range c.Sizes {
			no, ni := size[0], size[1]
			m := randomMatrix(no, ni, c.Seed)
			for _, dt := range c.DTypes {
				of := m
				if dt == compute.Q4 {
					of = randomBlocks(no, ni, c.Seed)
				}
				w, err := d.Device.Pack(dt, of)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", d.Name, err)
				}
				x, err1 := d.Device.Alloc(compute.F32, most, ni)
				y, err2 := d.Device.Alloc(compute.F32, most, no)
				if err := errors.Join(err1, err2); err != nil {
					return nil, fmt.Errorf("%s: %w", d.Name, err)
				}
				r := rand.New(rand.NewPCG(c.Seed, 2))
				in := make([]float32, most*ni)
				for i := range in {
					in[i] = float32(r.NormFloat64())
				}
				q.Write(x, in)
				l, probe := &compute.Linear{W: w}, d.Probe(w.Bytes())
				// A sample takes about a millisecond, far more than the resolution of the clock.
				calls := max(1, 4<<20/w.Bytes())
				best, read, peak := make([]float64, len(c.Rows)), 0.0, 0.0
				for rep := range c.Reps + 1 {
					for i, n := range c.Rows {
						since := time.Now()
						for range calls {
							q.Linear(y, x, l, compute.Store, n)
						}
						if err := q.Sync(ctx); err != nil {
							return nil, err
						}
						if t := time.Since(since).Seconds() / float64(calls); rep == 1 || rep > 1 && t < best[i] {
							best[i] = t
						}
					}
					for range calls {
						read = max(read, probe.Read())
					}
					peak = max(peak, probe.Peak())
				}
				for i, n := range c.Rows {
					out = append(out, KernelRow{
						Device: d.Name, DType: dt.String(), Out: no, In: ni, Rows: n,
						Best: best[i] * 1e6, Ratio: best[i] / best[0], Bytes: float64(w.Bytes()) / best[i],
						Flops: 2 * float64(n) * float64(no) * float64(ni) / best[i], Read: read, Peak: peak,
					})
				}
			}
		}
	}
	return out, nil
}

// randomBlocks returns a matrix of random integers in 4-bit blocks: Q4_K, or Q4_0 if a row is not
// whole blocks of it. If it is not of those either, packing fails.
func randomBlocks(rows, cols int, seed uint64) compute.Matrix {
	const q4K, q4 = 12, 2
	id := uint32(q4K)
	if cols%256 != 0 {
		id = q4
	}
	t, err := ggml.ByID(id)
	if err != nil {
		panic("micro: " + err.Error()) // it is read
	}
	r := rand.New(rand.NewPCG(seed, 1))
	m := compute.Matrix{Rows: rows, Cols: cols, Type: compute.Blocks, Block: t, Data: make([]byte, rows*(cols/t.Elems)*t.Size)}
	for b := m.Data; len(b) > 0; b = b[t.Size:] {
		for i := range t.Size {
			b[i] = byte(r.Uint32())
		}
		const tiny = 0x14 // of a float16: the high byte of 2^-10
		b[1] = tiny
		if id == q4K {
			b[3] = tiny
		}
	}
	return m
}

func randomMatrix(rows, cols int, seed uint64) compute.Matrix {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 0, 2*rows*cols)
	for range rows * cols {
		data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(r.Float64()-0.5))>>16))
	}
	return compute.Matrix{Rows: rows, Cols: cols, Type: compute.BF16, Data: data}
}

// KernelTable lays out the rows.
func KernelTable(rows []KernelRow) table.Table {
	t := table.Table{Header: []string{"device", "weights", "size", "rows", "µs", "cost over one", "GB/s", "of read", "GFLOP/s", "of f32 peak"}}
	for _, r := range rows {
		t.Cells = append(t.Cells, []string{
			r.Device, r.DType, fmt.Sprintf("%d×%d", r.Out, r.In), fmt.Sprint(r.Rows), fmt.Sprintf("%.1f", r.Best),
			fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.1f", r.Bytes/1e9), fmt.Sprintf("%.0f%%", 100*r.Bytes/r.Read),
			fmt.Sprintf("%.0f", r.Flops/1e9), fmt.Sprintf("%.0f%%", 100*r.Flops/r.Peak),
		})
	}
	return t
}
