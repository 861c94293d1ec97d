// Command bench compares the lane with raw TCP, TLS, gRPC and protoactor's remote, between two processes over loopback:
//
//	go run ./cluster/internal/lane/bench -rounds 5
//
// One process sends, and the other receives into memory that it reuses. Each round measures all transports and sizes in
// turn; the table has medians. A message has one part and a header of 64 bytes. The clock stops when the sender knows that
// everything has arrived.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
)

const childEnv = "LANE_BENCH_RECEIVER"

// way is one transport for messages.
type way struct {
	name string
	send func(size, n int) (time.Duration, error)
	// roundTrips sends messages that are sent back, one after another.
	roundTrips func(size, n int) (time.Duration, error)
	limit      int // the longest message; 0: any
}

// addresses is where the receiver listens.
type addresses struct {
	TCP, TLS, Lane, LaneTLS, GRPC, Proto, Heap string
}

func main() {
	if os.Getenv(childEnv) != "" {
		if err := receive(); err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := flag.Int("rounds", 5, "number of rounds")
	streams := flag.Int("streams", lane.DefaultStreams, "number of streams to the peer")
	volume := flag.Int("mib", 128, "MiB for each measurement; messages below 1 MiB move less")
	only := flag.String("only", "", "transports to measure, comma-separated; empty: all")
	flag.Parse()

	at, stop, err := startReceiver()
	if err != nil {
		return err
	}
	defer stop()
	ways, closeWays, err := dialAll(at, *streams)
	if err != nil {
		return err
	}
	defer closeWays()
	if *only != "" {
		ways = slices.DeleteFunc(ways, func(w way) bool { return !slices.Contains(strings.Split(*only, ","), w.name) })
	}
	heap, err := dialHeap(at.Heap)
	if err != nil {
		return err
	}
	sizes := []int{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
	t := newTable(ways, sizes)
	for round := range *rounds + 1 { // the first warms up
		for _, size := range sizes {
			n := max(4, (*volume<<20)/size)
			n = min(n, 4096)
			for k := range ways {
				// The order rotates, so that no transport always follows the same one.
				w := ways[(k+round)%len(ways)]
				if w.limit > 0 && size > w.limit {
					continue
				}
				before, err := heap.read()
				if err != nil {
					return err
				}
				took, err := w.send(size, n)
				if err != nil {
					return fmt.Errorf("%s, %d bytes: %w", w.name, size, err)
				}
				after, err := heap.read()
				if err != nil {
					return err
				}
				if round > 0 {
					t.add(w.name, size, n, took, before, after)
				}
			}
		}
		for k := range ways {
			w := ways[(k+round)%len(ways)]
			if w.roundTrips == nil {
				continue
			}
			const trips = 200
			took, err := w.roundTrips(1<<20, trips)
			if err != nil {
				return fmt.Errorf("%s, round trips: %w", w.name, err)
			}
			if round > 0 {
				t.addTrips(w.name, took/trips)
			}
		}
	}
	fmt.Printf("%s, %s/%s, %d CPUs, %d rounds, %d streams\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds,
		*streams)
	t.print(os.Stdout)
	return nil
}

// startReceiver runs this program again as the receiver. The receiver ends with stop, or when this process exits.
func startReceiver() (at addresses, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return at, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return at, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return at, nil, err
	}
	if err := cmd.Start(); err != nil {
		return at, nil, err
	}
	stop = func() { _ = in.Close(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		stop()
	}
	return at, stop, err
}
