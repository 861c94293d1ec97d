package cuda

import (
	"errors"
	"runtime"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// pieces copies tensors from and to the host piece by piece, for other processes. What
// leaves and what comes in have memory and a goroutine of their own: neither waits for the
// other, on which two processes that send to each other would stand still.
type pieces struct{ in, out ferry }

func (p *pieces) begin(d *Device) {
	p.in.begin(d, false)
	p.out.begin(d, true)
}

func (p *pieces) close() {
	p.in.close()
	p.out.close()
}

// Lend is tensorops.Copier's.
func (s *source) Lend(t tensorops.Tensor, leaves bool, cancel <-chan struct{}) (tensorops.Piece, error) {
	f := &s.pieces.in
	if leaves {
		f = &s.pieces.out
	}
	p, err := f.lend(cancel)
	if p == nil {
		return nil, err // not p: a typed nil would not be nil
	}
	p.at = driver.Address(address(t))
	return p, nil
}

// ferry copies pieces in one direction.
type ferry struct {
	device *Device
	leaves bool

	free chan *piece // that nobody has
	work chan *piece // to be copied; it has room for all

	mu     sync.Mutex
	made   int // pieces, at most limitPieces
	closed bool
	ended  chan struct{} // closed with the goroutine; nil: none was needed yet
}

func (f *ferry) begin(d *Device, leaves bool) {
	f.device, f.leaves = d, leaves
	f.free, f.work = make(chan *piece, limitPieces), make(chan *piece, limitPieces)
}

// piece is page-locked memory.
type piece struct {
	ferry  *ferry
	memory []byte
	at     driver.Address // of the tensor
	offset int
	bytes  int
	result chan error // of the copy; has room for one
}

// lend finds memory: some that was given back, or some more, or waits.
func (f *ferry) lend(cancel <-chan struct{}) (*piece, error) {
	select {
	case p := <-f.free:
		return p, nil
	default:
	}
	if p, err := f.more(); p != nil || err != nil {
		return p, err
	}
	if cancel == nil {
		return nil, nil
	}
	select {
	case p := <-f.free:
		return p, nil
	case <-cancel:
		return nil, nil
	}
}

// more makes another piece, if there may be one, and with the first one the goroutine.
func (f *ferry) more() (*piece, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, tensorops.ErrClosed
	}
	if f.made == limitPieces {
		return nil, nil
	}
	p := &piece{ferry: f, result: make(chan error, 1)}
	err := f.device.owner.call(func() (err error) {
		p.memory, err = f.device.driver.AllocHost(tensorops.PieceBytes)
		return err
	})
	if err != nil && f.made > 0 {
		return nil, nil // those that there are have to do
	}
	if err != nil {
		return nil, err
	}
	f.made++
	if f.ended == nil {
		f.ended = make(chan struct{})
		go f.run() // ends with close
	}
	return p, nil
}

// run copies one piece after the other. Whoever fills or empties the memory meanwhile does so
// with another piece.
func (f *ferry) run() {
	defer close(f.ended)
	runtime.LockOSThread() // for good: the context stays the thread's
	d := f.device.driver
	var stream driver.Stream
	err := d.Use(f.device.context)
	if err == nil {
		stream, err = d.NewStream()
	}
	for p := range f.work {
		if err != nil {
			p.result <- err
			continue
		}
		p.result <- f.copy(p, stream)
	}
	// What cannot be given back here ends with the context.
	if stream != 0 {
		_ = d.EndStream(stream)
	}
	_ = d.Use(0)
}

func (f *ferry) copy(p *piece, s driver.Stream) error {
	d, at, memory := f.device.driver, p.at+driver.Address(p.offset), p.memory[:p.bytes]
	var err error
	if p.bytes == 0 {
		return nil
	}
	if f.leaves {
		err = d.CopyOut(memory, at, s)
	} else {
		err = d.CopyIn(at, memory, s)
	}
	return errors.Join(err, d.WaitStream(s))
}

// close ends the goroutine, and gives the memory back that nobody has.
func (f *ferry) close() {
	f.mu.Lock()
	closed, ended := f.closed, f.ended
	f.closed = true
	if !closed {
		close(f.work)
	}
	f.mu.Unlock()
	if closed || ended == nil {
		return
	}
	<-ended
	_ = f.device.owner.call(func() error { // what is not given back ends with the context
		for {
			select {
			case p := <-f.free:
				_ = f.device.driver.FreeHost(p.memory)
			default:
				return nil
			}
		}
	})
}

// Memory is tensorops.Piece's.
func (p *piece) Memory() []byte { return p.memory }

// Copy is tensorops.Piece's.
func (p *piece) Copy(offset, n int) {
	p.offset, p.bytes = offset, n
	f := p.ferry
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		p.result <- tensorops.ErrClosed
		return
	}
	f.work <- p
}

// Wait is tensorops.Piece's.
func (p *piece) Wait() error { return <-p.result }

// Release is tensorops.Piece's.
func (p *piece) Release() { p.ferry.free <- p }
