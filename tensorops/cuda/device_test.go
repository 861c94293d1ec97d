//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// fetched runs a list that fetches a tensor, and frees it.
func fetched(s tensorops.Stream, x tensorops.Tensor) ([]float32, error) {
	return fetchedAs[float32](s, x)
}

func fetchedAs[E tensorops.Number](s tensorops.Stream, x tensorops.Tensor) ([]E, error) {
	got := make([]E, x.Len())
	l := s.NewList()
	l.Fetch(tensorops.HostBytes(got), x)
	l.Free(x)
	return got, tensorops.Run(s, l)
}

// TestLargeCopies: what is larger than the staging memory goes in several batches.
func TestLargeCopies(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("large")
	l.Delay(100)
	want := make([]float32, limitStagingBytes/4*2+12345)
	for i := range want {
		want[i] = float32(i % 65536)
	}
	list := s.NewList()
	small := list.Alloc(tensorops.Float32, 3)
	list.Upload(small, tensorops.HostBytes([]float32{1, 2, 3}))
	x := list.Alloc(tensorops.Float32, len(want))
	list.Upload(x, tensorops.HostBytes(want))
	got := make([]float32, len(want))
	list.Fetch(tensorops.HostBytes(got), x)
	list.Free(x)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("what came back differs from what was uploaded")
	}
	if got, err := fetched(s, small); err != nil || !slices.Equal(got, []float32{1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
}

// pair is a group of two whose members share a sum in this process.
type pair struct {
	rank int
	both *sync.WaitGroup // of the members' parts
	mu   *sync.Mutex
	sum  []float32
	fail error
}

func (p pair) Size() int { return 2 }
func (p pair) Rank() int { return p.rank }

func (p pair) Start(op *tensorops.Op, done func(error)) {
	mine := tensorops.Elements[float32](op.Collective().Dst)
	p.mu.Lock()
	for i, v := range mine {
		p.sum[i] += v
	}
	p.mu.Unlock()
	p.both.Done()
	go func() {
		p.both.Wait()
		copy(mine, p.sum)
		done(p.fail)
	}()
}

// TestCollective: a group of several works on a copy in host memory, however large.
func TestCollective(t *testing.T) {
	lost := errors.New("peer lost")
	for _, fail := range []error{nil, lost} {
		l, path := stand(t)
		d := newDevice(t, path, Options{})
		l.Delay(200)
		const n = limitStagingBytes/4 + 1000
		var both sync.WaitGroup
		both.Add(2)
		group := pair{both: &both, mu: &sync.Mutex{}, sum: make([]float32, n), fail: fail}
		var results [2][]float32
		var errs [2]error
		var ended sync.WaitGroup
		for rank := range 2 {
			member := group
			member.rank = rank
			ended.Go(func() {
				s := d.NewStream(fmt.Sprint("member ", rank))
				list := s.NewList()
				x := list.Alloc(tensorops.Float32, n)
				list.Fill(x, float64(rank+1))
				list.AllReduce(x, tensorops.Sum, member)
				list.Add(x, x, x)
				if errs[rank] = tensorops.Run(s, list); errs[rank] == nil {
					results[rank], errs[rank] = fetched(s, x)
				} else {
					x.Release()
				}
			})
		}
		ended.Wait()
		for rank, err := range errs {
			if !errors.Is(err, fail) {
				t.Fatalf("member %d: error %v, want %v", rank, err, fail)
			}
			if got := results[rank]; fail == nil && (got[0] != 6 || got[n-1] != 6) {
				t.Errorf("member %d has %g and %g, want twice the sum of 1 and 2", rank, got[0], got[n-1])
			}
		}
		if s := d.Memory(); s.InUse != 0 {
			t.Errorf("%d bytes are in use in the end", s.InUse)
		}
	}
}

// TestCollectives: every collective of a group of several, of which one may go on beside what
// follows, gives what it gives of tensors in host memory.
func TestCollectives(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	const rows, cols = 3, 4
	results := make(map[string][][]float32)
	oracle := ref.New()
	defer oracle.Close()
	for name, dev := range map[string]tensorops.Device{"cuda": d, "ref": oracle} {
		got := make([][]float32, 2)
		var ended sync.WaitGroup
		for rank, g := range collective.Local(name, 2) {
			ended.Go(func() {
				s := dev.NewStream(name)
				defer s.Close()
				l := s.NewList()
				host := make([]float32, rows*cols)
				for i := range host {
					host[i] = float32(i*i + 100*rank)
				}
				x, wide, tall := l.Alloc(tensorops.Float32, rows, cols), l.Alloc(tensorops.Float32, rows, 2*cols),
					l.Alloc(tensorops.Float32, 2*rows, cols)
				ring, all := l.Alloc(tensorops.Float32, rows, cols), l.Alloc(tensorops.Float32, 2*rows, cols)
				l.Upload(x, tensorops.HostBytes(host))
				l.AllGather(wide, x, 1, g)
				l.Begin(tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: tall, Src: x, Group: g})
				l.RingForward(ring, x, g)
				l.Await()
				l.AllToAll(all, tall, g)
				l.ReduceScatter(x, wide, 1, tensorops.Max, g)
				l.Broadcast(ring, 1, g)
				part := tall.RowRange(rows*rank, rows*(rank+1)) // the first member's begins where the whole does
				l.ReduceScatter(part, tall, 0, tensorops.Sum, g)
				l.AllGather(tall, part, 0, g)
				l.Barrier(g)
				var outs [][]float32
				for _, t := range []tensorops.Tensor{x, wide, tall, ring, all} {
					outs = append(outs, make([]float32, t.Len()))
					l.Fetch(tensorops.HostBytes(outs[len(outs)-1]), t)
					l.Free(t)
				}
				if err := tensorops.Run(s, l); err != nil {
					t.Error(err)
				}
				got[rank] = slices.Concat(outs...)
			})
		}
		ended.Wait()
		results[name] = got
	}
	for rank := range 2 {
		if got, want := results["cuda"][rank], results["ref"][rank]; !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("rank %d has %v, want %v", rank, got, want)
		}
	}
}

// TestHandOver: tensors that one stream makes and another reads, with streams that do
// their work late.
func TestHandOver(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	l.Delay(300)
	a, b := d.NewStream("makes"), d.NewStream("reads")
	const rounds = 50
	type message struct {
		x     tensorops.Tensor
		value float64
	}
	made := make(chan message, rounds)
	var ended sync.WaitGroup
	ended.Go(func() {
		defer close(made)
		for i := range rounds {
			list := a.NewList()
			x := list.Alloc(tensorops.Float32, 1+rand.IntN(2000))
			list.Fill(x, -1)
			list.Fill(x, float64(i))
			scratch := list.AllocLike(x)
			list.Fill(scratch, 99)
			list.Free(scratch)
			a.Submit(list, func(err error) {
				if err != nil {
					t.Error(err)
				}
				made <- message{x, float64(i)}
			})
			if i%8 == 7 { // let the queue run empty now and then
				if err := tensorops.Run(a, a.NewList()); err != nil {
					t.Error(err)
				}
			}
		}
		if err := tensorops.Run(a, a.NewList()); err != nil {
			t.Error(err)
		}
	})
	for m := range made {
		list := b.NewList()
		y := list.AllocLike(m.x)
		list.Add(y, m.x, m.x)
		list.Free(m.x)
		if err := tensorops.Run(b, list); err != nil {
			t.Error(err)
		}
		got, err := fetched(b, y)
		if err != nil || slices.Min(got) != float32(2*m.value) || slices.Max(got) != float32(2*m.value) {
			t.Errorf("tensor %g: %g to %g, %v", m.value, slices.Min(got), slices.Max(got), err)
		}
	}
	ended.Wait()
	if s := d.Memory(); s.InUse != 0 {
		t.Errorf("%d bytes are in use in the end", s.InUse)
	}
}

// TestArenaClose: a stream's tensors stay when it ends, since another may use them, and go
// when its arena is closed. A tensor that is released later gives nothing back.
func TestArenaClose(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	a, b := d.NewStream("a"), d.NewStream("b")
	list := a.NewList()
	x, kept := list.Alloc(tensorops.Float32, 1000), list.Alloc(tensorops.Float32, 5000)
	list.Fill(x, 3)
	list.Free(kept)
	if err := tensorops.Run(a, list); err != nil {
		t.Fatal(err)
	}
	a.Close()
	list = b.NewList()
	y := list.AllocLike(x)
	list.Add(y, x, x)
	if err := tensorops.Run(b, list); err != nil {
		t.Fatal(err)
	}
	frees := l.Calls("cuMemFree_v2")
	a.Arena().Close()
	if s := d.Memory(); s.InUse != int64(y.Buffer().Bytes()) || s.Pooled != 0 || s.Peak == 0 {
		t.Errorf("with one of two arenas closed: %+v", s)
	}
	if n := l.Calls("cuMemFree_v2") - frees; n != 1 {
		t.Errorf("%d pieces of memory are given back, want that of the one tensor that was left", n)
	}
	x.Release()
	a.Arena().Close()
	if _, err := a.Arena().Take(1); !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("a closed arena gives memory: %v", err)
	}
	if got, err := fetched(b, y); err != nil || got[999] != 6 {
		t.Errorf("the other stream's tensor ends with %v, %v", got[len(got)-1:], err)
	}
	list = b.NewList()
	z := list.Alloc(tensorops.Float32, 10)
	if err := tensorops.Run(b, list); err != nil {
		t.Fatal(err)
	}
	d.Close()
	z.Release()
	b.Arena().Close()
	if s := d.Memory(); s.InUse != 0 || s.Pooled != 0 {
		t.Errorf("after the device's end: %+v", s)
	}
}

// TestScratchIsApart: memory that a list frees is not scratch memory of what was recorded
// before it, though that may be launched later.
func TestScratchIsApart(t *testing.T) {
	l, path := stand(t)
	s := newDevice(t, path, Options{}).NewStream("scratch")
	l.Delay(500)
	const n = 1 << 16
	first := s.NewList()
	x, out := first.Alloc(tensorops.Float32, n), first.Alloc(tensorops.Float64, 1)
	first.Fill(x, 1)
	first.SquaredNorm(out, x) // sums blocks in scratch memory
	second := s.NewList()
	sum := second.Alloc(tensorops.Float64, 1)
	second.SquaredNorm(sum, x)
	second.Free(x)
	second.Free(out)
	failures := make(chan error, 2)
	s.Submit(first, func(err error) { failures <- err })
	got := make([]float64, 1)
	second.Fetch(tensorops.HostBytes(got), sum)
	second.Free(sum)
	s.Submit(second, func(err error) { failures <- err })
	if err := errors.Join(<-failures, <-failures); err != nil || got[0] != n {
		t.Errorf("the squared norm of %d ones is %g, %v", n, got[0], err)
	}
}

func TestOutOfMemory(t *testing.T) {
	l, path := stand(t)
	t.Run("the limit", func(t *testing.T) {
		s := newDevice(t, path, Options{LimitBytes: 1 << 20}).NewStream("limited")
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 1<<17)
		list.Alloc(tensorops.Float32, 1<<17+1)
		err := tensorops.Run(s, list)
		if !errors.Is(err, tensorops.ErrOutOfMemory) || !strings.Contains(err.Error(),
			"524288 of 1048576 are in use: limited has 524288 in use and keeps 0") {
			t.Errorf("error %v", err)
		}
		x.Release()
	})
	t.Run("the device's end", func(t *testing.T) {
		l.Memory(1 << 20)
		d := newDevice(t, path, Options{})
		a, b := d.NewStream("a"), d.NewStream("b")
		list := a.NewList()
		x := list.Alloc(tensorops.Float32, 150_000)
		list.Fill(x, 1)
		list.Free(x)
		y := list.Alloc(tensorops.Float32, 200_000) // x is free, but this list may still use it
		if err := tensorops.Run(a, list); !errors.Is(err, tensorops.ErrOutOfMemory) ||
			!strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") ||
			!strings.Contains(err.Error(), "a has 0 in use and keeps 622592") || y.Valid() {
			t.Errorf("error %v, want the driver's", err)
		}
		if s := d.Memory(); s.InUse != 0 || s.Pooled == 0 {
			t.Errorf("%+v after the failure", s)
		}
		// The list is complete: what it kept is given to whoever has none.
		list = b.NewList()
		y = list.Alloc(tensorops.Float32, 200_000)
		list.Fill(y, 2)
		if err := tensorops.Run(b, list); err != nil {
			t.Error(err)
		}
		if got, err := fetched(b, y); err != nil || got[199_999] != 2 {
			t.Error(err)
		}
	})
}

// TestClose: closing with work under way reports every list once.
func TestClose(t *testing.T) {
	l, path := stand(t)
	for range 20 {
		d := newDevice(t, path, Options{})
		l.Delay(1000)
		var lists, done atomic.Int64
		for i := range 3 {
			s := d.NewStream(fmt.Sprint("closing ", i))
			list := s.NewList()
			x := list.Alloc(tensorops.Float32, 1000) // left behind
			for range 20 {
				list.Fill(x, 1)
				list.Embed(list.Alloc(tensorops.Float32, 1, 1), x.View(1000, 1), list.Alloc(tensorops.Int32, 1)) // ids of nobody's making
				lists.Add(1)
				s.Submit(list, func(err error) {
					done.Add(1)
					if err != nil && !errors.Is(err, tensorops.ErrClosed) && !errors.Is(err, tensorops.ErrToken) {
						t.Error(err)
					}
				})
				list = s.NewList()
			}
		}
		var both sync.WaitGroup // nobody knows of the other
		for range 2 {
			both.Go(d.Close)
		}
		both.Wait()
		if lists.Load() != done.Load() {
			t.Errorf("%d lists, %d reports", lists.Load(), done.Load())
		}
		s := d.NewStream("late")
		if err := tensorops.Run(s, s.NewList()); !errors.Is(err, tensorops.ErrClosed) {
			t.Errorf("a stream of a closed device: %v", err)
		}
		s.Close()
	}
}

// functions are all that are bound, each with whether its failure is reported: giving
// back is not, since nothing can be done about it, nor is making graphs, which can be
// done without.
var functions = map[string]bool{
	"cuInit": true, "cuDriverGetVersion": true, "cuDeviceGetCount": true, "cuDeviceGet": true, "cuDeviceGetName": true,
	"cuDeviceTotalMem_v2": true, "cuDeviceGetUuid": true, "cuDeviceGetAttribute": true, "cuDevicePrimaryCtxRetain": true,
	"cuDevicePrimaryCtxRelease_v2": false,
	"cuCtxSetCurrent":              true, "cuMemGetInfo_v2": true, "cuMemAlloc_v2": true, "cuMemFree_v2": false, "cuMemHostAlloc": true,
	"cuMemFreeHost":        false,
	"cuMemcpyHtoDAsync_v2": true, "cuMemcpyDtoHAsync_v2": true, "cuMemsetD32Async": true, "cuStreamCreate": true,
	"cuStreamDestroy_v2": false, "cuStreamSynchronize": true, "cuEventCreate": true, "cuEventDestroy_v2": false,
	"cuEventRecord": true, "cuEventSynchronize": true, "cuModuleLoadData": true, "cuModuleUnload": false,
	"cuModuleGetFunction": true, "cuFuncSetAttribute": true, "cuLaunchKernel": true, "task": true,
	"cuStreamBeginCapture_v2": false, "cuStreamEndCapture": false, "cuGraphInstantiateWithFlags": false, "cuGraphDestroy": false,
	"cuMemcpyDtoDAsync_v2": true, "cuStreamWaitEvent": true, "cuGraphLaunch": true, "cuGraphExecDestroy": false,
	"nvrtcVersion": true, "nvrtcGetNumSupportedArchs": true, "nvrtcGetSupportedArchs": true, "nvrtcCreateProgram": true,
	"nvrtcDestroyProgram": true, "nvrtcCompileProgram": true, "nvrtcGetCUBINSize": true, "nvrtcGetCUBIN": true,
	"cublasLtCreate": true, "cublasLtDestroy": false, "cublasLtMatmulDescCreate": true, "cublasLtMatmulDescSetAttribute": true,
	"cublasLtMatmulDescDestroy": false, "cublasLtMatrixLayoutCreate": true, "cublasLtMatrixLayoutDestroy": false,
	"cublasLtMatmulPreferenceCreate": true, "cublasLtMatmulPreferenceSetAttribute": true, "cublasLtMatmulPreferenceDestroy": false,
	"cublasLtMatmulAlgoGetHeuristic": true, "cublasLtMatmul": true,
}

// session opens a device, does a little of everything and closes it. It returns the
// errors of all parts.
func session(path, folder string) error {
	d, err := New(Options{Driver: path, NVRTC: path, BLAS: path, Cache: folder})
	if err != nil {
		return err
	}
	defer d.Close()
	s := d.NewStream("session")
	var errs []error
	if free, err := d.FreeBytes(); err != nil || free <= 0 {
		errs = append(errs, fmt.Errorf("%d bytes are free: %w", free, err))
	}
	for range 3 { // a segment is launched, captured, launched as a graph
		list := s.NewList()
		ids, weight, out := list.Alloc(tensorops.Int32, 2), list.Alloc(tensorops.Float32, 4, 3), list.Alloc(tensorops.Float32, 2, 3)
		norm := list.Alloc(tensorops.Float64, 1)
		list.Upload(ids, tensorops.HostBytes([]int32{1, 3}))
		list.Fill(weight, 2)
		head, lse := list.Alloc(tensorops.BFloat16, 1, wideHead), list.Alloc(tensorops.Float32, 1, 1, 1)
		list.Fill(head, 1)
		list.Attention(head, head, head, head, lse, tensorops.AttentionOpts{Batch: 1, Heads: 1, KVHeads: 1, BF16: true})
		list.Embed(out, weight, ids)
		list.SquaredNorm(norm, out)
		list.MatMul(out, weight.View(2, 6).Columns(0, 4), weight, tensorops.MatMulOpts{Bias: weight.View(12).View(4, 3).RowRange(0, 1).View(3)})
		list.AllReduce(out, tensorops.Sum, tensorops.Solo{})
		list.Upload(ids, tensorops.HostBytes([]int32{1, 4}))
		got := make([]float64, 1)
		list.Fetch(tensorops.HostBytes(got), norm)
		for range minGraphOps {
			list.Fill(out, 1)
		}
		large := list.Alloc(tensorops.Float32, minAside/2)
		list.Upload(large, tensorops.HostBytes(make([]float32, minAside/2)))
		list.Fetch(tensorops.HostBytes(make([]float32, minAside/2)), large)
		list.Fill(large, 1)
		list.Free(large)
		list.Embed(out, weight, ids)
		for _, t := range []tensorops.Tensor{ids, weight, out, norm, head, lse} {
			list.Free(t)
		}
		err := tensorops.Run(s, list)
		if !errors.Is(err, tensorops.ErrToken) || strings.Contains(err.Error(), "(999)") {
			errs = append(errs, fmt.Errorf("the first row holds 4: %w", errors.Join(errors.New("not reported"), err)))
		} else if got[0] != 24 {
			errs = append(errs, fmt.Errorf("the squared norm of six twos is %g", got[0]))
		}
		if in := d.Memory().InUse; in != 0 {
			errs = append(errs, fmt.Errorf("%w: %d bytes in use", errLeak, in))
		}
	}
	return errors.Join(errs...)
}

var errLeak = errors.New("leak")

// TestFailingCalls makes every call of the driver's and the compiler's fail, one at a
// time: that is an error, and neither a panic, a hang nor a leak.
func TestFailingCalls(t *testing.T) {
	l, path := stand(t)
	most := int64(3) // of each function's calls
	if long {
		most = 8
	}
	count := make(map[string]int64)
	for name := range functions {
		count[name] = -l.Calls(name)
	}
	if err := session(path, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for name := range functions {
		count[name] += l.Calls(name)
	}
	for name, reported := range functions {
		calls := count[name]
		if calls == 0 {
			t.Errorf("a session does not call %s", name)
		}
		for n := int64(1); n <= min(calls, most); n++ {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				l.Reset()
				l.Fail(name, int32(n), 999) // a code that nobody knows
				before := l.Calls(name)
				err := session(path, t.TempDir())
				// Which batch is taken is a matter of time, and so is how many need memory.
				happened := l.Calls(name)-before >= n
				if reported && happened && err == nil && (name != "cuCtxSetCurrent" || n <= 2) { // the rest take the context away
					t.Error("no error")
				}
				if errors.Is(err, errLeak) {
					t.Error(err)
				}
				for _, kind := range standin.Kinds {
					if left := l.Left(kind); left > 1 || left > 0 && reported && name != "nvrtcDestroyProgram" {
						t.Errorf("%d %s are left", left, kind)
					}
				}
			})
		}
	}
	l.Reset()
}

// TestFailedContext: a kernel that fails takes the context with it. Every list says so,
// and closing works.
func TestFailedContext(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{BLAS: path})
	s := d.NewStream("failing")
	list := s.NewList()
	x, square := list.Alloc(tensorops.Float32, 10), list.Alloc(tensorops.Float32, 8, 8)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	l.Fail("task", 1, 719)
	for range 3 {
		list := s.NewList()
		list.Fill(x, 1)
		if err := tensorops.Run(s, list); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED (719)") {
			t.Errorf("error %v", err)
		}
	}
	// The library only says that it can do nothing; the error says why.
	list = s.NewList()
	list.MatMul(square, square, square, tensorops.MatMulOpts{})
	if err := tensorops.Run(s, list); err == nil || !strings.Contains(err.Error(), "CUBLAS_STATUS_NOT_INITIALIZED") ||
		!strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED (719)") {
		t.Errorf("error of a product %v", err)
	}
	d.Close()
	l.Reset() // a failed context gives nothing back by itself
}

// library builds a shared library from C++ text.
func library(t *testing.T, text string) string {
	t.Helper()
	compiler, err := standin.Compiler()
	if err != nil {
		t.Skip(err)
	}
	source := filepath.Join(t.TempDir(), "library.cpp")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := source + ".so"
	if text, err := osexec.CommandContext(context.Background(), compiler, "-shared", "-fPIC", "-o", out, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// oldBLAS is the text of a cuBLASLt with all functions, and a version before GELU_AUX_BIAS.
func oldBLAS() string {
	text := "#include <stddef.h>\nextern \"C\" {\nsize_t cublasLtGetVersion(void) { return 100200; }\n"
	for name := range functions {
		if strings.HasPrefix(name, "cublasLt") {
			text += "int " + name + "(void) { return 15; }\n"
		}
	}
	return text + "}\n"
}

func TestUnavailable(t *testing.T) {
	l, path := stand(t)
	l.Fail("cuInit", 1, 100) // as a driver does that sees no GPU
	if _, err := New(Options{Driver: path, NVRTC: path}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "cuInit") {
		t.Errorf("no GPU: %v", err)
	}
	empty := library(t, `extern "C" int cuInit(unsigned) { return 0; }`)
	old := library(t, oldBLAS())
	for _, test := range []struct {
		what string
		o    Options
		want []string
	}{
		{"no driver", Options{Driver: "/nowhere/libcuda.so", NVRTC: path}, []string{"/nowhere/libcuda.so", "No such file"}},
		{"no compiler", Options{Driver: path, NVRTC: "/nowhere/libnvrtc.so"}, []string{"/nowhere/libnvrtc.so", "CUDA 11.2"}},
		{"another library for the driver", Options{Driver: empty, NVRTC: path}, []string{"it lacks cuDriverGetVersion, ", "cuLaunchKernel"}},
		{"another library for the compiler", Options{Driver: path, NVRTC: empty}, []string{"nvrtcCompileProgram"}},
		{"no cuBLASLt where it should be", Options{Driver: path, NVRTC: path, BLAS: "/nowhere/libcublasLt.so"},
			[]string{"/nowhere/libcublasLt.so", "No such file"}},
		{"another library for cuBLASLt", Options{Driver: path, NVRTC: path, BLAS: empty},
			[]string{"it lacks cublasLtCreate, ", "cublasLtMatmul"}},
		{"an old cuBLASLt", Options{Driver: path, NVRTC: path, BLAS: old}, []string{"cuBLASLt 10.2, too old: use 11.4"}},
		{"no such device", Options{Driver: path, NVRTC: path, Device: 1}, []string{"device 1", "the driver sees 1"}},
	} {
		d, err := New(test.o)
		if err == nil {
			d.Close()
		}
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: error %v", test.what, err)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %q", test.what, part, err)
			}
		}
	}
}

// TestCache: kernels are compiled once, and a broken copy again.
func TestCache(t *testing.T) {
	l, path := stand(t)
	folder := t.TempDir()
	// fills opens the device, runs one kernel and counts compilations.
	fills := func() int64 {
		before := l.Calls("nvrtcCompileProgram")
		d := newDevice(t, path, Options{Cache: folder})
		s := d.NewStream("fills")
		list := s.NewList()
		x := list.Alloc(tensorops.Float32, 4)
		list.Fill(x, 1)
		list.Free(x)
		if err := tensorops.Run(s, list); err != nil {
			t.Error(err)
		}
		d.Close()
		return l.Calls("nvrtcCompileProgram") - before
	}
	all := fills()
	if all == 0 {
		t.Error("nothing was compiled")
	}
	if n := fills(); n != 0 {
		t.Errorf("%d files were compiled again", n)
	}
	names, err := os.ReadDir(folder)
	if err != nil || int64(len(names)) != all {
		t.Fatalf("%d files in the cache for %d compilations, %v", len(names), all, err)
	}
	for _, n := range names { // a byte is lost
		file := filepath.Join(folder, n.Name())
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, raw[:len(raw)-1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := fills(); n != all {
		t.Errorf("%d of %d broken files were compiled again", n, all)
	}
	// Whole, but not what the driver takes: the one that is loaded is compiled again.
	for _, n := range names {
		cache{folder}.store(n.Name(), []byte("no image"))
	}
	if n := fills(); n != 1 {
		t.Errorf("%d files were compiled again, want the one in use", n)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // where the folder has to be
		t.Fatal(err)
	}
	if n := fills(); n != all {
		t.Errorf("without a cache %d of %d files are compiled", n, all)
	}
}
