package groups_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/groups"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// rankVariable makes the test binary a member of a group.
const rankVariable = "TROUPE_GROUPS_RANK"

// order is a test's order to a member, a line of JSON.
type order struct {
	Peers  []string // addresses, by rank; once
	Do     string   // "work", "endless", "max", "sum"
	Length int
}

// reply is a line of JSON.
type reply struct {
	Address string
	Digest  string
	Error   string
}

// playMember runs a member in a separate process.
func playMember() error {
	rank, err := strconv.Atoi(os.Getenv(rankVariable))
	if err != nil {
		return err
	}
	p, err := newProcess(rank, true, groups.Config{})
	if err != nil {
		return err
	}
	defer p.close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(reply{Address: p.listener.Addr().String()}); err != nil {
		return err
	}
	var g *collective.Group
	n := 0
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil { // the test has ended
			if g != nil {
				g.Leave(nil)
			}
			return nil
		}
		if o.Peers != nil {
			n = len(o.Peers)
			ids := make([]lane.ID, n)
			for i, address := range o.Peers {
				if ids[i] = processID(i); i != rank {
					p.node.SetPeer(ids[i], address)
				}
			}
			if g, err = p.port.Open("dp of stage 1", ids, rank); err != nil {
				return err
			}
		}
		var r reply
		if r.Digest, err = obey(g, o, rank, n); err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

func obey(g *collective.Group, o order, rank, n int) (string, error) {
	ctx := context.Background()
	x := tensor(tensorops.Float32, max(o.Length, 1))
	switch o.Do {
	case "work":
		sum := sha256.New()
		var handles []*collective.Handle
		all := work(rank, n, o.Length)
		for _, a := range all {
			handles = append(handles, g.Do(a))
		}
		for k, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return "", err
			}
			if all[k].What != tensorops.Barrier {
				sum.Write(tensorops.Bytes(all[k].Dst))
			}
		}
		return hex.EncodeToString(sum.Sum(nil)), nil
	case "endless":
		for {
			if err := g.AllReduce(x, tensorops.Mean).Wait(ctx); err != nil {
				return "", err
			}
		}
	case "max":
		return "", g.AllReduce(x, tensorops.Max).Wait(ctx)
	case "sum":
		return "", g.AllReduce(x, tensorops.Sum).Wait(ctx)
	}
	return "", nil
}

// worker is a member in a separate process.
type worker struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out chan reply
}

// startWorkers starts n processes that are one group.
func startWorkers(t *testing.T, n int) []*worker {
	t.Helper()
	var list []*worker
	var peers []string
	for rank := range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprint(rankVariable, "=", rank))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w := &worker{cmd: cmd, in: json.NewEncoder(in), out: make(chan reply, 16)}
		read := make(chan struct{})
		go func() { // ends with the process
			defer close(read)
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				var r reply
				if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
					r.Error = fmt.Sprintf("%q: %v", lines.Text(), err)
				}
				w.out <- r
			}
			close(w.out)
		}()
		t.Cleanup(func() {
			_ = in.Close()
			timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			<-read
			_ = cmd.Wait()
		})
		list = append(list, w)
		peers = append(peers, w.reply(t).Address)
	}
	for _, w := range list {
		w.order(t, order{Peers: peers})
	}
	for _, w := range list {
		w.reply(t)
	}
	return list
}

func (w *worker) order(t *testing.T, o order) {
	t.Helper()
	if err := w.in.Encode(o); err != nil {
		t.Fatal(err)
	}
}

func (w *worker) reply(t *testing.T) reply {
	t.Helper()
	select {
	case r, ok := <-w.out:
		if !ok {
			t.Fatal("a process has ended")
		}
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("a process does not answer")
	}
	return reply{}
}

// TestProcesses: several processes with shared memory give the bits of one process.
func TestProcesses(t *testing.T) {
	workers := startWorkers(t, 3)
	for _, length := range []int{5, 5000, 130_000} {
		want := expected(t, 3, length)
		for _, w := range workers {
			w.order(t, order{Do: "work", Length: length})
		}
		for rank, w := range workers {
			sum := sha256.New()
			for _, b := range want[rank] {
				sum.Write(b)
			}
			if r := w.reply(t); r.Error != "" || r.Digest != hex.EncodeToString(sum.Sum(nil)) {
				t.Errorf("length %d, rank %d: %+v", length, rank, r)
			}
		}
	}
}

// TestProcessMismatch: processes whose tensors don't match both get an error that names both shapes.
func TestProcessMismatch(t *testing.T) {
	workers := startWorkers(t, 2)
	workers[0].order(t, order{Do: "sum", Length: 100_000})
	workers[1].order(t, order{Do: "max", Length: 100_000})
	for _, w := range workers {
		r := w.reply(t)
		for _, part := range []string{"group dp of stage 1, collective 1", "rank 0", "rank 1", "all_reduce sum float32[100000]",
			"all_reduce max float32[100000]"} {
			if !strings.Contains(r.Error, part) {
				t.Errorf("%q does not say %q", r.Error, part)
			}
		}
	}
}

// noticed is 3 seconds plus an allowance for a busy machine.
const noticed = 5 * time.Second

// TestProcessKilled: a process is killed during a collective. Within 3 seconds the others name it.
func TestProcessKilled(t *testing.T) {
	workers := startWorkers(t, 3)
	for _, w := range workers {
		w.order(t, order{Do: "endless", Length: 1_000_000})
	}
	time.Sleep(100 * time.Millisecond)
	if err := workers[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for _, rank := range []int{0, 2} {
		r := workers[rank].reply(t)
		if took := time.Since(killed); took > noticed {
			t.Errorf("rank %d says so after %v", rank, took)
		} else {
			t.Logf("rank %d says so after %v", rank, took)
		}
		if !strings.Contains(r.Error, "group dp of stage 1") || !strings.Contains(r.Error, "rank 1") || !strings.Contains(r.Error, "worker-1") {
			t.Errorf("rank %d: %+v", rank, r)
		}
	}
	if state, err := workers[1].cmd.Process.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Log(state, err)
	}
}
