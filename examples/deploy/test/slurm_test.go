//go:build linux

package deploy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fakeScontrol lists the hosts of a job.
const fakeScontrol = `#!/bin/bash
[ "$1 $2 $3" = "show hostnames nodes[1-2]" ] || exit 1
echo "$FAKE_HOSTS" | tr , '\n'
`

// fakeSrun starts a task for each node, gives all of them its standard input, as --input=all
// says, and passes signals on to them.
const fakeSrun = `#!/bin/bash
while [[ $1 == --* ]]; do
	case $1 in
	--ntasks=*) ntasks=${1#*=} ;;
	--input=all) all=1 ;;
	--ntasks-per-node=1 | --cpus-per-task=* | --kill-on-bad-exit=0) ;;
	*) echo "srun: what is $1?" >&2; exit 1 ;;
	esac
	shift
done
input=$(cat)
[ "$all" ] || exit 1
for ((i = 0; i < ntasks; i++)); do
	SLURM_PROCID=$i SLURM_NODEID=$i SLURM_LOCALID=0 SLURMD_NODENAME=node$((i + 1)) "$@" <<<"$input" &
	tasks+=($!)
done
trap 'kill -TERM "${tasks[@]}"' TERM
wait
wait
`

// TestSlurm trains in a job until its time limit, and resumes in a second job, in which a worker is killed.
func TestSlurm(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	engine := clusterEngine(t)
	dir := folder(t)
	bin := mkdir(t, 0o755, 0, dir, "bin")
	write(t, filepath.Join(bin, "scontrol"), fakeScontrol, 0o755)
	write(t, filepath.Join(bin, "srun"), fakeSrun, 0o755)
	script, err := filepath.Abs("../slurm/troupe.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	submit := mkdir(t, 0o755, 0, dir, "submit")
	write(t, filepath.Join(submit, "text.txt"), text, 0o444)
	write(t, filepath.Join(submit, "config.toml"), training("out", "text.txt", "node1-0", "node2-1"), 0o444)
	tmp := mkdir(t, 0o1777, 0, dir, "tmp")
	out := filepath.Join(submit, "out")
	job := func(name string) *process {
		addresses := hosts(2)
		return s.start(name, command{args: []string{"/bin/bash", script, "config.toml"}, dir: submit, env: map[string]string{
			"PATH": bin + ":" + os.Getenv("PATH"), "ENGINE": engine, "TMPDIR": tmp, "FAKE_HOSTS": strings.Join(addresses, ","),
			"SLURM_JOB_ID": fmt.Sprint(1 + rand.IntN(9999)), "SLURM_JOB_NODELIST": "nodes[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
			"SLURM_CPUS_PER_TASK": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "node1",
		}})
	}
	during := func(p *process, more int) {
		t.Helper()
		want := trained(out) + more
		s.until("steps", func() bool { return trained(out) >= want || p.ended() })
		if p.ended() {
			t.Fatalf("the job has ended with %d", p.status())
		}
	}

	first := job("first")
	during(first, 25)
	_ = first.Process.Signal(syscall.SIGTERM) // as --signal=B:TERM says, to the script alone
	if status := s.finish("the first job", first); status != 75 {
		t.Fatalf("the exit status of a job that was told to stop is %d; want 75", status)
	}
	if n := trained(out); n >= steps {
		t.Fatalf("it has trained %d steps", n)
	}

	second := job("second")
	during(second, 10)
	killed := workerProcess(t, second.Process.Pid, "node2-1")
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := s.finish("the second job", second); status != 0 {
		t.Errorf("the job's exit status is %d", status)
	}
	wantTrained(t, out)
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// workerProcess finds a worker by name in a process group, and checks that other users can't see its token.
func workerProcess(t *testing.T, group int, name string) (pid int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if g, err := syscall.Getpgid(n); err != nil || g != group {
			continue
		}
		shown, _ := os.ReadFile(path)
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if bytes.Contains(shown, []byte("troupe1.")) || bytes.Contains(environment, []byte("troupe1.")) {
			t.Errorf("process %d shows the token: %q", n, shown)
		}
		if args := strings.Split(string(shown), "\x00"); len(args) > 2 && args[1] == "worker" && args[len(args)-2] == name {
			pid = n
		}
	}
	if pid == 0 {
		t.Fatalf("there is no worker %s", name)
	}
	return pid
}
