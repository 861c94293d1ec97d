package lane

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region has slots, and after them a page with each slot's state. The sender takes a free slot, fills it and names it
// in a frame. The receiver copies the payload out, or uses it in place (Loan), and frees the slot.
const (
	sharedSlots  = LimitSharedBytes / LimitPiece
	sharedStates = sharedSlots * LimitPiece // where the states begin
	sharedBytes  = sharedStates + 4096
	// stateStride keeps the states in separate cache lines, because two processes write them.
	stateStride = 64

	slotFree = 0
	slotFull = 1

	// offerPrefix begins the name of every socket that passes a region: an abstract socket, which is in no file system.
	offerPrefix = "@troupe-lane-"
	// offerTimeout bounds the exchange over the socket.
	offerTimeout = 2 * time.Second
	sharedSeals  = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// region is the shared memory of one stream, mapped.
type region struct {
	all    []byte // the whole mapping, which contains memory
	memory []byte
	kept   keepers
	used   [sharedStates / hugePage]int // sender only: bytes copied to each huge page's place, until it becomes one
}

func mapRegion(fd int) (*region, error) {
	all, memory, err := mapShared(fd, sharedBytes)
	if err != nil {
		return nil, err
	}
	return &region{all: all, memory: memory}, nil
}

// close unmaps the region as soon as no slot of it is kept any more.
func (r *region) close() {
	if r.kept.close() {
		r.unmap()
	}
}

func (r *region) unmap() { _ = unix.Munmap(r.all) }

func (*region) slots() int { return sharedSlots }

func (r *region) state(slot int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.memory[sharedStates+slot*stateStride]))
}

// take returns the lowest free slot, so that few slots stay in the caches and memory is used only when needed.
func (r *region) take() (int, bool) {
	for slot := range sharedSlots {
		if s := r.state(slot); s.Load() == slotFree {
			s.Store(slotFull)
			return slot, true
		}
	}
	return 0, false
}

// free marks a slot as free.
func (r *region) free(slot int) { r.state(slot).Store(slotFree) }

// slot returns the first n bytes of a slot.
func (r *region) slot(slot, n int) []byte {
	return r.memory[slot*LimitPiece:][:n:n]
}

// fill copies slices into a slot.
func (r *region) fill(slot int, list [][]byte) {
	to := r.slot(slot, LimitPiece)
	for _, b := range list {
		to = to[copy(to, b):]
	}
	r.collapse(slot, LimitPiece-len(to))
}

// offer is a region that waits at a socket for the other end of a stream. A process on another host, or in another
// network namespace, can't find it.
type offer struct {
	name  string
	nonce [nonceBytes]byte
	fd    int
	l     *net.UnixListener
	given chan error // receives one value and is closed: nil if the descriptor was passed
	own   *region    // nil: the stream has it
}

// newOffer makes a region and a socket for it; nil: the peer can't be on this host, or the system refuses.
func newOffer(conn net.Conn) *offer {
	if !perhapsLocal(conn) {
		return nil
	}
	fd, err := unix.MemfdCreate("troupe-lane", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil
	}
	o := &offer{fd: fd, given: make(chan error, 1)}
	if unix.Ftruncate(fd, sharedBytes) != nil {
		o.close()
		return nil
	}
	if o.own, err = mapRegion(fd); err != nil {
		o.close()
		return nil
	}
	// The receiver requires the seals: if the file were truncated, reading its memory would be a fault.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sharedSeals); err != nil {
		o.close()
		return nil
	}
	var random [nonceBytes]byte
	_, _ = rand.Read(random[:])
	_, _ = rand.Read(o.nonce[:])
	o.name = offerPrefix + hex.EncodeToString(random[:])
	if o.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: o.name, Net: "unix"}); err != nil {
		o.close()
		return nil
	}
	_ = o.l.SetDeadline(time.Now().Add(handshakeTimeout))
	go o.serve() // ends with close
	return o
}

// perhapsLocal reports whether the peer may be on this host, by comparing the addresses of both ends. If it is wrong,
// the peer can't get the descriptor, and the stream carries the payload.
func perhapsLocal(conn net.Conn) bool {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn()
	}
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return true
	}
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && (remote.IP.IsLoopback() || remote.IP.Equal(local.IP))
}

// serve passes the descriptor to the first process that knows the nonce and runs as the same user.
func (o *offer) serve() {
	defer close(o.given)
	for {
		conn, err := o.l.AcceptUnix()
		if err != nil {
			o.given <- err
			return
		}
		_ = conn.SetDeadline(time.Now().Add(offerTimeout))
		err = o.give(conn)
		_ = conn.Close()
		if err == nil {
			o.given <- nil
			return
		}
	}
}

func (o *offer) give(conn *net.UnixConn) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	var nonce [nonceBytes]byte
	if _, err := io.ReadFull(conn, nonce[:]); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(nonce[:], o.nonce[:]) != 1 {
		return errors.New("lane: wrong nonce")
	}
	_, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(o.fd), nil)
	return err
}

// sameUser checks that the other end of a socket runs as the same user.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return err
	}
	if own := unix.Getuid(); int(cred.Uid) != own {
		return fmt.Errorf("lane: shared memory belongs to user %d, but user %d requested it", own, cred.Uid)
	}
	return nil
}

// accepted returns the region after the peer has accepted it.
func (o *offer) accepted() (*region, error) {
	if err := <-o.given; err != nil {
		return nil, err
	}
	r := o.own
	o.own = nil
	return r, nil
}

func (o *offer) close() {
	if o.l != nil {
		_ = o.l.Close()
		for range o.given { // serve uses the descriptor
		}
	}
	if o.own != nil {
		o.own.close()
	}
	_ = unix.Close(o.fd)
}

// mapOffer fetches the region that a hello offers.
func mapOffer(name string, nonce [nonceBytes]byte) (*region, error) {
	// Only sockets of this package: a hello must not make this process connect to other services.
	if !strings.HasPrefix(name, offerPrefix) {
		return nil, fmt.Errorf("%w: the socket for shared memory is %q; want %s…", errFrame, name, offerPrefix)
	}
	c, err := net.DialTimeout("unix", name, offerTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	conn := c.(*net.UnixConn)
	_ = conn.SetDeadline(time.Now().Add(offerTimeout))
	if err := sameUser(conn); err != nil {
		return nil, err
	}
	if _, err := conn.Write(nonce[:]); err != nil {
		return nil, err
	}
	fd, err := receiveFD(conn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := checkRegion(fd); err != nil {
		return nil, err
	}
	return mapRegion(fd)
}

func receiveFD(conn *net.UnixConn) (int, error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b[:], oob)
	if err != nil || n == 0 {
		return -1, fmt.Errorf("receive shared memory: %d bytes: %w", n, errors.Join(err, errFrame))
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	for k := range messages {
		if fds, err := unix.ParseUnixRights(&messages[k]); err == nil && len(fds) == 1 {
			unix.CloseOnExec(fds[0])
			return fds[0], nil
		}
	}
	return -1, fmt.Errorf("%w: the descriptor of the shared memory is missing", errFrame)
}

// checkRegion checks that a descriptor is that of a region whose size can't change.
func checkRegion(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("read the seals of the shared memory: %w", err)
	}
	if stat.Size != sharedBytes || seals&sharedSeals != sharedSeals {
		return fmt.Errorf("%w: the shared memory has %d bytes and seals %#x; want %d bytes and %#x", errFrame, stat.Size, seals, sharedBytes,
			sharedSeals)
	}
	return nil
}
