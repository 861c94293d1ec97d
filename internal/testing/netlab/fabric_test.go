package netlab

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// arrival is a packet that has reached its receiver.
type arrival struct {
	at    time.Duration
	to    int
	frame string
}

// drain lets time pass until the given time and returns what arrives.
func drain(f *fabric, until time.Duration) (arrivals []arrival) {
	for {
		at, ok := f.next()
		if !ok || at > until {
			return arrivals
		}
		for {
			to, frame, ok := f.due(at)
			if !ok {
				break
			}
			arrivals = append(arrivals, arrival{at, to, string(frame)})
			f.done(frame)
		}
	}
}

func TestLinks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		a, b  Link
		sends []time.Duration // when a sends 1250 bytes to b
		want  []time.Duration // when they arrive
	}{
		{"nothing", Link{}, Link{}, []time.Duration{0, 0, ms}, []time.Duration{0, 0, ms}},
		{"delays add up", Link{Delay: ms}, Link{Delay: 2 * ms}, []time.Duration{0, 0, 5 * ms}, []time.Duration{3 * ms, 3 * ms, 8 * ms}},
		{"the sender's rate", Link{BitsPerSecond: 10e6}, Link{}, []time.Duration{0, 0, 10 * ms}, []time.Duration{ms, 2 * ms, 11 * ms}},
		{"the receiver's rate", Link{}, Link{BitsPerSecond: 10e6}, []time.Duration{0, 0, 10 * ms}, []time.Duration{ms, 2 * ms, 11 * ms}},
		{"rate before delay", Link{BitsPerSecond: 10e6, Delay: 5 * ms}, Link{}, []time.Duration{0, 0, 0},
			[]time.Duration{6 * ms, 7 * ms, 8 * ms}},
		{"both rates", Link{BitsPerSecond: 10e6}, Link{BitsPerSecond: 5e6}, []time.Duration{0, 0, 0}, []time.Duration{3 * ms, 5 * ms, 7 * ms}},
		{"all lost", Link{}, Link{LossPercent: 100}, []time.Duration{0, ms}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(2)
			f.setLink(0, 0, c.a)
			f.setLink(0, 1, c.b)
			var got []time.Duration
			for _, at := range c.sends {
				for _, a := range drain(f, at) {
					got = append(got, a.at)
				}
				if f.send(at, 0, 1, []byte("frame"), 1250) {
					got = append(got, at)
				}
			}
			for _, a := range drain(f, math.MaxInt64) {
				got = append(got, a.at)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("packets arrive at %v, want %v", got, c.want)
			}
		})
	}
}

// TestQueue: a link with a limited rate drops packets that its queue has no room for.
func TestQueue(t *testing.T) {
	for _, c := range []struct {
		rate int64
		want int // packets of 1250 bytes
	}{
		{100e6, 201}, // 20 ms, and the one that is sent
		{1e6, 53},    // 64 KiB, and the one that is sent
	} {
		f := newFabric(2)
		f.setLink(0, 0, Link{BitsPerSecond: c.rate})
		for range 1000 {
			f.send(0, 0, 1, nil, 1250)
		}
		got := len(drain(f, math.MaxInt64))
		if counts := f.ports[0].counts; got != c.want || counts.Overflowed != int64(1000-got) {
			t.Errorf("at %d bit/s %d packets pass, want %d; %+v", c.rate, got, c.want, counts)
		}
	}
}

// TestHeldBound: the number of packets in a lab is bounded.
func TestHeldBound(t *testing.T) {
	f := newFabric(2)
	f.setLink(0, 0, Link{Delay: time.Second})
	const more = 10
	for range LimitHeldPackets + more {
		f.send(0, 0, 1, nil, 100)
	}
	if c := f.ports[0].counts; len(f.held) != LimitHeldPackets || c.Overflowed != more {
		t.Errorf("%d packets are held, want %d; %+v", len(f.held), LimitHeldPackets, c)
	}
}

// TestFabric: whatever links and partitions do, a packet arrives once and whole or is counted as dropped. It never arrives
// early or before an earlier one from the same sender.
func TestFabric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.IntRange(2, 4).Draw(t, "hosts")
		host := rapid.IntRange(0, hosts-1)
		f := newFabric(hosts)
		var now time.Duration
		type packet struct {
			from, to int
			earliest time.Duration
		}
		var sent []packet
		last := make(map[[2]int]uint64) // the last packet to arrive, for each pair
		arrived := 0
		arrive := func(a arrival) {
			n := binary.BigEndian.Uint64([]byte(a.frame))
			p := sent[n]
			if p.to != a.to {
				t.Fatalf("packet %d for %d came to %d", n, p.to, a.to)
			}
			if a.at < p.earliest {
				t.Fatalf("packet %d came at %v, not before %v was possible", n, a.at, p.earliest)
			}
			if f.cut[p.from][p.to] {
				t.Fatalf("packet %d came through a cut", n)
			}
			pair := [2]int{p.from, p.to}
			if before, ok := last[pair]; ok && before >= n {
				t.Fatalf("packet %d came after %d", n, before)
			}
			last[pair] = n
			arrived++
		}
		pass := func(until time.Duration) {
			for _, a := range drain(f, until) {
				arrive(a)
			}
			now = until
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				from, to := host.Draw(t, "from"), host.Draw(t, "to")
				bytes := rapid.IntRange(20, mtuBytes).Draw(t, "bytes")
				a, b := f.ports[from].link, f.ports[to].link
				sent = append(sent, packet{from, to, now + a.Delay + a.sendTime(bytes) + b.Delay + b.sendTime(bytes)})
				frame := binary.BigEndian.AppendUint64(nil, uint64(len(sent)-1))
				if f.send(now, from, to, frame, bytes) {
					arrive(arrival{now, to, string(frame)})
				}
			},
			"wait": func(t *rapid.T) {
				pass(now + time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "ns")))
			},
			"link": func(t *rapid.T) {
				link := Link{
					Delay:         time.Duration(rapid.IntRange(0, 3000).Draw(t, "µs")) * time.Microsecond,
					LossPercent:   rapid.SampledFrom([]float64{0, 0, 20, 100}).Draw(t, "loss"),
					BitsPerSecond: rapid.SampledFrom([]int64{0, 1e4, 1e6, 1e9}).Draw(t, "rate"),
				}
				f.setLink(now, host.Draw(t, "host"), link)
				for i := range sent { // those under way may take less than was promised
					sent[i].earliest = min(sent[i].earliest, now)
				}
			},
			"cut": func(t *rapid.T) {
				f.cut[host.Draw(t, "from")][host.Draw(t, "to")] = rapid.Bool().Draw(t, "cut")
			},
		})
		pass(math.MaxInt64 / 2)
		var total Counts
		for _, p := range f.ports {
			total.Sent += p.counts.Sent
			total.Received += p.counts.Received
			total.Lost += p.counts.Lost + p.counts.Overflowed + p.counts.Cut
		}
		if total.Sent != int64(len(sent)) || total.Received != int64(arrived) || total.Lost != total.Sent-total.Received {
			t.Fatalf("%d packets were sent, %d arrived, counted %+v", len(sent), arrived, total)
		}
	})
}

func TestLinkCheck(t *testing.T) {
	for _, c := range []struct {
		link Link
		ok   bool
	}{
		{Link{}, true},
		{Link{Delay: time.Millisecond, LossPercent: 100, BitsPerSecond: 1e9}, true},
		{Link{Delay: -1}, false},
		{Link{Delay: time.Hour}, false},
		{Link{LossPercent: -1}, false},
		{Link{LossPercent: 101}, false},
		{Link{LossPercent: math.NaN()}, false},
		{Link{BitsPerSecond: -1}, false},
		{Link{BitsPerSecond: 1}, false},
		{Link{BitsPerSecond: math.MaxInt64}, false},
	} {
		if err := c.link.check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.link, err)
		}
	}
}

// ipv4 is a packet without content.
func ipv4(t testing.TB, header string) []byte {
	t.Helper()
	packet, err := hex.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func TestDestination(t *testing.T) {
	for _, c := range []struct {
		name, header string
		host         int
		ok           bool
	}{
		{"first", "4500001400000000401100000a4d00020a4d0001", 0, true},
		{"last", "4500001400000000401100000a4d00020a4d00fa", 249, true},
		{"network", "4500001400000000401100000a4d00020a4d0000", 0, false},
		{"broadcast", "4500001400000000401100000a4d00020a4d00ff", 0, false},
		{"elsewhere", "4500001400000000401100000a4d00020a4d0101", 0, false},
		{"IPv6", "6000001400000000401100000a4d00020a4d0001", 0, false},
		{"wrong length", "4500001500000000401100000a4d00020a4d0001", 0, false},
		{"short", "4500001300000000401100000a4d00020a4d00", 0, false},
		{"empty", "", 0, false},
	} {
		if host, ok := destination(ipv4(t, c.header)); host != c.host || ok != c.ok {
			t.Errorf("%s: host %d, %v, want %d, %v", c.name, host, ok, c.host, c.ok)
		}
	}
	if got := address(249); got != "10.77.0.250" {
		t.Errorf("the last host has the address %s", got)
	}
}

func FuzzDestination(f *testing.F) {
	f.Add(ipv4(f, "4500001400000000401100000a4d00020a4d0001"))
	f.Add([]byte{0x60})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if host, ok := destination(packet); host < 0 || host >= LimitHosts || !ok && host != 0 {
			t.Errorf("host %d, %v", host, ok)
		}
	})
}
