package cluster_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var idleMinutes = flag.Int("idle.minutes", 10, "how long TestIdle watches, 3 or more")

// clockTicks is the number of /proc's time units in a second: 100 on every Linux that Go supports.
const clockTicks = 100

// usage is a process's CPU time and memory.
type usage struct {
	cpu      time.Duration
	rssBytes int64
	threads  int
}

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// After the name, which may hold anything: field 3 on.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range []int{14, 15} { // user and system time
		ticks, err := strconv.ParseInt(fields[field-3], 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * time.Second / clockTicks
	}
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	defer status.Close() //nolint:errcheck // nothing was written
	for s := bufio.NewScanner(status); s.Scan(); {
		_, _ = fmt.Sscanf(s.Text(), "VmRSS: %d kB", &u.rssBytes)
		_, _ = fmt.Sscanf(s.Text(), "Threads: %d", &u.threads)
	}
	u.rssBytes *= 1024
	return u, nil
}

// TestIdle: an idle coordinator and worker use little CPU time, and their memory doesn't grow.
// It runs only with TROUPE_IDLE=1 (make check-idle).
func TestIdle(t *testing.T) {
	if os.Getenv("TROUPE_IDLE") != "1" {
		t.Skip("takes 10 minutes: run it with TROUPE_IDLE=1 (make check-idle)")
	}
	minutes := *idleMinutes
	if minutes < 3 {
		t.Fatalf("-idle.minutes %d: the second minute and the last are compared, so give 3 or more", minutes)
	}
	g := newGroup(t, &group{boss: settings{Silence: 3 * time.Second}})
	g.join(t, "worker")
	place := g.line.place()
	watched := []*process{g.lead, g.workers["worker"]}
	first := make([]usage, len(watched))
	last := make([]usage, len(watched))
	rss := make([][]float64, len(watched)) // mean of each minute, in MiB
	for i, p := range watched {
		var err error
		if first[i], err = usageOf(p.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range minutes {
		sums := make([]float64, len(watched))
		for range 60 {
			<-tick.C
			for i, p := range watched {
				var err error
				if last[i], err = usageOf(p.cmd.Process.Pid); err != nil {
					t.Fatalf("%s: %v\n%s", p.name, err, g.describe())
				}
				sums[i] += float64(last[i].rssBytes)
			}
		}
		for i := range watched {
			rss[i] = append(rss[i], sums[i]/60/(1<<20))
		}
	}
	goroutines := []int{g.ask(t, command{Do: "status"}).Count, workerGoroutines(t, g, "worker")}
	t.Logf("%-12s %8s %8s %10s %8s  %s", "process", "CPU s", "CPU %", "goroutines", "threads", "RSS MiB, mean of each minute")
	for i, p := range watched {
		used := last[i].cpu - first[i].cpu
		percent := 100 * used.Minutes() / float64(minutes)
		t.Logf("%-12s %8.2f %8.3f %10d %8d  %.1f", p.name, used.Seconds(), percent, goroutines[i], last[i].threads, rss[i])
		if percent >= 0.5 {
			t.Errorf("%s used %.3f %% of a core in %d minutes, want under 0.5", p.name, percent, minutes)
		}
		if was, is := rss[i][1], rss[i][minutes-1]; is > 1.02*was+1 {
			t.Errorf("%s has %.1f MiB in the last minute and %.1f in the second: want at most 2 %% and 1 MiB more", p.name, is, was)
		}
	}
	events, _ := g.line.from(place)
	for _, e := range events {
		if e.Kind == "log" {
			t.Errorf("an idle cluster logs: %s", e)
		}
	}
}

// workerGoroutines asks a worker for its number of goroutines.
func workerGoroutines(t *testing.T, g *group, name string) int {
	t.Helper()
	place := g.line.place()
	if _, err := g.workers[name].in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	return g.await(t, "the worker's goroutines", place, patience, func(e event) bool { return e.Kind == "reply" && e.ID == 0 }).Count
}
