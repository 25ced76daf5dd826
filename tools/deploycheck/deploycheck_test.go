package deploycheck

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const file = "../../docs/deploy/preprocess-job.yaml"

func TestTheJobIsOneForKubernetes(t *testing.T) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	j, err := Job(b)
	if err != nil {
		t.Fatal(err)
	}
	// Settings that Kubernetes does not pass to the pods must agree with its own.
	if want := fmt.Sprintf("--shard-count=%d", *j.Spec.Completions); !slices.Contains(j.Spec.Template.Spec.Containers[0].Args, want) {
		t.Errorf("arguments %v, want %s", j.Spec.Template.Spec.Containers[0].Args, want)
	}
}

func TestMistakesAreFound(t *testing.T) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"completions: 8":                "completion: 8",
		"completionMode: Index":         "completionMode: NonIndex",
		"backoffLimitPerIndex: 5":       "backoffLimitPerIndex: five",
		"restartPolicy: Never":          "restartPolicy: Always",
		"cpu: \"16\"":                   "cpu: many",
		"name: data\n          persist": "name: other\n          persist",
		"apiVersion: batch/v1":          "apiVersion: v1",
		"podReplacementPolicy: Failed":  "podReplacementPolicy: TerminatingOrFailed",
	} {
		bad := strings.Replace(string(b), from, to, 1)
		if bad == string(b) {
			t.Fatalf("no %q in %s", from, file)
		}
		if _, err := Job([]byte(bad)); err == nil {
			t.Errorf("%q in place of %q was accepted", to, from)
		}
	}
}
