package deploycheck

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	pool "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// A Serving is what serves a model in Kubernetes: one object of each kind.
type Serving struct {
	Deployment *apps.Deployment
	Service    *core.Service
	Autoscaler *autoscaling.HorizontalPodAutoscaler
	Disruption *policy.PodDisruptionBudget
	Pool       *pool.InferencePool
	Route      *gateway.HTTPRoute
}

// ReadServing parses manifests of one or more documents each strictly, and checks what the API
// server would refuse and what it would not, but keeps the objects from working together.
func ReadServing(manifests ...[]byte) (*Serving, error) {
	s := &Serving{}
	for _, m := range manifests {
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(m)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if err := s.add(doc); err != nil {
				return nil, err
			}
		}
	}
	if s.Deployment == nil || s.Service == nil || s.Autoscaler == nil || s.Disruption == nil || s.Pool == nil || s.Route == nil {
		return nil, errors.New("want a Deployment, a Service, a HorizontalPodAutoscaler, a PodDisruptionBudget, an InferencePool and an HTTPRoute")
	}
	return s, errors.Join(s.deployment(), s.service(), s.autoscaler(), s.disruption(), s.pool(), s.route())
}

// add parses one document.
func (s *Serving) add(doc []byte) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	var err error
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		err = read(doc, &s.Deployment)
	case "v1 Service":
		err = read(doc, &s.Service)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		err = read(doc, &s.Autoscaler)
	case "policy/v1 PodDisruptionBudget":
		err = read(doc, &s.Disruption)
	case "inference.networking.k8s.io/v1 InferencePool":
		err = read(doc, &s.Pool)
	case "gateway.networking.k8s.io/v1 HTTPRoute":
		err = read(doc, &s.Route)
	default:
		return fmt.Errorf("%s %s is none of the kinds that serve", kind.APIVersion, kind.Kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return nil
}

// read parses the only document of a kind.
func read[T any](doc []byte, into **T) error {
	if *into != nil {
		return errors.New("a second one, want one object of each kind")
	}
	*into = new(T)
	return yaml.UnmarshalStrict(doc, *into)
}

func (s *Serving) labels() map[string]string { return s.Deployment.Spec.Template.Labels }

// selects reports an error unless a selector picks the pods of the Deployment.
func (s *Serving) selects(of string, selector map[string]string) error {
	if len(selector) == 0 {
		return fmt.Errorf("%s: no selector", of)
	}
	for k, v := range selector {
		if s.labels()[k] != v {
			return fmt.Errorf("%s: selects %s=%s, but the pods have %v", of, k, v, s.labels())
		}
	}
	return nil
}

func (s *Serving) deployment() error {
	d := &s.Deployment.Spec
	if d.Replicas != nil {
		return errors.New("deployment: replicas would undo what the autoscaler does")
	}
	if d.Selector == nil {
		return errors.New("deployment: no selector")
	}
	pod := &d.Template.Spec
	if err := errors.Join(s.selects("deployment", d.Selector.MatchLabels), mounts(pod)); err != nil {
		return err
	}
	if len(pod.Containers) != 1 {
		return fmt.Errorf("deployment: %d containers, want one", len(pod.Containers))
	}
	c := &pod.Containers[0]
	if len(c.Ports) != 1 {
		return fmt.Errorf("deployment: %d ports, want one", len(c.Ports))
	}
	port := fmt.Sprint(c.Ports[0].ContainerPort)
	if listen := flag(c.Args, "listen"); listen != "0.0.0.0:"+port {
		return fmt.Errorf("deployment: --listen %s, but the container's port is %s", listen, port)
	}
	if got := d.Template.Annotations["prometheus.io/port"]; got != port {
		return fmt.Errorf("deployment: prometheus.io/port is %s, but the container's port is %s", got, port)
	}
	for name, want := range map[string]struct {
		probe *core.Probe
		path  string
	}{"startupProbe": {c.StartupProbe, "/ready"}, "readinessProbe": {c.ReadinessProbe, "/ready"}, "livenessProbe": {c.LivenessProbe, "/health"}} {
		switch p := want.probe; {
		case p == nil || p.HTTPGet == nil:
			return fmt.Errorf("deployment: no %s over HTTP", name)
		case p.HTTPGet.Path != want.path:
			return fmt.Errorf("deployment: %s asks %s, want %s", name, p.HTTPGet.Path, want.path)
		case p.HTTPGet.Port != intstr.FromString(c.Ports[0].Name):
			return fmt.Errorf("deployment: %s asks port %s, want %s", name, p.HTTPGet.Port.String(), c.Ports[0].Name)
		}
	}
	return errors.Join(drains(pod), confined(pod))
}

// drains checks that a pod which is to end has the time that it takes: to leave the Service, to
// finish its requests, and to stop.
func drains(pod *core.PodSpec) error {
	c := &pod.Containers[0]
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil || c.Lifecycle.PreStop.Sleep.Seconds < 5 {
		return errors.New("deployment: no preStop sleep of 5 seconds or more: the image has no shell, and requests still come while the pod leaves the Service")
	}
	grace, err := time.ParseDuration(flag(c.Args, "grace"))
	if err != nil {
		return fmt.Errorf("deployment: --grace: %w", err)
	}
	const stop = 10 * time.Second
	need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + grace + stop
	if pod.TerminationGracePeriodSeconds == nil || time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second < need {
		return fmt.Errorf("deployment: terminationGracePeriodSeconds is less than preStop, --grace and %v together, %v", stop, need)
	}
	return nil
}

// confined checks that a pod has no rights that it does not need, and a bound of memory.
func confined(pod *core.PodSpec) error {
	c := &pod.Containers[0]
	sc, psc := c.SecurityContext, pod.SecurityContext
	yes := func(b *bool) bool { return b != nil && *b }
	switch {
	case psc == nil || !yes(psc.RunAsNonRoot) || psc.SeccompProfile == nil || psc.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		return errors.New("deployment: want runAsNonRoot and the seccomp profile RuntimeDefault")
	case sc == nil || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation || !yes(sc.ReadOnlyRootFilesystem):
		return errors.New("deployment: want no privilege escalation and a read-only root file system")
	case sc.Capabilities == nil || !slices.Contains(sc.Capabilities.Drop, "ALL"):
		return errors.New("deployment: want all capabilities dropped")
	case pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken:
		return errors.New("deployment: want no service account token")
	case !c.Resources.Limits.Memory().Equal(*c.Resources.Requests.Memory()) || c.Resources.Limits.Memory().IsZero():
		return errors.New("deployment: want a limit of memory, and as much requested")
	}
	return nil
}

func (s *Serving) service() error {
	if err := s.selects("service", s.Service.Spec.Selector); err != nil {
		return err
	}
	name := s.Deployment.Spec.Template.Spec.Containers[0].Ports[0].Name
	if p := s.Service.Spec.Ports; len(p) != 1 || p[0].TargetPort != intstr.FromString(name) {
		return fmt.Errorf("service: want one port to %s", name)
	}
	return nil
}

func (s *Serving) autoscaler() error {
	a := &s.Autoscaler.Spec
	if t := a.ScaleTargetRef; t.APIVersion != s.Deployment.APIVersion || t.Kind != s.Deployment.Kind || t.Name != s.Deployment.Name {
		return fmt.Errorf("autoscaler: scales %s %s, want the Deployment %s", t.Kind, t.Name, s.Deployment.Name)
	}
	if a.MinReplicas == nil || *a.MinReplicas < 2 || a.MaxReplicas <= *a.MinReplicas {
		return errors.New("autoscaler: want at least 2 replicas, and room for more")
	}
	for _, m := range a.Metrics {
		if m.Type != autoscaling.PodsMetricSourceType || m.Pods == nil || !strings.HasPrefix(m.Pods.Metric.Name, "vllm_") || m.Pods.Target.Type != autoscaling.AverageValueMetricType || m.Pods.Target.AverageValue.IsZero() {
			return errors.New("autoscaler: want metrics of pods, of vLLM's names, with a mean value to keep")
		}
	}
	if len(a.Metrics) == 0 {
		return errors.New("autoscaler: no metrics")
	}
	return nil
}

func (s *Serving) disruption() error {
	p := &s.Disruption.Spec
	if p.Selector == nil {
		return errors.New("disruption budget: no selector")
	}
	if (p.MaxUnavailable == nil) == (p.MinAvailable == nil) {
		return errors.New("disruption budget: want one of maxUnavailable and minAvailable")
	}
	return s.selects("disruption budget", p.Selector.MatchLabels)
}

func (s *Serving) pool() error {
	p := &s.Pool.Spec
	labels := map[string]string{}
	for k, v := range p.Selector.MatchLabels {
		labels[string(k)] = string(v)
	}
	if err := s.selects("inference pool", labels); err != nil {
		return err
	}
	c := &s.Deployment.Spec.Template.Spec.Containers[0]
	switch {
	case len(p.TargetPorts) != 1 || int32(p.TargetPorts[0].Number) != c.Ports[0].ContainerPort:
		return fmt.Errorf("inference pool: want the target port %d", c.Ports[0].ContainerPort)
	case p.EndpointPickerRef.Name == "" || p.EndpointPickerRef.Port == nil:
		return errors.New("inference pool: want the name and the port of an endpoint picker")
	case p.EndpointPickerRef.FailureMode != pool.EndpointPickerFailOpen && p.EndpointPickerRef.FailureMode != pool.EndpointPickerFailClose:
		return fmt.Errorf("inference pool: failureMode is %q, want FailOpen or FailClose", p.EndpointPickerRef.FailureMode)
	case !slices.Contains(c.Args, "--metrics-without-key"):
		return errors.New("inference pool: the endpoint picker has no key: want --metrics-without-key")
	}
	return nil
}

// route checks that all that clients ask for reaches the pool, and that no stream is cut.
func (s *Serving) route() error {
	r := &s.Route.Spec
	if len(r.ParentRefs) == 0 || r.ParentRefs[0].Name == "" {
		return errors.New("route: want the name of a Gateway")
	}
	if len(r.Rules) != 1 || len(r.Rules[0].Matches) != 1 || len(r.Rules[0].BackendRefs) != 1 {
		return errors.New("route: want one rule with one match and one backend")
	}
	rule := &r.Rules[0]
	if p := rule.Matches[0].Path; p == nil || p.Type == nil || *p.Type != gateway.PathMatchPathPrefix || p.Value == nil || *p.Value != "/v1" {
		return errors.New("route: want the path prefix /v1")
	}
	to := rule.BackendRefs[0].BackendObjectReference
	if to.Group == nil || string(*to.Group) != pool.GroupName || to.Kind == nil || *to.Kind != "InferencePool" || string(to.Name) != s.Pool.Name {
		return fmt.Errorf("route: want the backend InferencePool %s of group %s", s.Pool.Name, pool.GroupName)
	}
	if t := rule.Timeouts; t == nil || t.Request == nil || *t.Request != "0s" || t.BackendRequest == nil || *t.BackendRequest != "0s" {
		return errors.New("route: want no time-outs (0s): a gateway's default cuts long streams")
	}
	return nil
}

// flag returns the value of a flag among arguments, "" if it is not there.
func flag(args []string, name string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}
