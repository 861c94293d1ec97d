//go:build linux

package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

// service is a unit file's settings of a service; a setting that stands several times has its
// values in order.
type service map[string][]string

func readUnit(t *testing.T, path string) service {
	t.Helper()
	options, err := unit.DeserializeOptions(strings.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(path, err)
	}
	s := make(service)
	for _, o := range options {
		if o.Section == "Service" {
			s[o.Name] = append(s[o.Name], o.Value)
		}
	}
	return s
}

func (s service) one(t *testing.T, name string) string {
	t.Helper()
	if len(s[name]) != 1 {
		t.Fatalf("%s stands %d times; want once", name, len(s[name]))
	}
	return s[name][0]
}

// systemd simulates the system on one host.
type systemd struct {
	*system
	engine, dir, host string
}

// command makes a service's process. settings is the content of its EnvironmentFile, and
// credentials the files that LoadCredential names.
func (d *systemd) command(s service, instance string, settings, credentials map[string]string) command {
	t := d.t
	t.Helper()
	lib := filepath.Join(d.dir, "lib")
	specifiers := strings.NewReplacer("%%", "%", "%i", instance, "%H", d.host, "%S", lib)
	env := map[string]string{}
	for _, line := range s["Environment"] {
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(specifiers.Replace(field), "=")
			env[key] = value
		}
	}
	if !strings.HasPrefix(s.one(t, "EnvironmentFile"), "-/etc/troupe/") {
		t.Error("the file with the settings is", s["EnvironmentFile"])
	}
	for key, value := range settings {
		if _, known := env[key]; !known {
			t.Errorf("the unit has no setting %s", key)
		}
		env[key] = value
	}

	// With DynamicUser the folder is reached through a link, and the user is a new one.
	if s.one(t, "DynamicUser") != "yes" {
		t.Error("the service has a user of its own")
	}
	state := specifiers.Replace(s.one(t, "StateDirectory"))
	mkdir(t, 0o711, 0, lib, "private")
	mode, err := strconv.ParseUint(s.one(t, "StateDirectoryMode"), 8, 32)
	if err != nil {
		t.Fatal(err)
	}
	mkdir(t, os.FileMode(mode), nobody, lib, "private", state)
	env["STATE_DIRECTORY"] = filepath.Join(lib, state)
	if err := os.Symlink(filepath.Join("private", state), env["STATE_DIRECTORY"]); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	for _, load := range s["LoadCredential"] {
		id, path, _ := strings.Cut(load, ":")
		content, known := credentials[path]
		if !known {
			t.Fatalf("the unit loads %s, which is not there", path)
		}
		env["CREDENTIALS_DIRECTORY"] = mkdir(t, 0o750, 0, d.dir, "credentials-"+instance)
		write(t, filepath.Join(env["CREDENTIALS_DIRECTORY"], id), content, 0o440)
	}

	words := strings.Fields(specifiers.Replace(s.one(t, "ExecStart")))
	if words[0] != "/usr/local/bin/engine" {
		t.Errorf("ExecStart is of %s", words[0])
	}
	words[0] = d.engine
	for i, word := range words {
		words[i] = os.Expand(word, func(name string) string {
			if _, set := env[name]; !set {
				t.Errorf("ExecStart has ${%s}, which nothing sets", name)
			}
			return env[name]
		})
	}
	return command{args: words, env: env, dir: specifiers.Replace(s.one(t, "WorkingDirectory")), asNobody: true}
}

// again returns a function that reports whether Restart says to restart after an exit status.
func (s service) again(t *testing.T) func(status int) bool {
	restart := s.one(t, "Restart")
	never := strings.Fields(s.one(t, "RestartPreventExitStatus"))
	return func(status int) bool {
		return (restart == "always" || restart == "on-failure" && status != 0) && !slices.Contains(never, strconv.Itoa(status))
	}
}

func (s service) grace(t *testing.T) time.Duration {
	n, err := strconv.Atoi(s.one(t, "TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Second
}

// TestSystemdVerify lets systemd check the units.
func TestSystemdVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not here")
	}
	dir := folder(t)
	units, err := filepath.Glob("../systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}
	// The drop-in of workers with a GPU is checked with its unit.
	gpu := "troupe-worker@.service.d"
	write(t, filepath.Join(mkdir(t, 0o755, 0, dir, gpu), "gpu.conf"), read(t, filepath.Join("../systemd", gpu, "gpu.conf")), 0o644)
	for _, path := range units {
		text := strings.ReplaceAll(read(t, path), "/usr/local/bin/engine", "/bin/true")
		copied := filepath.Join(dir, filepath.Base(path))
		write(t, copied, text, 0o644)
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

// TestSystemd trains with services, one of which is killed and restarted.
func TestSystemd(t *testing.T) {
	t.Parallel()
	d := &systemd{system: newSystem(t), engine: clusterEngine(t), dir: folder(t), host: "host"}
	coordinator, worker := readUnit(t, "../systemd/troupe-coordinator.service"), readUnit(t, "../systemd/troupe-worker@.service")
	address := hosts(1)[0] + ":7070"
	first := d.command(coordinator, "", map[string]string{"TROUPE_LISTEN": address, "TROUPE_ADVERTISE": address,
		"TROUPE_METRICS": "127.0.0.1:0"}, nil)
	state := first.env["STATE_DIRECTORY"]
	write(t, filepath.Join(state, "text.txt"), text, 0o440)

	workers := make([]*kept, 2)
	names := make([]string, 2)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", d.host, i)
	}
	head := d.keep("coordinator", coordinator.again(t), func() command { return first })
	d.untilFile(filepath.Join(state, "cluster", "operator.token"))
	// The administrator, who is root, makes a token and copies it.
	inside := map[string]string{"engine": d.engine, "$(hostname):7070": address, "/var/lib/": filepath.Join(d.dir, "lib") + "/"}
	d.output(command{args: d.typed("sudo engine cluster token", inside), dir: d.dir})
	credentials := map[string]string{"/etc/troupe/worker.token": read(t, filepath.Join(d.dir, "worker.token"))}
	for i := range workers {
		c := d.command(worker, fmt.Sprint(i), map[string]string{"TROUPE_JOIN": address, "TROUPE_THREADS": "1", "TROUPE_METRICS": "127.0.0.1:0"}, credentials)
		workers[i] = d.keep(names[i], worker.again(t), func() command { return c })
	}

	// The administrator trains, with the lines of README.md.
	config := filepath.Join(d.dir, "config.toml")
	write(t, config, training("out", "text.txt", names...), 0o444)
	inside["config.toml"] = config
	run := command{args: d.typed("sudo engine run config.toml", inside), dir: d.dir}
	client := d.start("run", run)
	out := filepath.Join(state, "out")
	d.killDuring(client, out, workers[0])
	if status := d.finish("the run", client); status != 0 {
		t.Errorf("the run's exit status is %d", status)
	}
	wantTrained(t, out)
	for i, w := range workers {
		w.stop(t, names[i], worker.grace(t))
	}
	head.stop(t, "the coordinator", coordinator.grace(t))
}

// typed returns a command of README.md with some words, or their beginnings, replaced.
func (s *system) typed(prefix string, replace map[string]string) []string {
	s.t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(read(s.t, "../README.md"), "\\\n", " ")) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, prefix) {
			continue
		}
		words := strings.Fields(line)
		if words[0] == "sudo" {
			words = words[1:]
		}
		for i, word := range words {
			for _, from := range slices.Sorted(maps.Keys(replace)) {
				if rest, is := strings.CutPrefix(word, from); is && (rest == "" || strings.HasSuffix(from, "/")) {
					words[i] = replace[from] + rest
				}
			}
		}
		return words
	}
	s.t.Fatalf("README.md does not say %s…", prefix)
	return nil
}
