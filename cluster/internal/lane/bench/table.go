package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table collects measurements.
type table struct {
	ways  []way
	sizes []int
	rate  map[string]map[int][]float64 // bytes per second
	trips map[string][]float64         // seconds
	heap  map[string]map[int]heapUse
}

// heapUse is both processes' allocations for each message: the least of all rounds.
type heapUse struct{ sentBytes, sentObjects, gotBytes, gotObjects float64 }

func newTable(ways []way, sizes []int) *table {
	return &table{ways, sizes, make(map[string]map[int][]float64), make(map[string][]float64), make(map[string]map[int]heapUse)}
}

func (t *table) add(name string, size, n int, took time.Duration, before, after heapState) {
	if t.rate[name] == nil {
		t.rate[name], t.heap[name] = make(map[int][]float64), make(map[int]heapUse)
	}
	t.rate[name][size] = append(t.rate[name][size], float64(size)*float64(n)/took.Seconds())
	per := func(from, to uint64) float64 { return float64(to-from) / float64(n) }
	use := heapUse{
		per(before.own.bytes, after.own.bytes), per(before.own.objects, after.own.objects),
		per(before.peer.bytes, after.peer.bytes), per(before.peer.objects, after.peer.objects),
	}
	if old, ok := t.heap[name][size]; !ok || use.sentBytes+use.gotBytes < old.sentBytes+old.gotBytes {
		t.heap[name][size] = use
	}
}

func (t *table) addTrips(name string, each time.Duration) {
	t.trips[name] = append(t.trips[name], each.Seconds())
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[len(list)/2] + list[(len(list)-1)/2]) / 2
}

// ratio returns the median of the rounds' ratios, because the machine's other load changes slowly.
func ratio(a, b []float64) float64 {
	var list []float64
	for k := range min(len(a), len(b)) {
		list = append(list, a[k]/b[k])
	}
	return median(list)
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func (t *table) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") }
	head := []string{"GB/s"}
	for _, size := range t.sizes {
		head = append(head, sizeName(size))
	}
	line(append(head, "1 MiB round trip")...)
	for _, way := range t.ways {
		cells := []string{way.name}
		for _, size := range t.sizes {
			cells = append(cells, number("%.2f", median(t.rate[way.name][size])/1e9))
		}
		line(append(cells, number("%.0f µs", median(t.trips[way.name])*1e6))...)
	}
	line()
	for _, pair := range [][2]string{{"lane", "tcp"}, {"lane+crc", "tcp"}, {"lane+tls", "tls"}, {"grpc", "tcp"}, {"proto", "tcp"},
		{"lane+shm", "tcp"}, {"lane+shm", "lane"}} {
		if t.rate[pair[0]] == nil || t.rate[pair[1]] == nil {
			continue
		}
		cells := []string{pair[0] + " / " + pair[1]}
		for _, size := range t.sizes {
			cells = append(cells, number("%.2f", ratio(t.rate[pair[0]][size], t.rate[pair[1]][size])))
		}
		line(append(cells, number("%.2f", ratio(t.trips[pair[0]], t.trips[pair[1]])))...)
	}
	line()
	line("B/op (allocs/op), sender | receiver")
	for _, way := range t.ways {
		cells := []string{way.name}
		for _, size := range t.sizes {
			use, ok := t.heap[way.name][size]
			if !ok {
				cells = append(cells, "")
				continue
			}
			cells = append(cells, fmt.Sprintf("%.0f (%.1f) | %.0f (%.1f)", use.sentBytes, use.sentObjects, use.gotBytes, use.gotObjects))
		}
		line(cells...)
	}
	_ = w.Flush()
}

func number(format string, v float64) string {
	if v != v || v == 0 { // not measured
		return ""
	}
	return fmt.Sprintf(format, v)
}
