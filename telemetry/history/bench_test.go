package history

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/telemetry"
)

// long makes a run of steps, with figures of as many digits as a run's have.
func long(b *testing.B, steps int) (dir string, bytes int64) {
	b.Helper()
	dir = b.TempDir()
	f, err := os.Create(filepath.Join(dir, file))
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	p := func(v float64) *float64 { return &v }
	for i := 1; i <= steps; i++ {
		x := float64(i) / float64(steps)
		noise := math.Sin(float64(i) * 12.9898)
		r := telemetry.Record{
			Step: i, Loss: p(2 + 8*math.Exp(-9*x) + noise/7), GradNorm: p(0.5 + noise*noise/3), LR: p(3e-4 * (1 + math.Cos(3.14159*x)) / 2),
			Tokens: int64(i) * 524288, TokensPerS: p(812345.678 + 1000*noise), StepMS: p(645.4 + 7*noise), BubblePct: p(11.7 + noise),
			PeakMemBytes: 34359738368, PeakPct: p(41.2 + noise), Metrics: map[string]float64{"accuracy": 0.5 + noise/3,
				"router_entropy": 1.5 + noise/9},
		}
		if i%250 == 0 {
			r.ValLoss = p(2.1 + 8*math.Exp(-9*x))
		}
		text, err := json.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			b.Fatal(err)
		}
		bytes += int64(len(text)) + 1
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return dir, bytes
}

const benchSteps = 1_000_000

// BenchmarkOpen reads a run of 1,000,000 steps, and tells the memory that it holds.
func BenchmarkOpen(b *testing.B) {
	dir, bytes := long(b, benchSteps)
	fsys, err := folder.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // of a test
	b.SetBytes(bytes)
	var h *History
	began := sysinfo.CPUTime()
	for b.Loop() {
		if h, err = Open(fsys, file); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric((sysinfo.CPUTime()-began).Seconds()/float64(b.N), "cpu-s/open")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
	b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-held")
	b.ReportMetric(float64(bytes)/1e6, "MB-file")
	runtime.KeepAlive(h)
}

// BenchmarkSeries asks for a curve of the whole run, and of parts of it.
func BenchmarkSeries(b *testing.B) {
	dir, _ := long(b, benchSteps)
	fsys, err := folder.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close() //nolint:errcheck // of a test
	h, err := Open(fsys, file)
	if err != nil {
		b.Fatal(err)
	}
	for name, to := range map[string]float64{"all": benchSteps, "tenth": benchSteps / 10, "thousand": 1000} {
		for _, by := range []Axis{BySteps, BySeconds} {
			b.Run(name+"/"+by.String(), func(b *testing.B) {
				if by == BySeconds {
					to *= 0.6454
				}
				for b.Loop() {
					if len(h.Series("loss", by, 0, to, 1000)) == 0 {
						b.Fatal("no curve")
					}
				}
			})
		}
	}
}
