package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// run is how far a list has been launched.
type run struct {
	sub    tensorops.Submission
	op     int              // the next operation
	offset int              // bytes of its upload or fetch that are launched
	host   tensorops.Tensor // a collective's source in host memory
	result tensorops.Tensor // its destination there, which may be the same
	table  tensorops.Tensor // the table of an exchange of rows, in host memory
	read   bool             // the table is there
	summed bool             // the collective has been started
}

// release gives a collective's host memory back.
func (r *run) release() {
	if !r.result.Same(r.host) {
		r.result.Release()
	}
	r.host.Release()
	r.table.Release()
	r.host, r.result, r.table = tensorops.Tensor{}, tensorops.Tensor{}, tensorops.Tensor{}
}

// reset makes it ready for the next list.
func (r *run) reset() {
	r.release()
	*r = run{}
}

// launch puts the list's next operations into the stream, up to one that has to complete
// before the rest: a collective, an operation that may meet a bad id, a copy that the
// batch has no room for. Ids that the list uploads are looked at there (checkedids.go), and then no
// operation meets a bad one.
func (s *stream) launch(f *launchBatch) {
	r := &s.run
	f.sub = r.sub
	f.hold = s.exec.temporary.Hold() // until it is complete: what is free of it may be in use
	if err := r.sub.List.Err(); err != nil {
		f.err = fmt.Errorf("%s: %w", s.name, err)
		return
	}
	ops, first := r.sub.List.Ops(), r.op
	for r.op < len(ops) {
		goOn, err := s.start(f, ops[r.op:])
		if err != nil { // of the operation that it has come to
			f.err = s.failed(&ops[r.op], err)
			break
		}
		if !goOn {
			break
		}
	}
	f.last = r.op == len(ops)
	if err := s.fetchRoutes(f, ops[first:r.op]); err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", s.name, err)
	}
	if err := f.record(); err != nil {
		if f.err == nil {
			f.err = fmt.Errorf("%s: %w", s.name, err)
		}
		return
	}
	f.onItsOwn = f.last && f.err == nil && f.checked == nil && f.collective == nil
}

// start launches the first operation, or a part of it, or the first segment; false if the
// batch ends here.
func (s *stream) start(f *launchBatch, ops []tensorops.Op) (goOn bool, err error) {
	defer func() {
		if v := recover(); v != nil { // in a group's code: exec has its own
			err = panicError(v)
		}
	}()
	n := s.ids.segment(ops)
	if err := s.copies.settle(ops[:max(n, 1)]); err != nil {
		return false, err
	}
	s.tables.passed(ops[:max(n, 1)])
	if n > 0 {
		done, err := s.exec.doSegment(f, ops[:n])
		s.run.op += done
		return done == n, err
	}
	op := &ops[0]
	var whole bool
	switch op.Kind {
	case tensorops.KindUpload:
		a := op.Upload()
		if whole, err = s.upload(f, a.Dst, a.Host); whole {
			s.ids.uploaded(a.Dst, a.Host)
		}
	case tensorops.KindFetch:
		a := op.Fetch()
		whole, err = s.fetch(f, a.Host, a.Src)
	case tensorops.KindPeerCopy:
		a := op.Copy()
		whole, err = true, s.peerCopy(f, a.Dst, a.Src)
	case tensorops.KindCollective:
		s.ids.passed(op)
		return s.reduce(f, op)
	default:
		s.ids.passed(op)
		return false, s.lookUp(f, ops[:1])
	}
	if err != nil || !whole {
		return false, err
	}
	s.run.op++
	return true, nil
}

// lookUp launches an operation that may meet a bad id, and ends the batch.
func (s *stream) lookUp(f *launchBatch, op []tensorops.Op) error {
	d := s.dev.driver
	if err := d.Clear(s.fault, faultBytes/4, s.handle); err != nil {
		return err
	}
	if _, err := s.exec.do(op); err != nil {
		return err
	}
	if err := d.CopyOut(f.fault[faultWord:faultWord+8], s.fault, s.handle); err != nil {
		return err
	}
	f.checked = &op[0]
	s.run.op++
	return nil
}

// upload launches a copy from host memory, as far as the batch's staging goes.
func (s *stream) upload(f *launchBatch, to tensorops.Tensor, from []byte) (whole bool, err error) {
	if locked.has(from) { // it stays untouched until the list is complete
		return true, s.copies.in(f, driver.Address(address(to)), from)
	}
	r := &s.run
	for r.offset < len(from) {
		piece, err := f.staging.take(len(from) - r.offset)
		if len(piece) == 0 {
			return false, err
		}
		copy(piece, from[r.offset:])
		if err := s.copies.in(f, driver.Address(address(to)+uint64(r.offset)), piece); err != nil {
			return false, err
		}
		r.offset += len(piece)
	}
	r.offset = 0
	return true, nil
}

// fetch launches a copy to host memory, as far as the batch's staging goes.
func (s *stream) fetch(f *launchBatch, to []byte, from tensorops.Tensor) (whole bool, err error) {
	if locked.has(to) {
		return true, s.copies.out(f, to, driver.Address(address(from)))
	}
	r := &s.run
	for r.offset < len(to) {
		piece, err := f.staging.take(len(to) - r.offset)
		if len(piece) == 0 {
			return false, err
		}
		if err := s.copies.out(f, piece, driver.Address(address(from)+uint64(r.offset))); err != nil {
			return false, err
		}
		f.fetches = append(f.fetches, delivery{to[r.offset:][:len(piece)], piece})
		r.offset += len(piece)
	}
	r.offset = 0
	return true, nil
}
