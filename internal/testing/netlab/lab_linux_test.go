package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds the waits of these tests. Only a failure takes it.
const patience = 60 * time.Second

// TestNetAvailable fails if networks were requested and can't be made, so that make check-net can't pass by skipping all tests.
func TestNetAvailable(t *testing.T) {
	if os.Getenv(Variable) != "1" {
		t.Skipf("%s=1 is not set", Variable)
	}
	if err := Available(); err != nil {
		t.Fatal(err)
	}
}

// TestSkips: without a request for networks, a test with a lab is skipped and says how to run it.
func TestSkips(t *testing.T) {
	t.Setenv(Variable, "")
	skipped := false
	t.Run("lab", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		New(t, "a")
	})
	if !skipped {
		t.Error("New made a lab without being asked to")
	}
}

func listen(t testing.TB, lab *Lab, host string) net.Listener {
	t.Helper()
	listener, err := lab.Listen(host, "tcp", lab.Address(host)+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// connect makes a TCP connection from one host to another and returns both ends.
func connect(t testing.TB, lab *Lab, from, to string) (near, far net.Conn) {
	t.Helper()
	listener := listen(t, lab, to)
	accepted := make(chan net.Conn, 1)
	go func() { // ends with the connection, or with the listener
		conn, _ := listener.Accept()
		accepted <- conn
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	near, err := lab.Dial(ctx, from, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	if far = <-accepted; far == nil {
		t.Fatal("the listener accepted nothing")
	}
	t.Cleanup(func() { _ = far.Close() })
	deadline := time.Now().Add(patience)
	if err := errors.Join(near.SetDeadline(deadline), far.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// pass sends a byte through the connection.
func pass(near, far net.Conn) error {
	if _, err := near.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(far, make([]byte, 1))
	return err
}

// silent is how long a partition is watched for packets.
const silent = 300 * time.Millisecond

// hears reports whether the connection receives anything within silent.
func hears(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(silent)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection broke: %v", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestNetPingPong(t *testing.T) {
	lab := New(t, "a", "b", "c")
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}, {"c", "a"}, {"a", "a"}} {
		near, far := connect(t, lab, pair[0], pair[1])
		if host, _, _ := net.SplitHostPort(near.LocalAddr().String()); host != lab.Address(pair[0]) {
			t.Errorf("host %s has the address %s, want %s", pair[0], host, lab.Address(pair[0]))
		}
		for range 100 {
			if err := errors.Join(pass(near, far), pass(far, near)); err != nil {
				t.Fatalf("%s to %s: %v", pair[0], pair[1], err)
			}
		}
	}
	if c := lab.Counts("a"); c.Sent == 0 || c.Received == 0 || c.Lost+c.Overflowed+c.Cut+c.Refused != 0 {
		t.Errorf("counts of a: %+v", c)
	}
}

// TestNetApart: a host reaches neither this machine nor the hosts of another lab with the same
// addresses, and this machine doesn't reach it.
func TestNetApart(t *testing.T) {
	one, two := New(t, "a", "b"), New(t, "a", "b")
	listener := listen(t, one, "a")
	refused := func(dial func(ctx context.Context) (net.Conn, error)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), silent)
		defer cancel()
		if conn, err := dial(ctx); err == nil {
			_ = conn.Close()
			t.Errorf("reached %s", listener.Addr())
		}
	}
	refused(func(ctx context.Context) (net.Conn, error) {
		return two.Dial(ctx, "b", "tcp", listener.Addr().String())
	})
	refused(func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", listener.Addr().String())
	})
	here, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	refused(func(ctx context.Context) (net.Conn, error) {
		return one.Dial(ctx, "a", "tcp", here.Addr().String())
	})
	for _, lab := range []*Lab{one, two} {
		near, far := connect(t, lab, "a", "b")
		if err := pass(near, far); err != nil {
			t.Error(err)
		}
	}
}

func TestNetPartition(t *testing.T) {
	lab := New(t, "a", "b", "c")
	near, far := connect(t, lab, "a", "b")
	for _, part := range []struct {
		name string
		cut  func()
		also bool // a reaches c
	}{
		{"groups", func() { lab.Partition([]string{"a", "c"}, []string{"b"}) }, true},
		{"rest", func() { lab.Partition([]string{"b"}) }, true},
		{"alone", func() { lab.Partition([]string{"a"}) }, false},
		{"one way", func() { lab.Cut("a", "b") }, true},
		{"other way", func() { lab.Cut("b", "a") }, true},
	} {
		t.Run(part.name, func(t *testing.T) {
			if err := pass(near, far); err != nil {
				t.Fatal(err)
			}
			part.cut()
			if part.name == "other way" {
				if err := pass(near, far); err != nil {
					t.Errorf("a to b, when b to a is cut: %v", err)
				}
				near, far := far, near
				if _, err := near.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				if hears(t, far) {
					t.Error("a hears b")
				}
				lab.Heal()
				if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := near.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if hears(t, far) {
				t.Error("b hears a")
			}
			if part.also {
				if err := pass(connect(t, lab, "a", "c")); err != nil {
					t.Errorf("a to c: %v", err)
				}
			}
			lab.Heal()
			if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
				t.Errorf("after Heal: %v", err)
			}
		})
	}
	if c := lab.Counts("a"); c.Cut == 0 {
		t.Errorf("counts of a: %+v", c)
	}
}

// TestNetPartitionInFlight: packets in flight when a partition begins don't arrive.
func TestNetPartitionInFlight(t *testing.T) {
	lab := New(t, "a", "b")
	conn, err := lab.ListenPacket("b", "udp", lab.Address("b")+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sender, err := lab.Dial(t.Context(), "a", "udp", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	lab.SetLink("a", Link{Delay: time.Minute})
	if _, err := sender.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); lab.Counts("a").Sent == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the packet was not sent")
		}
	}
	lab.Partition([]string{"a"})
	lab.SetLink("a", Link{}) // the delay is over
	for deadline := time.Now().Add(patience); lab.Counts("a").Cut == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the packet was not dropped: %+v", lab.Counts("a"))
		}
	}
}

// TestNetLinkDown: a program sees that its link is down, and its connections continue when the link is back.
func TestNetLinkDown(t *testing.T) {
	lab := New(t, "a", "b")
	near, far := connect(t, lab, "a", "b")
	listener := listen(t, lab, "b")
	lab.LinkDown("a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if conn, err := lab.Dial(ctx, "a", "tcp", listener.Addr().String()); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("dial with the link down: %v, %v, want %v", conn, err, syscall.ENETUNREACH)
	}
	if _, err := far.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if hears(t, near) {
		t.Error("a hears b")
	}
	lab.LinkUp("a")
	if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
		t.Errorf("after LinkUp: %v", err)
	}
	if err := pass(near, far); err != nil {
		t.Errorf("after LinkUp: %v", err)
	}
}

// echo starts a program in the host that echoes, and returns its command and address.
func echo(t *testing.T, lab *Lab, host string) (pid int, address string) {
	t.Helper()
	cmd := lab.Command(t.Context(), host, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=echo", "ECHO_ADDRESS="+lab.Address(host)+":0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, strings.TrimSpace(line)
}

// TestNetCommand: programs run in their hosts, with their own process ids, arguments, folder and limit of open files.
func TestNetCommand(t *testing.T) {
	lab := New(t, "a", "b")
	pid, server := echo(t, lab, "a")
	if found := processesIn(lab.nodes[0].id); len(found) != 1 || found[0] != pid {
		t.Errorf("processes in a: %v, want %d", found, pid)
	}
	conn, err := lab.Dial(t.Context(), "b", "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := pass(conn, conn); err != nil {
		t.Error(err)
	}

	cmd := lab.Command(t.Context(), "b", "sh", "-c", `echo "$1|$PWD|$X"; exit 3`, "sh", "an argument")
	cmd.Dir, cmd.Env = "/", []string{"X=y"}
	out, err := cmd.Output()
	if got, want := string(out), "an argument|/|y\n"; got != want || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the program wrote %q and ended with %v, want %q and 3", got, err, want)
	}
	if err := lab.Command(t.Context(), "b", "there-is-no-such-program").Run(); err == nil {
		t.Error("a program that there isn't ran")
	}
}

// TestNetLeavesNothing: when a lab ends, so do its programs, its namespaces and its devices.
func TestNetLeavesNothing(t *testing.T) {
	before := interfaces(t)
	var namespaces []string
	t.Run("lab", func(t *testing.T) {
		lab := New(t, "a", "b")
		for _, n := range lab.nodes {
			namespaces = append(namespaces, n.id)
		}
		if len(holders(t, lab.nodes[0].id)) == 0 {
			t.Error("nobody holds the namespace of a lab that exists: the test is wrong")
		}
		cmd := lab.Command(t.Context(), "a", "sh", "-c", "sleep 3600 & echo started; wait")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.close(); err != nil { // and again when the test ends
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the program ended well, want it killed")
		}
	})
	for _, namespace := range namespaces {
		if left := holders(t, namespace); len(left) != 0 {
			t.Errorf("%s is still held by %v", namespace, left)
		}
	}
	if after := interfaces(t); after != before {
		t.Errorf("devices of this machine: %s, before %s", after, before)
	}
}

// TestNetKilled: a killed process leaves no program and no namespace of its lab.
func TestNetKilled(t *testing.T) {
	New(t, "a") // skips
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=abandon")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var namespaces [2]string
	var pid int
	_, err = fmt.Fscan(out, &namespaces[0], &namespaces[1], &pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for _, namespace := range namespaces {
		for left := holders(t, namespace); len(left) != 0; left = holders(t, namespace) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is still held by %v", namespace, left)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// holders returns the processes that are in the namespace or have it open or mounted.
func holders(t *testing.T, namespace string) (found []string) {
	t.Helper()
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && to == namespace {
				found = append(found, file)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), namespace) {
		found = append(found, "a mount")
	}
	return found
}

func interfaces(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}
