// Package dist holds the groups of processes that train one run together, and how they agree
// (Peers). A Group is the ranks that mpirun or srun started (Open, with the build tag mpi),
// members within one process (Together for its devices, Local for tests), or a single process (Alone).
package dist

import (
	"context"
	"os"

	"talf/internal/launch"
)

// Alone is a group of one process.
type Alone struct{}

// Rank returns 0.
func (Alone) Rank() int { return 0 }

// Size returns 1.
func (Alone) Size() int { return 1 }

// Reduce leaves x as it is.
func (Alone) Reduce([]float32) {}

// Wait returns at once.
func (Alone) Wait(context.Context) error { return nil }

// Gather returns msg.
func (Alone) Gather(_ context.Context, msg []byte) ([][]byte, error) { return [][]byte{msg}, nil }

// Broadcast leaves x as it is.
func (Alone) Broadcast(context.Context, []float32) error { return nil }

// Open joins the ranks that a launcher started together with this process. A process that was
// started alone gets a group of one. A program built without MPI refuses to be one of several,
// which would all write the same run into the same directory. Open is called once.
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
