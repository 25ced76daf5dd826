package dist

import (
	"strings"
	"testing"
)

func TestLaunchersAreKnownByTheirRanks(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want launch
		err  string
	}{
		{nil, launch{size: 1}, ""},
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "4"}, launch{"Open MPI", "OMPI_COMM_WORLD_SIZE", 4}, ""},
		{map[string]string{"PMI_SIZE": "2"}, launch{"MPICH", "PMI_SIZE", 2}, ""},
		// mpirun within a job step of Slurm.
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "3", "SLURM_STEP_NUM_TASKS": "2"}, launch{"Open MPI", "OMPI_COMM_WORLD_SIZE", 3}, ""},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "1"}, launch{size: 1}, ""},
		// A batch script is no rank.
		{map[string]string{"SLURM_NTASKS": "8"}, launch{size: 1}, ""},
		{map[string]string{"OMPI_COMM_WORLD_SIZE": ""}, launch{}, "OMPI_COMM_WORLD_SIZE is \"\""},
		{map[string]string{"PMI_SIZE": "-1"}, launch{}, "PMI_SIZE is \"-1\""},
	} {
		got, err := launched(func(k string) (string, bool) { v, ok := c.env[k]; return v, ok })
		if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %+v, %v, want %+v and %q", c.env, got, err, c.want, c.err)
		}
	}
}
