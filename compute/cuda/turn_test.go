//go:build gpu && linux && cgo

package cuda

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"talf/internal/await"
)

// Where nothing else is under way, do runs on its caller's thread, and otherwise after all that was
// sent, on the owner's. One at a time has the device.
func TestDoTakesTheTurnOrWaitsForIt(t *testing.T) {
	d := &device{work: make(chan command, 64), done: make(chan struct{})}
	go d.serve()
	defer d.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var on int
	where := func() error { on = unix.Gettid(); return nil }
	if err := d.do(where); err != nil || on != unix.Gettid() {
		t.Fatalf("with nothing sent, do ran on thread %d (%v), want its caller's, %d", on, err, unix.Gettid())
	}
	var order []int
	hold, caller, ran := make(chan struct{}), 0, make(chan error, 1)
	d.send(command{f: func() { <-hold; order = append(order, 1) }})
	go func() {
		runtime.LockOSThread()
		caller = unix.Gettid()
		ran <- d.do(func() error { order = append(order, 2); return where() })
	}()
	await.Until(t, "do to wait for its turn", func() bool { return d.sent.Load() == 2 || len(ran) > 0 })
	close(hold)
	if err := <-ran; err != nil || on == caller {
		t.Errorf("behind work that was sent, do ran on its caller's thread (%v)", err)
	}
	if !slices.Equal(order, []int{1, 2}) {
		t.Errorf("work ran in the order %v", order)
	}
	var all sync.WaitGroup
	busy, runs := false, 0
	alone := func() {
		if busy {
			t.Error("two have the device")
		}
		busy = true
		runtime.Gosched()
		busy = false
		runs++
	}
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				if i%2 == 0 {
					d.send(command{f: alone})
					runtime.Gosched()
				} else if err := d.do(func() error { alone(); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := d.do(func() error { return nil }); err != nil || runs != 800 {
		t.Errorf("%d of 800 ran: %v", runs, err)
	}
}

// What a pass collects is what was launched, however much of it graphs have that came before.
func TestAPassCollectsWhatIsLaunched(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	random := func() launched {
		l := launched{kernel: kernel(r.IntN(2)), grid: [3]uint32{1, 1, uint32(1 + r.IntN(2))}, threads: 128}
		l.threads = kernels[l.kernel].threads
		l.args[0], l.args[3] = uint64(r.IntN(2)), uint64(r.IntN(2))
		return l
	}
	var complete, begun int
	for range 2000 {
		var p pass
		for range r.IntN(5) {
			g := new(graph)
			for range 1 + r.IntN(6) {
				g.list = append(g.list, random())
			}
			if len(p.graphs) > 0 && r.IntN(2) == 0 { // one that begins like another
				o := p.graphs[0].list
				g.list = append(slices.Clone(o[:r.IntN(len(o)+1)]), g.list...)
			}
			p.graphs = append(p.graphs, g)
		}
		var want []launched
		for range 1 + r.IntN(6) {
			want = append(want, random())
		}
		if len(p.graphs) > 0 && r.IntN(4) > 0 {
			o := p.graphs[r.IntN(len(p.graphs))].list
			want = append(slices.Clone(o[:r.IntN(len(o)+1)]), want[:r.IntN(2)]...)
			if len(want) == 0 {
				continue
			}
		}
		p.begin()
		for i := range want {
			p.launch(want[i].kernel, want[i].grid, want[i].args[:4])
		}
		if p.like != nil && p.n == len(p.like.list) {
			complete++
		} else if p.like != nil {
			begun++
		}
		if p.like != nil {
			p.write()
		}
		if !slices.Equal(p.list, want) {
			t.Fatalf("collected %v, want %v", p.list, want)
		}
	}
	if complete < 100 || begun < 100 {
		t.Errorf("%d passes were those of graphs, %d began like one: too few for a test", complete, begun)
	}
}
