package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	device = "eth0"
	// vnetBytes is the length of the header before each packet in a tun file. It describes what the
	// kernel left out, such as checksums, and is passed on unread.
	vnetBytes  = 10
	frameBytes = vnetBytes + mtuBytes
	// threadNamespace is the file of the network namespace of the thread that opens it.
	threadNamespace = "/proc/thread-self/ns/net"
)

// node is a host: a namespace and the tun file behind its device.
type node struct {
	namespace int // file descriptors
	tun       int
	id        string // the namespace's name in /proc/PID/ns/net
}

// newNode makes the host with the given index.
func newNode(index int) (n *node, err error) {
	n = &node{namespace: -1, tun: -1}
	defer func() {
		if err != nil {
			n.close()
			n = nil
		}
	}()
	if n.namespace, err = newNamespace(); err != nil {
		return n, err
	}
	if n.id, err = os.Readlink(n.path()); err != nil {
		return n, err
	}
	return n, n.do(func() error {
		if n.tun, err = openTun(); err != nil {
			return err
		}
		if err := chooseCongestionControl(); err != nil {
			return err
		}
		return configure(netip.MustParseAddr(address(index)))
	})
}

// newNamespace makes a network namespace and returns a file descriptor that keeps it.
func newNamespace() (int, error) {
	namespace := -1
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return nil
	}, func() (err error) {
		namespace, err = unix.Open(threadNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return namespace, err
}

// do calls f on a thread in the namespace.
func (n *node) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.namespace, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return nil
	}, f)
}

// onThread calls f on a thread whose network namespace enter has changed, and then returns the thread to
// its former namespace.
func onThread(enter, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open(threadNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = unix.Close(home) }()
	err = unix.Setns(home, unix.CLONE_NEWNET) // checks that the thread may return here
	if err != nil {
		err = fmt.Errorf("change network namespaces (needs root, or unshare --user --map-root-user --net): %w", err)
	} else {
		err = enter()
	}
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			// Goroutines that run on this thread later would be in the wrong network.
			panic(fmt.Sprintf("netlab: can't leave a network namespace: %v", err))
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// openTun makes the device in the thread's namespace.
func openTun() (int, error) {
	const file = "/dev/net/tun"
	tun, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", file, err)
	}
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(tun, unix.TUNSETIFF, request)
	}
	if err == nil {
		// No checksums within one machine. Packets aren't merged, because each is lost or delayed
		// separately.
		err = unix.IoctlSetInt(tun, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM)
	}
	if err != nil {
		_ = unix.Close(tun)
		return -1, fmt.Errorf("make a tun device: %w", err)
	}
	return tun, nil
}

// configure gives the devices of the thread's namespace their address and sets them up.
func configure(addr netip.Addr) error {
	return withSocket(func(socket int) error {
		for _, step := range []struct {
			request uint
			set     func(*unix.Ifreq) error
		}{
			{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtuBytes); return nil }},
			{unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(devicePackets); return nil }},
			{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr.AsSlice()) }},
			{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		} {
			request, err := unix.NewIfreq(device)
			if err == nil {
				err = step.set(request)
			}
			if err == nil {
				err = unix.IoctlIfreq(socket, step.request, request)
			}
			if step.request == unix.SIOCSIFTXQLEN && errors.Is(err, unix.EPERM) {
				continue // a user namespace keeps the kernel's default, 500 packets
			}
			if err != nil {
				return fmt.Errorf("configure %s (ioctl %#x): %w", device, step.request, err)
			}
		}
		return errors.Join(setFlag(socket, "lo", true), setFlag(socket, device, true))
	})
}

// chooseCongestionControl makes TCP in the thread's namespace lower its rate when packets are lost, as
// on most machines. By default a namespace uses the machine's setting; BBR, for example, continues for
// seconds with a link's delay from before a change. It chooses cubic if the machine allows namespaces to
// use it, otherwise reno, which is always allowed.
func chooseCongestionControl() error {
	const file = "/proc/sys/net/ipv4/tcp_congestion_control"
	if os.WriteFile(file, []byte("cubic"), 0) == nil {
		return nil
	}
	return os.WriteFile(file, []byte("reno"), 0)
}

func (n *node) setUp(up bool) error {
	return n.do(func() error {
		return withSocket(func(socket int) error { return setFlag(socket, device, up) })
	})
}

// withSocket calls f with a socket in the thread's namespace, for requests about devices.
func withSocket(f func(socket int) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	return f(socket)
}

func setFlag(socket int, device string, up bool) error {
	request, err := unix.NewIfreq(device)
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request)
	}
	if err == nil {
		flags := request.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		request.SetUint16(flags)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
	}
	if err != nil {
		return fmt.Errorf("set %s up or down: %w", device, err)
	}
	return nil
}

func (n *node) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.namespace)
}

// killAll kills the processes in the namespace, and returns how many there were.
func (n *node) killAll() (killed int, err error) {
	seen := make(map[int]bool)
	for range killRounds {
		found := processesIn(n.id)
		if len(found) == 0 {
			return len(seen), nil
		}
		for _, pid := range found {
			seen[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		time.Sleep(10 * time.Millisecond) // until the kernel has ended them, which can't be waited for
	}
	return len(seen), fmt.Errorf("processes %v still run after SIGKILL", processesIn(n.id))
}

// processesIn returns the processes in a network namespace, except this one.
func processesIn(namespace string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is valid
	var found []int
	for _, file := range files {
		in, err := os.Readlink(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		if err == nil && in == namespace && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}

// close removes the device, and the namespace once no socket of it is open.
func (n *node) close() {
	for _, file := range []int{n.tun, n.namespace} {
		if file >= 0 {
			_ = unix.Close(file)
		}
	}
	n.tun, n.namespace = -1, -1
}
