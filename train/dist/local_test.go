package dist_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"talf/train/dist"
)

// A panic in a round is the error of all its members, and the next round goes on.
func TestAPanicInARoundIsItsMembersError(t *testing.T) {
	var rounds atomic.Int32
	members := dist.Local(2, func(int) time.Duration {
		if rounds.Add(1) == 1 {
			panic("planted")
		}
		return 0
	})
	for i, m := range members {
		m.Reduce([]float32{float32(i)})
	}
	for i, m := range members {
		if err := m.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "reduces: panic: planted") {
			t.Errorf("rank %d: %v, want the panic", i, err)
		}
	}
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			if got, err := m.Gather(t.Context(), []byte{byte(i)}); err != nil || len(got) != 2 || got[1][0] != 1 {
				t.Errorf("rank %d, the next round: %v, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

// What all members have joined and is done is no loss for one that is interrupted before it looks.
func TestWhatIsDoneCounts(t *testing.T) {
	members := dist.Local(2, nil)
	for range 20 {
		for _, m := range members {
			m.Reduce([]float32{1})
		}
	}
	if err := members[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := members[1].Wait(over); err != nil {
		t.Error(err)
	}
}

// Members of one process meet: what rank 0 makes of what all give is everyone's, and a panic is everyone's error.
func TestMembersMeet(t *testing.T) {
	names := []string{"a", "b", "c"}
	var made, failed atomic.Int32
	_, err := dist.Together(names, func(rank int, m *dist.Member) (any, error) {
		p := dist.NewPeers(m)
		if !p.Near() || dist.NewPeers(nil).Near() {
			t.Errorf("rank %d: members are near, and one process alone is not", rank)
		}
		for range 3 {
			got, err := p.Meet(t.Context(), names[rank], func(given []any) any {
				made.Add(1)
				return given[0].(string) + given[1].(string) + given[2].(string)
			})
			if err != nil || got != "abc" {
				t.Errorf("rank %d: %v, %v", rank, got, err)
			}
		}
		_, err := p.Meet(t.Context(), nil, func([]any) any { panic("planted") })
		if err == nil || !strings.Contains(err.Error(), "meets: panic: planted") {
			t.Errorf("rank %d: %v, want the panic", rank, err)
		}
		failed.Add(1)
		return nil, nil
	})
	if err != nil || made.Load() != 3 || failed.Load() != 3 {
		t.Errorf("%d calls, %d ranks failed, %v", made.Load(), failed.Load(), err)
	}
}
