// Package dist is the groups of processes that train one run together: the ranks that
// mpirun or srun started (Open, under the build tag mpi), members within one process
// for tests (Local), and a process of its own (Alone). They implement train.Group.
package dist

import (
	"context"
	"fmt"
	"os"
	"strconv"
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

// A launch is what a launcher says of the processes that it started.
type launch struct {
	by       string
	variable string // of the environment that says the number
	size     int
}

// launchers are those that start the ranks of an MPI program, by the variables that
// only the ranks have: a batch script of Slurm, which is no rank, has none of them.
var launchers = []struct{ by, size string }{
	{"Open MPI", "OMPI_COMM_WORLD_SIZE"},
	{"MPICH", "PMI_SIZE"},
	{"Slurm", "SLURM_STEP_NUM_TASKS"},
}

// launched reads the environment; the size is 1 for a process that was started alone.
func launched(env func(string) (string, bool)) (launch, error) {
	for _, l := range launchers {
		text, ok := env(l.size)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return launch{}, fmt.Errorf("the environment's %s is %q, want the number of ranks", l.size, text)
		}
		if n > 1 {
			return launch{by: l.by, variable: l.size, size: n}, nil
		}
	}
	return launch{size: 1}, nil
}

// Open joins the ranks that a launcher started with this process. Whoever was started
// alone gets a group of one; what was built without MPI refuses to be one of several,
// for they would all train the same run into the same directory. It is called once.
func Open() (*World, error) {
	l, err := launched(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if l.size == 1 {
		return &World{}, nil
	}
	return join(l)
}
