package device

import (
	"sync"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

const (
	// peakTime is about how long measurePeak takes.
	peakTime = 50 * time.Millisecond
	// peakFrom and peakTo are the sizes of the matrices that it multiplies.
	peakFrom, peakTo = 128, 1024
	// peakTries is how often it does so with one size.
	peakTries = 4
)

// peaks are what PeakFLOPS has measured in this process: a processor's figure, whose measuring
// would delay the start of every run of a service.
var peaks = struct {
	sync.Mutex
	known map[peakKey]float64
}{known: map[peakKey]float64{}}

type peakKey struct {
	threads int
	kernels string
	dtype   tensorops.DType
}

// PeakFLOPS measures one large matrix product on a CPU with the given threads and kernels, in FLOP/s. The first call of a process
// takes about 50 ms. Other programs that use the cores at that time make the result too low.
func PeakFLOPS(o Options, dtype tensorops.DType) (float64, error) {
	key := peakKey{o.Threads, o.Kernels, dtype}
	peaks.Lock()
	defer peaks.Unlock() // two that measure at once would each find too little
	if known := peaks.known[key]; known > 0 {
		return known, nil
	}
	peak, err := measurePeak(o, dtype)
	if err == nil {
		peaks.known[key] = peak
	}
	return peak, err
}

func measurePeak(o Options, dtype tensorops.DType) (best float64, err error) {
	d, err := OpenKind(Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	s := d.NewStream("peak")
	defer func() {
		s.Close()
		s.Arena().Close()
	}()
	began := time.Now()
	for n := peakFrom; n <= peakTo; n *= 2 {
		l := s.NewList()
		var m [3]tensorops.Tensor
		for i := range m {
			m[i] = l.Alloc(dtype, n, n)
			l.Fill(m[i], 1)
		}
		if err := tensorops.Run(s, l); err != nil {
			return 0, err
		}
		for range peakTries {
			l := s.NewList()
			l.MatMul(m[0], m[1], m[2], tensorops.MatMulOpts{TransB: true, BF16: dtype == tensorops.BFloat16})
			start := time.Now()
			if err := tensorops.Run(s, l); err != nil {
				return 0, err
			}
			best = max(best, 2*float64(n)*float64(n)*float64(n)/time.Since(start).Seconds())
			if time.Since(began) > peakTime {
				return best, nil
			}
		}
		l = s.NewList()
		for _, t := range m {
			l.Free(t)
		}
		if err := tensorops.Run(s, l); err != nil {
			return 0, err
		}
	}
	return best, nil
}
