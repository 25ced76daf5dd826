//go:build !(mpi && cgo && unix)

package dist

import (
	"fmt"

	"talf/internal/launch"
)

// A World is a group of one, because this program was built without MPI.
type World struct{ Alone }

// Close leaves the group.
func (*World) Close() error { return nil }

// Lost returns the ranks that are known to have ended: none.
func (*World) Lost() []int { return nil }

func join(l launch.Place) (*World, error) {
	return nil, fmt.Errorf("%s started %d of this process (%s), but this talf was built without MPI and each would train the same run: build it with CC=mpicc CGO_ENABLED=1 go build -tags mpi ./cmd/talf, or start one process",
		l.By, l.Count, l.Variable)
}
