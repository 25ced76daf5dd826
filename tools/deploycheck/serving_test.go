package deploycheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func servingFiles(t *testing.T) (serve, pool string) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile("../../docs/deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return read("serve.yaml"), read("serve-inferencepool.yaml")
}

func TestTheServersAreForKubernetes(t *testing.T) {
	serve, pool := servingFiles(t)
	if _, err := ReadServing([]byte(serve), []byte(pool)); err != nil {
		t.Error(err)
	}
	if _, err := ReadServing([]byte(serve)); err == nil {
		t.Error("a pool is not missed")
	}
	if _, err := ReadServing([]byte(serve), []byte(pool), []byte(pool)); err == nil || !strings.Contains(err.Error(), "InferencePool: a second one") {
		t.Errorf("two pools: %v", err)
	}
}

func TestMistakesOfServersAreFound(t *testing.T) {
	serve, pool := servingFiles(t)
	for from, to := range map[string]string{
		// Strict types.
		"maxUnavailable: 0":        "maxUnavailble: 0",
		"periodSeconds: 5":         "periodSeconds: five",
		"memory: 12Gi":             "memory: twelve",
		"failureThreshold: 120":    "failureTreshold: 120",
		"maxReplicas: 8":           "maxReplica: 8",
		"targetPorts:":             "targetPort:",
		"kind: InferencePool":      "kind: InferenceModel",
		"apiVersion: policy/v1":    "apiVersion: policy/v1beta1",
		"averageValue: 800m":       "averageValue: most",
		"failureMode: FailOpen":    "failureMode: Open",
		"sleep: {seconds: 10}":     "sleep: 10",
		"  maxUnavailable: 1\n":    "  maxUnavailable: 1\n  minAvailable: 1\n",
		"secret: {secretName":      "secret: {name",
		"whenUnsatisfiable: Sched": "whenUnsatisfied: Sched",
		// What works together.
		"spec:\n  # No replicas":                    "spec:\n  replicas: 2\n  # No replicas",
		"labels: {app: talf}\n      annot":          "labels: {app: other}\n      annot",
		"--listen=0.0.0.0:8080":                     "--listen=0.0.0.0:8081",
		"prometheus.io/port: \"8080\"":              "prometheus.io/port: \"80\"",
		"httpGet: {path: /health, port: http}":      "httpGet: {path: /ready, port: http}",
		"containerPort: 8080":                       "containerPort: 9090",
		"terminationGracePeriodSeconds: 90":         "terminationGracePeriodSeconds: 70",
		"--grace=60s":                               "--grace=90s",
		"seconds: 10}":                              "seconds: 1}",
		"runAsNonRoot: true":                        "runAsNonRoot: false",
		"drop: [ALL]":                               "drop: [NET_RAW]",
		"readOnlyRootFilesystem: true":              "readOnlyRootFilesystem: false",
		"automountServiceAccountToken: false":       "automountServiceAccountToken: true",
		"limits: {cpu: \"8\", memory: 12Gi}":        "limits: {cpu: \"8\"}",
		"name: keys, mountPath":                     "name: secrets, mountPath",
		"kind: Deployment, name: talf":              "kind: Deployment, name: other",
		"minReplicas: 2":                            "minReplicas: 1",
		"{name: vllm_num_requests_waiting}":         "{name: cpu}",
		"targetPort: http":                          "targetPort: https",
		"- number: 8080":                            "- number: 8000",
		"- --metrics-without-key\n":                 "- --without-key\n",
		"kind: InferencePool\n          name: talf": "kind: InferencePool\n          name: other",
		"group: inference":                          "group: x.inference",
		"value: /v1}":                               "value: /v2}",
		"- name: inference\n":                       "- nme: inference\n",
		"timeouts: {request: 0s":                    "timeouts: {request: 15s",
	} {
		if n := strings.Count(serve+pool, from); n == 0 {
			t.Fatalf("no %q", from)
		}
		bad, badPool := strings.Replace(serve, from, to, 1), strings.Replace(pool, from, to, 1)
		if _, err := ReadServing([]byte(bad), []byte(badPool)); err == nil {
			t.Errorf("%q in place of %q was accepted", to, from)
		}
	}
}

// systemd itself reads the unit, and finds little that a break-in could use.
func TestTheUnitIsForSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	b, err := os.ReadFile("../../docs/deploy/talf-serve.service")
	if err != nil {
		t.Fatal(err)
	}
	run := func(unit string, args ...string) (string, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "talf-serve.service")
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, append(args, file)...).CombinedOutput()
		return string(out), err
	}
	// The program and its manual are not installed here.
	unit := strings.NewReplacer("/usr/local/bin/talf", "/bin/true", "Documentation=man:talf-serve(1)\n", "").Replace(string(b))
	if out, err := run(unit, "verify"); err != nil || strings.Contains(out, "talf-serve.service") {
		t.Errorf("%v: %s", err, out)
	}
	if out, _ := run(strings.Replace(unit, "ProtectHome=yes", "ProtectHome=maybe", 1), "verify"); !strings.Contains(out, "Failed to parse protect home") {
		t.Errorf("a mistake is not found: %s", out)
	}
	if out, err := run(unit, "security", "--offline=true", "--no-pager", "--threshold=20"); err != nil { // of 100
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(strings.Replace(unit, "CapabilityBoundingSet=\n", "", 1), "security", "--offline=true", "--no-pager", "--threshold=20"); err == nil {
		t.Errorf("a unit with capabilities passes: %s", out)
	}
}
