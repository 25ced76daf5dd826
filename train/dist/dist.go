// Package dist is the groups of processes that train one run together: the ranks that
// mpirun or srun started (Open, under the build tag mpi), members within one process
// for tests (Local), and a process of its own (Alone). They implement train.Group.
package dist

import (
	"context"
	"os"

	"talf/internal/launch"
)

// Alone is the group of one process.
type Alone struct{}

// Rank returns 0.
func (Alone) Rank() int { return 0 }

// Size returns 1.
func (Alone) Size() int { return 1 }

// Reduce leaves x, the sum of one.
func (Alone) Reduce([]float32) {}

// Wait returns at once.
func (Alone) Wait(context.Context) error { return nil }

// Gather returns msg alone.
func (Alone) Gather(_ context.Context, msg []byte) ([][]byte, error) { return [][]byte{msg}, nil }

// Broadcast leaves x.
func (Alone) Broadcast(context.Context, []float32) error { return nil }

// Open joins the ranks that a launcher started with this process. Whoever was started
// alone gets a group of one; what was built without MPI refuses to be one of several,
// for they would all train the same run into the same directory. It is called once.
func Open() (*World, error) {
	l, err := launch.Ranks(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if l.Count == 1 {
		return &World{}, nil
	}
	return join(l)
}
