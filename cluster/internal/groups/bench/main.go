// Command bench measures collectives between processes on this machine, and compares them with the lane's bound and with Gloo:
//
//	go run ./cluster/internal/groups/bench -processes 2,4 -rounds 5 -python /path/to/python
//
// Each round measures for every size, one after the other: the lane alone, the collective, and, with -python, Gloo's
// collective through PyTorch's torch.distributed. The table has the medians over the rounds, also of the rounds' ratios.
//
// The lane is measured while all processes send to all others at once: its latency with empty messages, its rate with
// messages of up to 1 MiB, from and to as much memory as the collective uses. An exchange sends each other process a part
// of 1/n and waits for their parts; it is repeated as often as the collective, with nothing else in flight.
//
// The bound of an all_reduce of D bytes among n processes is the smaller of two times: 2 latencies and 2(n-1)/n·D bytes at
// the lane's rate, or 1 latency and (n-1)·D bytes. The bound of the others is 1 latency and (n-1)/n·D bytes, where D is the
// whole.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const allSizes = "64,256,1024,4096,16384,65536"

func main() {
	if os.Getenv(rankVariable) != "" {
		if err := playMember(); err != nil {
			fmt.Fprintln(os.Stderr, "member:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// side is one implementation that is measured: a set of processes that obey the same orders.
type side interface {
	// measure runs an operation count times in all processes, and returns the time of one in the slowest process.
	measure(what string, size, count int) (time.Duration, error)
	close()
}

func run() error {
	processes := flag.String("processes", "2,4", "numbers of processes")
	rounds := flag.Int("rounds", 5, "number of rounds")
	whats := flag.String("collectives", "all_reduce,reduce_scatter,all_gather", "collectives to measure")
	python := flag.String("python", "", "a Python with PyTorch, to measure Gloo too; empty: no Gloo")
	volume := flag.Int("mib", 256, "MiB for each measurement; small sizes move less")
	kib := flag.String("kib", allSizes, "sizes of the whole tensor, in KiB")
	shared := flag.Bool("shared", true, "use shared memory")
	threads := flag.Int("threads", 0, "GOMAXPROCS of each process; 0: an equal share of the machine's processors")
	flag.Parse()
	var lengths []int
	for _, text := range strings.Split(*kib, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-kib: %q is not a number of 1 or more", text)
		}
		lengths = append(lengths, n<<10)
	}
	fmt.Printf("%s, %s/%s, %d CPUs, %d rounds, load %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds, load())
	for _, text := range strings.Split(*processes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return fmt.Errorf("-processes: %q is not a number of 2 or more", text)
		}
		if err := compare(n, *rounds, *volume, lengths, strings.Split(*whats, ","), *python, *shared, *threads); err != nil {
			return err
		}
	}
	fmt.Printf("load at the end %s\n", load())
	return nil
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// bound returns the least time of a collective, from the lane's latency and rate.
func bound(what string, n, size int, latency time.Duration, bytesPerSecond float64) time.Duration {
	at := func(latencies int, bytes float64) time.Duration {
		return time.Duration(latencies)*latency + time.Duration(bytes/bytesPerSecond*1e9)
	}
	d, members := float64(size), float64(n)
	if what != "all_reduce" {
		return at(1, (members-1)/members*d)
	}
	return min(at(2, 2*(members-1)/members*d), at(1, (members-1)*d))
}

func compare(n, rounds, volume int, lengths []int, whats []string, python string, shared bool, threads int) error {
	if threads == 0 {
		threads = max(1, runtime.NumCPU()/n)
	}
	own, err := startMembers(n, shared, threads)
	if err != nil {
		return err
	}
	defer own.close()
	var peer side
	if python != "" {
		if peer, err = startGloo(n, python); err != nil {
			return err
		}
		defer peer.close()
	}
	for _, what := range whats {
		fmt.Printf("\n%s among %d processes with GOMAXPROCS=%d\n\n| bytes | latency µs | lane GB/s | bound µs | measured µs | bound / measured | Gloo µs | Gloo / measured | exchange µs | exchange / measured |\n|---|---|---|---|---|---|---|---|---|---|\n", what, n, threads)
		for _, size := range lengths {
			var r results
			for round := range rounds + 1 { // the first warms up
				if err := r.measure(own, peer, what, n, size, max(3, min(200, volume<<20/size/n)), round > 0); err != nil {
					return err
				}
			}
			r.print(size, peer != nil)
		}
	}
	return nil
}

// results are those of the rounds.
type results struct {
	latency, rate, bound, measured, byBound, gloo, byGloo, exchange, byExchange []float64
}

func (r *results) measure(own, peer side, what string, n, size, count int, keep bool) error {
	latency, err := own.measure("latency", 0, 2000)
	if err != nil {
		return err
	}
	const laneBytes = 64 << 20 // what each process sends
	lane, err := own.measure("lane", size, laneBytes/size)
	if err != nil {
		return err
	}
	rate := float64(size) / lane.Seconds()
	took, err := own.measure(what, size, count)
	if err != nil {
		return err
	}
	exchange, err := own.measure("exchange", size, count)
	if err != nil {
		return err
	}
	var gloo time.Duration
	if peer != nil {
		if gloo, err = peer.measure(what, size, count); err != nil {
			return err
		}
	}
	if !keep {
		return nil
	}
	least := bound(what, n, size, latency, rate)
	r.latency = append(r.latency, latency.Seconds()*1e6)
	r.rate = append(r.rate, rate/1e9)
	r.bound = append(r.bound, least.Seconds()*1e6)
	r.measured = append(r.measured, took.Seconds()*1e6)
	r.byBound = append(r.byBound, least.Seconds()/took.Seconds())
	r.exchange = append(r.exchange, exchange.Seconds()*1e6)
	r.byExchange = append(r.byExchange, exchange.Seconds()/took.Seconds())
	r.gloo = append(r.gloo, gloo.Seconds()*1e6)
	r.byGloo = append(r.byGloo, gloo.Seconds()/took.Seconds())
	return nil
}

func (r *results) print(size int, gloo bool) {
	fmt.Printf("| %d | %.0f | %.2f | %.0f | %.0f | %.2f | ", size, median(r.latency), median(r.rate), median(r.bound), median(r.measured),
		median(r.byBound))
	if gloo {
		fmt.Printf("%.0f | %.2f", median(r.gloo), median(r.byGloo))
	} else {
		fmt.Print(" | ")
	}
	fmt.Printf(" | %.0f | %.2f |\n", median(r.exchange), median(r.byExchange))
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}
