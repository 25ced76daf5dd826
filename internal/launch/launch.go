// Package launch finds out from the environment which launcher started this process, and as
// which of how many: Open MPI, MPICH, Slurm or Kubernetes.
package launch

import (
	"fmt"
	"strconv"
)

// An Env looks up a variable of the environment, as os.LookupEnv does.
type Env func(name string) (value string, found bool)

// A Place is this process's number among those that a launcher started together.
type Place struct {
	By       string // the launcher
	Variable string // of the environment, which says so
	Index    int    // from 0; 0 in what Ranks returns, since MPI itself numbers ranks
	Count    int    // 0 if the launcher does not say
}

// Tasks returns the place that each launcher gives this process among independent tasks. It is
// empty for a process that was started alone. A process may be both one rank of several and one
// task of an array: then there are two places.
func Tasks(env Env) ([]Place, error) {
	var all []Place
	for _, l := range []struct {
		by                      string
		index, count, min, step string // variables; "": there is none
	}{
		{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "", ""},
		{"Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"},
		{"Kubernetes", "JOB_COMPLETION_INDEX", "", "", ""},
	} {
		if _, ok := env(l.index); !ok {
			continue
		}
		index, err := number(env, l.index, 0)
		if err != nil {
			return nil, err
		}
		count, err := number(env, l.count, 0)
		if err != nil {
			return nil, err
		}
		first, err := number(env, l.min, 0)
		if err != nil {
			return nil, err
		}
		step, err := number(env, l.step, 1)
		if err != nil {
			return nil, err
		}
		if count != 1 {
			all = append(all, Place{By: l.by, Variable: l.index, Index: (index - first) / max(step, 1), Count: count})
		}
	}
	return all, nil
}

// number returns a variable that is an integer, or def if it is not set.
func number(env Env, name string, def int) (int, error) {
	text, ok := env(name)
	if name == "" || !ok {
		return def, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("the environment's %s is %q, want a whole number", name, text)
	}
	return v, nil
}

// Ranks returns the launcher that started the ranks of one MPI program, of which this process is
// one. Count is 1, and By empty, for a process that was started alone. It reads only variables
// that ranks alone have: a batch script of Slurm, which is not a rank, has none of them.
func Ranks(env Env) (Place, error) {
	for _, l := range []struct{ by, count string }{
		{"Open MPI", "OMPI_COMM_WORLD_SIZE"},
		{"MPICH", "PMI_SIZE"},
		{"Slurm", "SLURM_STEP_NUM_TASKS"},
	} {
		text, ok := env(l.count)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return Place{}, fmt.Errorf("the environment's %s is %q, want the number of ranks", l.count, text)
		}
		if n > 1 {
			return Place{By: l.by, Variable: l.count, Count: n}, nil
		}
	}
	return Place{Count: 1}, nil
}

// Local returns this rank's index, from 0, among the ranks on its machine. found says that the launcher tells it.
func Local(env Env) (index int, found bool, err error) {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"} {
		if _, found = env(name); found {
			index, err = number(env, name, 0)
			return index, true, err
		}
	}
	return 0, false, nil
}
