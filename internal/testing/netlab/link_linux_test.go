package netlab

import (
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
)

// roundTrips are the times of n round trips of a byte, sorted.
func roundTrips(t testing.TB, near, far net.Conn, n int) []time.Duration {
	t.Helper()
	done := make(chan error, 1)
	go func() { // ends with the last byte, or with the connection
		_, err := io.CopyN(far, far, int64(n))
		done <- err
	}()
	var times []time.Duration
	for range n {
		start := time.Now()
		if err := pass(near, near); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	slices.Sort(times)
	return times
}

func TestNetDelay(t *testing.T) {
	lab := New(t, "a", "b")
	near, far := connect(t, lab, "a", "b")
	for _, c := range []struct {
		a, b, shortest, longest time.Duration
	}{
		{0, 0, 0, 2 * time.Millisecond},
		{time.Millisecond, 0, 2 * time.Millisecond, 4 * time.Millisecond},
		{time.Millisecond, 2 * time.Millisecond, 6 * time.Millisecond, 9 * time.Millisecond},
		{0, 25 * time.Millisecond, 50 * time.Millisecond, 55 * time.Millisecond},
		{0, 0, 0, 2 * time.Millisecond},
	} {
		lab.SetLink("a", Link{Delay: c.a})
		lab.SetLink("b", Link{Delay: c.b})
		times := roundTrips(t, near, far, 50)
		t.Logf("delays %v and %v: round trips of %v to %v, median %v", c.a, c.b, times[0], times[49], times[25])
		if times[0] < c.shortest || times[25] > c.longest {
			t.Errorf("delays %v and %v: the shortest round trip is %v, the median %v, want %v to %v", c.a, c.b, times[0], times[25], c.shortest,
				c.longest)
		}
	}
}

// datagrams sends n datagrams from a to b and returns how many b received. It keeps few in flight, so that only the link drops
// any.
func datagrams(t testing.TB, lab *Lab, n int) (got int) {
	t.Helper()
	conn, err := lab.ListenPacket("b", "udp", lab.Address("b")+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sender, err := lab.Dial(t.Context(), "a", "udp", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	const window = 50
	deadline := time.Now().Add(patience)
	if err := conn.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	before := lab.Counts("a")
	for sent := 0; sent < n; {
		for range min(window, n-sent) {
			if _, err := sender.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for {
			c := lab.Counts("a")
			if c.Sent-before.Sent == int64(sent) {
				for ; got < sent-int(c.Lost-before.Lost); got++ {
					if _, _, err := conn.ReadFrom(make([]byte, 2000)); err != nil {
						t.Fatalf("%d of %d datagrams came, %+v: %v", got, sent, lab.Counts("a"), err)
					}
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d datagrams left, %d were sent", c.Sent-before.Sent, sent)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return got
}

func TestNetLoss(t *testing.T) {
	lab := New(t, "a", "b")
	const n = 20_000
	if got := datagrams(t, lab, n); got != n {
		t.Errorf("without loss %d of %d datagrams came", got, n)
	}
	lab.SetLink("a", Link{LossPercent: 1})
	got := datagrams(t, lab, n)
	lost := 100 * float64(n-got) / n
	t.Logf("with 1 percent of loss %.2f percent of %d datagrams were lost", lost, n)
	if lost < 0.5 || lost > 1.6 {
		t.Errorf("with 1 percent of loss %.2f percent were lost", lost)
	}
}

// transfer sends bytes over TCP and returns the received rate in bits per second.
func transfer(t testing.TB, near, far net.Conn, bytes int64) float64 {
	t.Helper()
	sent := make(chan error, 1)
	start := time.Now()
	go func() { // ends with the last byte, or with the connection
		buffer := make([]byte, 256<<10)
		for left := bytes; left > 0; left -= int64(len(buffer)) {
			if _, err := near.Write(buffer[:min(left, int64(len(buffer)))]); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(far, bytes), make([]byte, 256<<10)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return float64(bytes) * 8 / took.Seconds()
}

func TestNetRate(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			lab := New(t, "a", "b")
			lab.SetLink("a", Link{BitsPerSecond: 100e6, Delay: delay})
			for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
				near, far := connect(t, lab, pair[0], pair[1])
				best := 0.0 // a busy machine may slow one of them
				for range 3 {
					rate := transfer(t, near, far, 20e6)
					t.Logf("%s to %s: %.1f Mbit/s; %+v", pair[0], pair[1], rate/1e6, lab.Counts("a"))
					if best = max(best, rate); best >= 80e6 {
						break
					}
				}
				if best < 80e6 || best > 105e6 {
					t.Errorf("%s to %s: %.1f Mbit/s over a link of 100", pair[0], pair[1], best/1e6)
				}
			}
		})
	}
}

// TestNetLinkChange: if a full link changes, the packets in it don't wait as long as with the old settings.
func TestNetLinkChange(t *testing.T) {
	lab := New(t, "a", "b")
	near, far := connect(t, lab, "a", "b")
	lab.SetLink("a", Link{BitsPerSecond: 1000, Delay: time.Minute})
	if _, err := near.Write(make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	if hears(t, far) {
		t.Error("a byte came over a link that delays it by a minute")
	}
	lab.SetLink("a", Link{})
	if _, err := io.CopyN(io.Discard, far, 10_000); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkNetTCP sends 1 MiB at a time over one TCP connection. The forwarder limits the rate.
func BenchmarkNetTCP(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		for _, rate := range []int64{0, 1e9} {
			b.Run(fmt.Sprintf("delay=%v/rate=%d", delay, rate), func(b *testing.B) {
				lab := New(b, "a", "b")
				near, far := connect(b, lab, "a", "b")
				lab.SetLink("a", Link{Delay: delay, BitsPerSecond: rate})
				transfer(b, near, far, 32<<20) // until TCP has its window
				b.SetBytes(1 << 20)
				cpu := processorTime()
				b.ResetTimer()
				bits := transfer(b, near, far, int64(b.N)<<20)
				b.ReportMetric(bits/1e6, "Mbit/s")
				b.ReportMetric((processorTime()-cpu).Seconds()/b.Elapsed().Seconds(), "cores")
				c := lab.Counts("a")
				b.ReportMetric(float64(c.Overflowed), "overflowed")
			})
		}
	}
}

// processorTime returns the CPU time of all threads of this process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkNetNew makes a lab and ends it.
func BenchmarkNetNew(b *testing.B) {
	for _, hosts := range []int{2, 16, LimitHosts} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var names []string
			for i := range hosts {
				names = append(names, fmt.Sprint(i))
			}
			for b.Loop() {
				if err := New(b, names...).close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNetRoundTrip measures how much longer a round trip is than its delays, also without any delay.
func BenchmarkNetRoundTrip(b *testing.B) {
	for _, delay := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("delay=%v", delay), func(b *testing.B) {
			lab := New(b, "a", "b")
			near, far := connect(b, lab, "a", "b")
			lab.SetLink("a", Link{Delay: delay})
			b.ResetTimer()
			times := roundTrips(b, near, far, b.N)
			for _, percent := range []int{1, 50, 99} {
				over := times[(len(times)-1)*percent/100] - 2*delay
				b.ReportMetric(float64(over.Nanoseconds())/1e3, fmt.Sprintf("p%d-over-us", percent))
			}
		})
	}
}
