//go:build linux

package deploy

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// manifest is an object in the files.
type manifest struct {
	services     []corev1.Service
	budgets      []policyv1.PodDisruptionBudget
	policies     []networkingv1.NetworkPolicy
	statefulSets []appsv1.StatefulSet
	jobs         []batchv1.Job
}

// read decodes a file, and refuses unknown fields.
func (m *manifest) read(t *testing.T, file string) {
	t.Helper()
	for i, document := range strings.Split(read(t, file), "\n---\n") {
		var kind metav1.TypeMeta
		err := yaml.Unmarshal([]byte(document), &kind)
		if err == nil {
			switch is := kind.APIVersion + " " + kind.Kind; is {
			case "v1 Service":
				m.services = append(m.services, corev1.Service{})
				err = yaml.UnmarshalStrict([]byte(document), &m.services[len(m.services)-1])
			case "apps/v1 StatefulSet":
				m.statefulSets = append(m.statefulSets, appsv1.StatefulSet{})
				err = yaml.UnmarshalStrict([]byte(document), &m.statefulSets[len(m.statefulSets)-1])
			case "batch/v1 Job":
				m.jobs = append(m.jobs, batchv1.Job{})
				err = yaml.UnmarshalStrict([]byte(document), &m.jobs[len(m.jobs)-1])
			case "policy/v1 PodDisruptionBudget":
				m.budgets = append(m.budgets, policyv1.PodDisruptionBudget{})
				err = yaml.UnmarshalStrict([]byte(document), &m.budgets[len(m.budgets)-1])
			case "networking.k8s.io/v1 NetworkPolicy":
				m.policies = append(m.policies, networkingv1.NetworkPolicy{})
				err = yaml.UnmarshalStrict([]byte(document), &m.policies[len(m.policies)-1])
			default:
				err = fmt.Errorf("unexpected: %s", is)
			}
		}
		if err != nil {
			t.Fatalf("%s, document %d: %v", file, i+1, err)
		}
	}
}

// wantRestricted checks a template against Kubernetes's restricted policy for pods.
func wantRestricted(t *testing.T, name string, p *corev1.PodTemplateSpec, selector map[string]string) {
	t.Helper()
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	result := policy.AggregateCheckResults(e.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
		&p.ObjectMeta, &p.Spec))
	if !result.Allowed {
		t.Errorf("%s is not restricted: %s", name, result.ForbiddenDetail())
	}
	if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("%s is given the account's token", name)
	}
	for key, value := range selector {
		if p.Labels[key] != value {
			t.Errorf("%s selects pods by %s=%s, and its pods have %q", name, key, value, p.Labels[key])
		}
	}
	if s := p.Spec.SecurityContext; s.RunAsUser == nil || *s.RunAsUser != nobody || s.FSGroup == nil || *s.FSGroup != nobody {
		t.Errorf("%s does not run as the image's user, with volumes of its group", name)
	}
	for _, c := range p.Spec.Containers {
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s may write to its image", name)
		}
	}
}

// kubernetes simulates the system.
type kubernetes struct {
	*system
	engine string
	dir    string
	images map[string]image
	last   string
	names  map[string]string // DNS name → address
}

func newKubernetes(t *testing.T) *kubernetes {
	k := &kubernetes{system: newSystem(t), engine: clusterEngine(t), dir: folder(t), names: make(map[string]string)}
	k.images, k.last = images(t)
	return k
}

// publish gives the pods of a template their DNS names: those of the headless services that
// select them, and their own in the one that they name.
func (k *kubernetes) publish(services []corev1.Service, p *corev1.PodTemplateSpec, subdomain string, pods, addresses []string) {
	for _, s := range services {
		if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses {
			k.t.Errorf("the service %s is not headless, or waits for pods to be ready, which have no probe", s.Name)
		}
		selects := len(s.Spec.Selector) > 0
		for key, value := range s.Spec.Selector {
			selects = selects && p.Labels[key] == value
		}
		if !selects {
			continue
		}
		k.names[s.Name] = addresses[0]
		for i, pod := range pods {
			if s.Name == subdomain {
				k.names[pod+"."+s.Name] = addresses[i]
			}
		}
	}
}

var dollar = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// pod makes a pod's process: volumes are the folders that its mounts are to be, by name.
func (k *kubernetes) pod(p *corev1.PodTemplateSpec, name, address string, labels map[string]string, env map[string]string,
	volumes map[string]string) command {
	k.t.Helper()
	c := p.Spec.Containers[0]
	img := k.images[k.last]
	if c.Image == "troupe-shell" {
		img = k.images["shell"]
	} else if c.Image != "troupe" {
		k.t.Fatalf("the image %s; want troupe or troupe-shell, which the Dockerfile makes", c.Image)
	}
	// What the container sees at other places than this test.
	var replace []string
	mounts := slices.SortedFunc(slices.Values(c.VolumeMounts),
		func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	dir := ""
	for _, m := range mounts {
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) && volumes[m.Name] == "" {
			k.t.Fatalf("pod %s mounts %s, which is no volume", name, m.Name)
		}
		if volumes[m.Name] == "" {
			continue
		}
		replace = append(replace, m.MountPath+"/", volumes[m.Name]+"/")
		if m.MountPath == img.workdir {
			dir = volumes[m.Name]
		}
	}
	if dir == "" {
		dir = k.dir
	}
	for _, host := range slices.SortedFunc(maps.Keys(k.names), func(a, b string) int { return len(b) - len(a) }) {
		replace = append(replace, host+":", k.names[host]+":")
	}
	replace = append(replace, img.entrypoint[0]+" ", k.engine+" ")
	there := strings.NewReplacer(replace...)

	environment := map[string]string{"HOSTNAME": name, "HOME": "/", "TMPDIR": k.dir}
	maps.Copy(environment, env)
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			field := e.ValueFrom.FieldRef.FieldPath
			label, _ := strings.CutPrefix(field, "metadata.labels['")
			switch label = strings.TrimSuffix(label, "']"); {
			case field == "metadata.name":
				value = name
			case field == "status.podIP":
				value = address
			case labels[label] != "":
				value = labels[label]
			default:
				k.t.Fatalf("pod %s takes %s from %s, which this test does not know", name, e.Name, field)
			}
		}
		environment[e.Name] = value
	}
	args := slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 {
		args = append([]string{k.engine}, c.Args...)
	}
	for i, arg := range args {
		arg = dollar.ReplaceAllStringFunc(arg, func(ref string) string {
			value, known := environment[dollar.FindStringSubmatch(ref)[1]]
			if !known && len(c.Command) == 0 {
				k.t.Errorf("pod %s: %s is not set", name, ref)
			}
			if !known {
				return ref
			}
			return value
		})
		args[i] = there.Replace(arg)
	}
	return command{args: args, env: environment, dir: dir, asNobody: true}
}

// claim makes a persistent volume with fsGroup's rights.
func (k *kubernetes) claim(name string) string { return mkdir(k.t, 0o2775, 0, k.dir, name) }

// secret makes a volume of a Secret.
func (k *kubernetes) secret(name string, mode *int32, files map[string]string) string {
	dir := mkdir(k.t, 0o2755, 0, k.dir, name)
	for file, content := range files {
		rights := os.FileMode(0o644)
		if mode != nil {
			rights = os.FileMode(*mode)
		}
		write(k.t, filepath.Join(dir, file), content, rights)
	}
	return dir
}

func grace(p *corev1.PodTemplateSpec) time.Duration {
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
}

// TestKubernetesSchema: the files match Kubernetes's schemas, and the pods have no rights.
func TestKubernetesSchema(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		var m manifest
		m.read(t, file)
		for _, s := range m.statefulSets {
			wantRestricted(t, s.Name, &s.Spec.Template, s.Spec.Selector.MatchLabels)
			wantProbes(t, s.Name, &s.Spec.Template)
			if !slices.ContainsFunc(m.services, func(v corev1.Service) bool { return v.Name == s.Spec.ServiceName }) {
				t.Errorf("%s: its service %s is missing", file, s.Spec.ServiceName)
			}
		}
		for _, j := range m.jobs {
			wantRestricted(t, j.Name, &j.Spec.Template, nil)
			if *j.Spec.CompletionMode != batchv1.IndexedCompletion || *j.Spec.Completions != *j.Spec.Parallelism ||
				j.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
				t.Errorf("%s: a Job with a policy for failures is indexed, runs all at a time and starts no container again", file)
			}
		}
	}
}

// TestKubernetesPolicies: the budgets and the network policies select the pods that are there, and let through the ports
// that these listen at.
func TestKubernetesPolicies(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	for _, file := range files {
		m.read(t, file)
	}
	selects := func(s *metav1.LabelSelector, p *corev1.PodTemplateSpec) bool {
		chosen, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return !chosen.Empty() && chosen.Matches(labels.Set(p.Labels))
	}
	budgets, policies := make(map[string]int), make(map[string]int)
	for _, s := range m.statefulSets {
		for i := range m.budgets {
			if b := &m.budgets[i].Spec; selects(b.Selector, &s.Spec.Template) {
				budgets[s.Name]++
				if b.MaxUnavailable == nil || b.MaxUnavailable.IntValue() != 1 || s.Name == "troupe-coordinator" {
					t.Errorf("%s: its budget is %v; one worker at a time may leave, and a coordinator has none", s.Name, b.MaxUnavailable)
				}
			}
		}
		for i := range m.policies {
			spec := &m.policies[i].Spec
			if !selects(&spec.PodSelector, &s.Spec.Template) {
				continue
			}
			policies[s.Name]++
			open := make(map[int]bool)
			for _, rule := range spec.Ingress {
				for _, port := range rule.Ports {
					open[port.Port.IntValue()] = true
				}
			}
			for _, port := range s.Spec.Template.Spec.Containers[0].Ports {
				if !open[int(port.ContainerPort)] {
					t.Errorf("%s: no policy lets anybody connect to port %d", s.Name, port.ContainerPort)
				}
			}
			// Every pod of the cluster reaches every other.
			for _, other := range m.statefulSets {
				if !slices.ContainsFunc(spec.Ingress[0].From, func(f networkingv1.NetworkPolicyPeer) bool {
					return f.PodSelector != nil && selects(f.PodSelector, &other.Spec.Template)
				}) {
					t.Errorf("%s can't connect to %s", other.Name, s.Name)
				}
			}
		}
		if policies[s.Name] != 1 || budgets[s.Name] != 1 && s.Name != "troupe-coordinator" {
			t.Errorf("%s has %d network policies and %d budgets, want 1", s.Name, policies[s.Name], budgets[s.Name])
		}
		gpus := s.Spec.Template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
		if (gpus.Value() > 0) != strings.HasSuffix(s.Name, "-gpu") {
			t.Errorf("%s has %v GPUs", s.Name, gpus.Value())
		}
	}
}

// wantProbes checks a template's probes and limits: they ask the port of the metrics.
func wantProbes(t *testing.T, name string, p *corev1.PodTemplateSpec) {
	t.Helper()
	c := p.Spec.Containers[0]
	for kind, probe := range probes(c) {
		want := map[string]string{"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}[kind]
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want || probe.TimeoutSeconds < 3 ||
			!slices.ContainsFunc(c.Ports, func(of corev1.ContainerPort) bool { return of.Name == probe.HTTPGet.Port.String() }) {
			t.Errorf("%s: its %s probe is %v", name, kind, probe)
		}
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() {
		t.Errorf("%s has no limit of memory", name)
	}
}

func probes(c corev1.Container) map[string]*corev1.Probe {
	return map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe}
}

// untilProbed waits until a pod answers all its probes with 200.
func (k *kubernetes) untilProbed(p *corev1.PodTemplateSpec, address string) {
	k.t.Helper()
	c := p.Spec.Containers[0]
	for kind, probe := range probes(c) {
		port := ""
		for _, of := range c.Ports {
			if of.Name == probe.HTTPGet.Port.String() {
				port = fmt.Sprint(of.ContainerPort)
			}
		}
		k.until("the "+kind+" probe of "+address, func() bool {
			res, err := http.Get("http://" + net.JoinHostPort(address, port) + probe.HTTPGet.Path)
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
	}
}

// TestKubernetesStatefulSets trains with a coordinator and workers as pods, which start in any order; one is killed and
// restarted.
func TestKubernetesStatefulSets(t *testing.T) {
	t.Parallel()
	k := newKubernetes(t)
	var m manifest
	m.read(t, "../kubernetes/coordinator.yaml")
	m.read(t, "../kubernetes/workers.yaml")
	coordinator, workers := &m.statefulSets[0], &m.statefulSets[1]
	if workers.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Error("workers would start one after the other")
	}
	n := int(*workers.Spec.Replicas)
	addresses := hosts(1 + n)
	var pods []string
	for i := range n {
		pods = append(pods, fmt.Sprintf("%s-%d", workers.Name, i))
	}
	k.publish(m.services, &coordinator.Spec.Template, coordinator.Spec.ServiceName, []string{coordinator.Name + "-0"}, addresses)
	k.publish(m.services, &workers.Spec.Template, workers.Spec.ServiceName, pods, addresses[1:])

	// The administrator's part: the texts and the configuration.
	state := k.claim(coordinator.Spec.VolumeClaimTemplates[0].Name)
	write(t, filepath.Join(state, "text.txt"), text, 0o440)
	config := k.secret("config", nil, map[string]string{"config.toml": training("out", "text.txt", pods...)})
	volumes := map[string]string{"state": state, "config": config}
	// All containers of a StatefulSet are started again, whatever their status.
	always := func(int) bool { return true }
	pod := func() command {
		return k.pod(&coordinator.Spec.Template, "troupe-coordinator-0", addresses[0], nil, nil, volumes)
	}
	head := k.keep("coordinator", always, pod)

	// The Secret is made of what README.md says to type.
	tokens := filepath.Join(state, "cluster")
	k.untilFile(filepath.Join(tokens, "operator.token"))
	secret := pod()
	secret.args = k.typedInside("kubectl exec troupe-coordinator-0 -- /engine cluster token ", &coordinator.Spec.Template, volumes)
	token := k.output(secret)
	var running []*kept
	for i := range n {
		own := map[string]string{}
		for _, v := range workers.Spec.Template.Spec.Volumes {
			switch {
			case v.Secret != nil:
				own[v.Name] = k.secret(pods[i]+"-"+v.Name, v.Secret.DefaultMode, map[string]string{"worker.token": token})
			case v.EmptyDir != nil && v.Name != "tmp":
				own[v.Name] = k.claim(pods[i] + "-" + v.Name)
			}
		}
		running = append(running, k.keep(pods[i], always, func() command {
			return k.pod(&workers.Spec.Template, pods[i], addresses[1+i], nil, nil, own)
		}))
	}

	// What README.md says to type, in the coordinator's container.
	run := pod()
	run.args = k.typedInside("kubectl exec troupe-coordinator-0 -- /engine run ", &coordinator.Spec.Template, volumes)
	client := k.start("run", run)
	out := filepath.Join(state, "out")
	wantMetrics(t, &coordinator.Spec.Template, addresses[0])
	for i, address := range addresses {
		p := &workers.Spec.Template
		if i == 0 {
			p = &coordinator.Spec.Template
		}
		k.untilProbed(p, address)
	}
	k.killDuring(client, out, running[1])
	if status := k.finish("the run", client); status != 0 {
		t.Errorf("the run's exit status is %d", status)
	}
	wantTrained(t, out)
	for i, w := range running {
		w.stop(t, pods[i], grace(&workers.Spec.Template))
	}
	head.stop(t, "the coordinator", grace(&coordinator.Spec.Template))
}

// wantMetrics reads a pod's metrics from the address in its annotations.
func wantMetrics(t *testing.T, p *corev1.PodTemplateSpec, address string) {
	t.Helper()
	port := p.Annotations["prometheus.io/port"]
	if p.Annotations["prometheus.io/scrape"] != "true" || !slices.ContainsFunc(p.Spec.Containers[0].Ports,
		func(c corev1.ContainerPort) bool { return fmt.Sprint(c.ContainerPort) == port }) {
		t.Errorf("the annotations are %v, the ports %v", p.Annotations, p.Spec.Containers[0].Ports)
	}
	text := ""
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get("http://" + net.JoinHostPort(address, port) + "/metrics")
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Error(err)
			return
		}
		if text = string(body); strings.Contains(text, "engine_rank_info{") {
			return
		}
	}
	t.Errorf("no rank is in the metrics:\n%s", text)
}

// typedInside is a command of README.md, as the container sees it.
func (k *kubernetes) typedInside(prefix string, p *corev1.PodTemplateSpec, volumes map[string]string) []string {
	k.t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(read(k.t, "../README.md"), "\\\n", " ")) {
		if strings.HasPrefix(strings.TrimSpace(line), prefix) {
			_, typed, _ := strings.Cut(line, " -- ")
			typed, _, _ = strings.Cut(typed, "|")
			fake := p.DeepCopy()
			fake.Spec.Containers[0].Args, fake.Spec.Containers[0].Env = strings.Fields(typed)[1:], nil
			return k.pod(fake, "troupe-coordinator-0", "", nil, nil, volumes).args
		}
	}
	k.t.Fatalf("README.md does not say %s…", prefix)
	return nil
}

// killDuring kills a worker during a run, and waits until it has restarted.
func (s *system) killDuring(run *process, out string, w *kept) {
	s.t.Helper()
	s.until("25 steps", func() bool { return trained(out) >= 25 || run.ended() })
	if run.ended() {
		s.t.Fatalf("the run has ended, with %d, before a worker could be killed", run.status())
	}
	w.current().kill()
	s.until("the worker's start", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.starts > 1
	})
}

// TestKubernetesJob trains in one indexed Job, whose pods are replaced by its policy.
func TestKubernetesJob(t *testing.T) {
	t.Parallel()
	k := newKubernetes(t)
	var m manifest
	m.read(t, "../kubernetes/job.yaml")
	job := &m.jobs[0]
	p := &job.Spec.Template
	n := int(*job.Spec.Completions)
	addresses := hosts(n)
	var pods, workers []string
	for i := range n {
		pods = append(pods, fmt.Sprintf("%s-%d", job.Name, i))
		workers = append(workers, fmt.Sprintf("worker-%d", i))
	}
	k.publish(m.services, p, p.Spec.Subdomain, pods, addresses)
	shared := k.claim("shared")
	write(t, filepath.Join(shared, "text.txt"), text, 0o440)
	config := k.secret("config", nil, map[string]string{"config.toml": training("out", "text.txt", workers[1:]...)})
	for _, e := range p.Spec.Containers[0].Env {
		if e.Name == "WORKERS" && e.Value != fmt.Sprint(n-1) {
			t.Errorf("the run waits for %s workers of %d", e.Value, n-1)
		}
	}

	made := 0
	index := func(i int) func() command {
		return func() command {
			made++ // a new pod has new empty folders
			volumes := map[string]string{"shared": shared, "config": config}
			return k.pod(p, pods[i], addresses[i], map[string]string{"batch.kubernetes.io/controller-uid": "3f2a"},
				map[string]string{"JOB_COMPLETION_INDEX": fmt.Sprint(i)}, volumes)
		}
	}
	failures := int32(0)
	again := func(status int) bool {
		if status == 0 {
			return false
		}
		for _, rule := range job.Spec.PodFailurePolicy.Rules {
			if rule.OnExitCodes != nil && slices.Contains(rule.OnExitCodes.Values, int32(status)) {
				return rule.Action == batchv1.PodFailurePolicyActionIgnore
			}
		}
		failures++
		return failures <= *job.Spec.BackoffLimit
	}
	var running []*kept
	for i := n - 1; i >= 0; i-- { // the coordinator's name comes last
		running = append(running, k.keep(pods[i], again, index(i)))
	}
	head, last := running[n-1], running[0]
	out := filepath.Join(shared, "out")
	k.killDuring(head.current(), out, last)
	if status := k.finish("index 0", head.current()); status != 0 {
		t.Errorf("index 0 ended with %d", status)
	}
	head.current().kill() // the container ends with its first process
	wantTrained(t, out)
	if rules := job.Spec.SuccessPolicy.Rules; len(rules) != 1 || rules[0].SucceededIndexes == nil || *rules[0].SucceededIndexes != "0" {
		t.Error("the Job does not end with the run:", rules)
	}
	for i, w := range running[:n-1] {
		w.stop(t, pods[n-1-i], grace(p))
	}
}
