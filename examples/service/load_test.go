package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// secondsEnv is how long TestLoad takes for its figures: make check-service sets it.
const secondsEnv = "TROUPE_SERVICE_SECONDS"

// TestLoad has clients ask for texts while two runs train, and while they rest, and others who
// pause, resume, change and watch them. It prints what answers took.
func TestLoad(t *testing.T) {
	skipWithoutSignals(t)
	long := 800 * time.Millisecond
	if text := os.Getenv(secondsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q", secondsEnv, text)
		}
		long = time.Duration(n) * time.Second
	}
	short := long / 4
	p := start(t)
	// The default model, of 120,000 parameters: its steps are of some milliseconds.
	sets := []string{"run.steps=10000000", "run.checkpoint_every=1000", "run.eval_every=500", "optimizer.lr=0.001"}
	ids := []string{p.begin(append(sets, "run.seed=1")...), p.begin(append(sets, "run.seed=2")...)}
	for _, id := range ids {
		p.follow(id, "", step(50))
	}
	all := func(what string) {
		for _, id := range ids {
			p.ask("POST", "/runs/"+id+"/"+what, "", http.StatusAccepted)
		}
	}
	before := rss(t, p.cmd.Process.Pid)
	first := steps(p, ids)
	began := time.Now()
	busy, controls := p.load(ids, 8, long, true)
	trained := float64(steps(p, ids)-first) / time.Since(began).Seconds()
	after := rss(t, p.cmd.Process.Pid)
	one, _ := p.load(ids, 1, short, false)
	first, began = steps(p, ids), time.Now()
	time.Sleep(short) // what is measured is that nobody asks
	alone := float64(steps(p, ids)-first) / time.Since(began).Seconds()
	all("pause")
	for _, id := range ids {
		p.follow(id, "", kind("pause"))
	}
	idle, _ := p.load(ids, 8, short, false)
	idleOne, _ := p.load(ids, 1, short, false)
	if os.Getenv(secondsEnv) != "" {
		fmt.Printf("%d tokens an answer; median and 99th percentile, ms\n", loadTokens)
		for _, row := range []struct {
			what  string
			times []time.Duration
		}{{"8 clients, 2 runs train", busy}, {"1 client, 2 runs train", one}, {"8 clients, idle", idle}, {"1 client, idle", idleOne},
			{"status and changes beside the 8", controls}} {
			fmt.Printf("%-34s %7d answers %9.1f %9.1f\n", row.what, len(row.times), ms(row.times, 0.5), ms(row.times, 0.99))
		}
		fmt.Printf("steps/s of both runs: %.0f beside the 8 clients, %.0f without\n", trained, alone)
		fmt.Printf("resident: %.0f MiB before the 8 clients, %.0f MiB after\n", before, after)
	}
	p.end()
}

const loadTokens = 32

// load has clients ask one question after the other, and returns how long each answer took, of
// texts and of what else is asked.
func (p *process) load(ids []string, clients int, long time.Duration, control bool) (texts, controls []time.Duration) {
	p.t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(long)
	ask := func(to *[]time.Duration, method, path, body string, want int) map[string]any {
		began := time.Now()
		v, err := p.try(method, path, body, want)
		mu.Lock()
		defer mu.Unlock()
		if *to = append(*to, time.Since(began)); err != nil {
			p.t.Error(err)
		}
		return v
	}
	for c := range clients {
		all.Add(1)
		go func() { // ends with long
			defer all.Done()
			last := -1.0
			for n := 0; time.Now().Before(end); n++ {
				v := ask(&texts, "POST", "/runs/"+ids[c%len(ids)]+"/generate",
					fmt.Sprintf(`{"prompt": "the ", "tokens": %d, "temperature": 1, "seed": %d}`, loadTokens, n), http.StatusOK)
				if s, _ := v["step"].(float64); s < last {
					p.t.Errorf("a text of step %g after one of step %g", s, last)
				} else {
					last = s
				}
			}
		}()
	}
	if control {
		for _, id := range ids {
			all.Add(2)
			go func() { // ends with long
				defer all.Done()
				for time.Now().Before(end) {
					ask(&controls, "GET", "/runs/"+id, "", http.StatusOK)
					ask(&controls, "POST", "/runs/"+id+"/pause", "", http.StatusAccepted)
					ask(&controls, "POST", "/runs/"+id+"/rate", `{"lr": 0.001}`, http.StatusAccepted)
					ask(&controls, "POST", "/runs/"+id+"/resume", "", http.StatusAccepted)
					time.Sleep(200 * time.Millisecond) // as people do
				}
			}()
			go func() { // ends with long
				defer all.Done()
				if _, err := p.read("GET", "/runs/"+id+"/events", "", "", func(message) bool { return time.Now().After(end) }); err != nil {
					p.t.Error(err)
				}
			}()
		}
	}
	all.Wait()
	if len(texts) == 0 {
		p.t.Error("no text was written")
	}
	return texts, controls
}

// steps is how many both runs have made.
func steps(p *process, ids []string) (n int) {
	for _, id := range ids {
		n += int(p.ask("GET", "/runs/"+id, "", http.StatusOK)["step"].(float64))
	}
	return n
}

// ms is a quantile of times.
func ms(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return math.NaN()
	}
	slices.Sort(times)
	return float64(times[min(len(times)-1, int(q*float64(len(times))))]) / float64(time.Millisecond)
}

// rss is a process's memory in MiB; 0 where that can't be told.
func rss(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kib float64
	_, _ = fmt.Sscan(rest, &kib) // 0 then
	return kib / 1024
}
