package netlab

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// forwarder carries the packets between the devices of a lab and its fabric.
type forwarder struct {
	lab   *Lab
	event int           // an eventfd: something has changed
	quit  chan struct{} // closed to end it
	ended chan struct{}
	err   error // valid after ended is closed
}

const (
	// timerSlackNanoseconds is how long the kernel may delay the forwarder's timer; the default is
	// 50 µs.
	timerSlackNanoseconds = 1000
	// niceness of the forwarder: the highest priority.
	niceness = -20
)

func startForwarder(l *Lab) (*forwarder, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	f := &forwarder{lab: l, event: event, quit: make(chan struct{}), ended: make(chan struct{})}
	go f.run() // ends with stop
	return f, nil
}

func (f *forwarder) stop() error {
	close(f.quit)
	f.wake()
	<-f.ended
	_ = unix.Close(f.event)
	return f.err
}

// wake makes the forwarder check the fabric again.
func (f *forwarder) wake() {
	_, _ = unix.Write(f.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // if the eventfd is full, the forwarder is awake
}

// run waits in ppoll, because Go's timers are up to a millisecond late. It locks its thread, which has
// the timer slack and the priority. Both keep packets in time among busy programs; run continues
// without them if it can't set them.
func (f *forwarder) run() {
	defer close(f.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackNanoseconds, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0 is the default
	if code, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-code) }() // the system call encodes the priority
	}

	nodes := f.lab.nodes
	files := make([]unix.PollFd, len(nodes)+1)
	for i, n := range nodes {
		files[i] = unix.PollFd{Fd: int32(n.tun), Events: unix.POLLIN}
	}
	files[len(nodes)] = unix.PollFd{Fd: int32(f.event), Events: unix.POLLIN}
	buffer := make([]byte, frameBytes)
	for {
		if _, err := unix.Ppoll(files, f.deliver(), nil); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			f.err = fmt.Errorf("netlab: wait for packets: %w", err)
			return
		}
		if files[len(nodes)].Revents != 0 {
			_, _ = unix.Read(f.event, make([]byte, 8))
			select {
			case <-f.quit:
				return
			default:
			}
		}
		for i := range nodes {
			if files[i].Revents == 0 {
				continue
			}
			if err := f.take(i, buffer); err != nil {
				f.err = fmt.Errorf("netlab: read the packets of host %s: %w", f.lab.hosts[i], err)
				return
			}
		}
	}
}

// deliver delivers the packets that are due, and returns the time until the next one; nil: none waits.
func (f *forwarder) deliver() *unix.Timespec {
	l := f.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		now := l.now()
		to, frame, ok := l.fabric.due(now)
		if ok {
			f.write(to, frame)
			l.fabric.done(frame)
			continue
		}
		at, waiting := l.fabric.next()
		if !waiting {
			return nil
		}
		wait := unix.NsecToTimespec(max(0, at-now).Nanoseconds())
		return &wait
	}
}

// take reads packets from a host.
func (f *forwarder) take(from int, buffer []byte) error {
	l := f.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	for range readsInRow {
		n, err := unix.Read(l.nodes[from].tun, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n < vnetBytes:
			continue
		}
		packet := buffer[vnetBytes:n]
		to, ok := destination(packet)
		if !ok || to >= len(l.nodes) {
			continue // from the kernel, such as IPv6, or to an address that no host has
		}
		if l.fabric.send(l.now(), from, to, buffer[:n], len(packet)) {
			f.write(to, buffer[:n])
		}
	}
	return nil
}

// write delivers a packet to its receiver. It counts a packet as refused if the receiver's device is down.
func (f *forwarder) write(to int, frame []byte) {
	for {
		_, err := unix.Write(f.lab.nodes[to].tun, frame)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			counts := &f.lab.fabric.ports[to].counts
			counts.Received--
			counts.Refused++
		}
		return
	}
}
