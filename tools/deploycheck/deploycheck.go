// Package deploycheck checks the manifests of docs/deploy against Kubernetes' own types: it
// finds fields that do not exist, values of the wrong type, and Jobs that the API server would
// refuse because something is missing. Those that serve a model are also checked against each other.
//
// kubeconform checks against JSON schemas that it downloads; the types are the same schema, and
// in the module cache.
package deploycheck

import (
	"errors"
	"fmt"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Job parses an indexed Job strictly, and reports what its index lacks.
func Job(manifest []byte) (*batch.Job, error) {
	var j batch.Job
	if err := yaml.UnmarshalStrict(manifest, &j); err != nil {
		return nil, err
	}
	s := &j.Spec
	pod := &s.Template.Spec
	switch {
	case j.APIVersion != "batch/v1" || j.Kind != "Job":
		return nil, fmt.Errorf("%s %s, want batch/v1 Job", j.APIVersion, j.Kind)
	case j.Name == "":
		return nil, errors.New("metadata.name is missing")
	case s.CompletionMode == nil || *s.CompletionMode != batch.IndexedCompletion:
		return nil, errors.New("spec.completionMode: want Indexed")
	case s.Completions == nil || *s.Completions < 1:
		return nil, errors.New("spec.completions: want the number of indices")
	case s.PodReplacementPolicy != nil && *s.PodReplacementPolicy != batch.Failed:
		return nil, errors.New("spec.podReplacementPolicy: want Failed, or two pods of one index meet")
	case pod.RestartPolicy != core.RestartPolicyNever && pod.RestartPolicy != core.RestartPolicyOnFailure:
		return nil, errors.New("spec.template.spec.restartPolicy: want Never or OnFailure in a Job")
	case s.BackoffLimitPerIndex != nil && pod.RestartPolicy != core.RestartPolicyNever:
		return nil, errors.New("spec.backoffLimitPerIndex wants restartPolicy Never")
	case len(pod.Containers) == 0:
		return nil, errors.New("spec.template.spec.containers: none")
	}
	if err := mounts(pod); err != nil {
		return nil, err
	}
	return &j, nil
}

// mounts checks that what containers mount is there.
func mounts(pod *core.PodSpec) error {
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		if c.Name == "" || c.Image == "" {
			return errors.New("a container without name or image")
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("container %s mounts %s, which is no volume of the pod", c.Name, m.Name)
			}
		}
	}
	return nil
}
