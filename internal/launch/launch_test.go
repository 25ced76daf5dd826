package launch

import (
	"slices"
	"strings"
	"testing"
)

// of returns an environment from "NAME=value NAME=value".
func of(text string) Env {
	vars := map[string]string{}
	for _, e := range strings.Fields(text) {
		k, v, _ := strings.Cut(e, "=")
		vars[k] = v
	}
	return func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
}

func TestLaunchersNumberTasks(t *testing.T) {
	for env, want := range map[string][]Place{
		"": nil,
		"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=0":                          {{"Slurm", "SLURM_ARRAY_TASK_ID", 3, 8}},
		"SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_STEP=4": {{"Slurm", "SLURM_ARRAY_TASK_ID", 3, 4}},
		"JOB_COMPLETION_INDEX=3": {{"Kubernetes", "JOB_COMPLETION_INDEX", 3, 0}},
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2": {{"Slurm", "SLURM_ARRAY_TASK_ID", 1, 2}},
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2": {
			{"Open MPI", "OMPI_COMM_WORLD_RANK", 0, 2},
			{"Slurm", "SLURM_ARRAY_TASK_ID", 1, 2},
		},
	} {
		if got, err := Tasks(of(env)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", env, got, err, want)
		}
	}
	for _, env := range []string{"SLURM_ARRAY_TASK_ID=x", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=-1", "JOB_COMPLETION_INDEX="} {
		if _, err := Tasks(of(env)); err == nil || !strings.Contains(err.Error(), "want a whole number") {
			t.Errorf("%s: error %v", env, err)
		}
	}
}

func TestLaunchersAreKnownByTheirRanks(t *testing.T) {
	for _, c := range []struct {
		env  string
		want Place
		err  string
	}{
		{"", Place{Count: 1}, ""},
		{"OMPI_COMM_WORLD_SIZE=4", Place{"Open MPI", "OMPI_COMM_WORLD_SIZE", 0, 4}, ""},
		{"PMI_SIZE=2", Place{"MPICH", "PMI_SIZE", 0, 2}, ""},
		// mpirun within a job step of Slurm.
		{"OMPI_COMM_WORLD_SIZE=3 SLURM_STEP_NUM_TASKS=2", Place{"Open MPI", "OMPI_COMM_WORLD_SIZE", 0, 3}, ""},
		{"SLURM_STEP_NUM_TASKS=1", Place{Count: 1}, ""},
		// A batch script is not a rank.
		{"SLURM_NTASKS=8", Place{Count: 1}, ""},
		{"OMPI_COMM_WORLD_SIZE=", Place{}, "OMPI_COMM_WORLD_SIZE is \"\""},
		{"PMI_SIZE=-1", Place{}, "PMI_SIZE is \"-1\""},
	} {
		got, err := Ranks(of(c.env))
		if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %+v, %v, want %+v and %q", c.env, got, err, c.want, c.err)
		}
	}
}

func TestRanksKnowTheirPlaceOnTheirMachine(t *testing.T) {
	for _, c := range []struct {
		env   string
		index int
		found bool
		err   string
	}{
		{"", 0, false, ""},
		{"OMPI_COMM_WORLD_LOCAL_RANK=3 SLURM_LOCALID=0", 3, true, ""},
		{"MPI_LOCALRANKID=1", 1, true, ""},
		{"SLURM_LOCALID=2", 2, true, ""},
		{"SLURM_LOCALID=x", 0, true, `SLURM_LOCALID is "x", want a whole number`},
	} {
		i, found, err := Local(of(c.env))
		if i != c.index || found != c.found || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %v, %v", c.env, i, found, err)
		}
	}
}
