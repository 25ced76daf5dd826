package dist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// together runs f on the ranks of a group of n and returns their errors. It is called in a bubble of time,
// where no grace ends while a rank is at work.
func together(n int, f func(*Peers) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, m := range Local(n, nil) {
		p := NewPeers(m)
		wg.Go(func() { errs[r] = f(p) })
	}
	wg.Wait()
	return errs
}

// All ranks get the error of the first that failed, or are stopped by one that was interrupted.
func TestRanksAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		planted := errors.New("planted")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name string
			say  func(rank int) (context.Context, error)
			want string // on every rank; "": no error
			is   error  // on every rank
		}{
			{"none fails", func(int) (context.Context, error) { return t.Context(), nil }, "", nil},
			{"one fails", func(r int) (context.Context, error) {
				if r > 0 {
					return t.Context(), planted
				}
				return t.Context(), nil
			}, "rank 1: planted", nil},
			{"all fail alike", func(int) (context.Context, error) { return t.Context(), planted }, "planted", planted},
			{"one is interrupted", func(r int) (context.Context, error) {
				if r == 2 {
					return over, over.Err()
				}
				return t.Context(), nil
			}, "canceled", context.Canceled},
		} {
			errs := together(3, func(p *Peers) error {
				ctx, err := c.say(p.Rank())
				return p.Agree(ctx, err)
			})
			for r, err := range errs {
				if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s: rank %d gets %v, want %q", c.name, r, err, c.want)
				}
				if ctx, _ := c.say(r); c.is == context.Canceled && !Interrupted(ctx, err) {
					t.Errorf("%s: rank %d does not take %v for an interruption", c.name, r, err)
				}
			}
		}
	})
}

// Bodies arrive by rank, and parts that must be the same are compared.
func TestRanksExchangeAndCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for r, err := range together(3, func(p *Peers) error {
			bodies, err := p.Exchange(t.Context(), p.Rank()*10, nil)
			if err != nil {
				return err
			}
			for r, b := range bodies {
				var x int
				if err := json.Unmarshal(b, &x); err != nil || x != 10*r {
					t.Errorf("rank %d has %d of rank %d, %v", p.Rank(), x, r, err)
				}
			}
			if first, n := p.Share(6); n != 2 || first != 2*p.Rank() {
				t.Errorf("rank %d runs %d from %d", p.Rank(), n, first)
			}
			return p.Same(t.Context(), []string{"sizes", "seeds"}, []string{"3 4", map[bool]string{true: "seed 8", false: "seed 7"}[p.Rank() == 2]})
		}) {
			if err == nil || err.Error() != "rank 2 has other seeds than rank 0: 8, not 7" {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// A rank that was interrupted waits for the others no longer than the grace, over all its
// operations; without an interruption it waits.
func TestAnInterruptedRankWaitsForAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeers(Local(2, nil)[0]) // rank 1 never comes
		p.Grace = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		time.AfterFunc(30*time.Millisecond, cancel)
		err := p.Broadcast(ctx, make([]float32, 3))
		if took := time.Since(start); !errors.Is(err, ErrLost) || took != 80*time.Millisecond {
			t.Errorf("%v after %v, want %v after 80ms", err, took, ErrLost)
		}
		start = time.Now()
		if err := p.Agree(ctx, nil); !errors.Is(err, ErrLost) || p.Lost() == nil || time.Since(start) > 0 {
			t.Errorf("a later operation: %v after %v", err, time.Since(start))
		}
	})
}

// A long message passes from one rank to the first in pieces, and what a rank has not is everyone's error.
func TestRanksFetchLongMessages(t *testing.T) {
	long := make([]byte, 33<<20+5)
	for i := range long {
		long[i] = byte(i ^ i>>11)
	}
	errs := together(3, func(p *Peers) error {
		rank := p.Rank()
		for _, msg := range [][]byte{long, long[:32<<20], long[:1], nil} {
			var own []byte
			if rank == 2 {
				own = msg
			}
			got, err := p.Fetch(t.Context(), 2, own, nil)
			if err != nil || rank == 0 && !bytes.Equal(got, msg) || rank > 0 && got != nil {
				t.Errorf("rank %d: %d bytes of %d, %v", rank, len(got), len(msg), err)
			}
		}
		var none error
		if rank == 2 {
			none = errors.New("planted")
		}
		if _, err := p.Fetch(t.Context(), 2, nil, none); err == nil || err.Error() != "rank 2: planted" {
			t.Errorf("rank %d: %v, want rank 2's", rank, err)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
