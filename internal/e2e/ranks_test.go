//go:build !mpi

package e2e

import (
	"path/filepath"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
)

// Several processes that know nothing of each other would train the same run into one
// directory: a talf without MPI refuses to be one of them, whoever started it.
func TestTrainWithoutMPIRefusesToBeARank(t *testing.T) {
	for _, v := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"} {
		for n, want := range map[string]string{"2": "-tags mpi ./cmd/talf", "two": "want the number of ranks", "0": "want the number of ranks", "1": "does not exist"} {
			c := talftest.Command(t, "train", "--model", filepath.Join(t.TempDir(), "none"), "--data", "labels", "--out", filepath.Join(t.TempDir(), "run"))
			c.Env = append(c.Env, v+"="+n)
			if n == "1" {
				talftest.Finish(t, c).Refuses(t, command.ExitFailure, want)
				continue
			}
			talftest.Finish(t, c).Refuses(t, command.ExitFailure, v, want)
		}
	}
}
