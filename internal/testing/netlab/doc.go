// Package netlab creates small networks on one machine. Tests run processes in them with their own addresses, and
// with delay, loss, limited rate and partitions. Only tests may import it.
//
//	lab := netlab.New(t, "a", "b")
//	lab.SetLink("a", netlab.Link{Delay: time.Millisecond, LossPercent: 1, BitsPerSecond: 100e6})
//	server := lab.Command(ctx, "a", "engine", "serve", "--listen", lab.Address("a")+":7000")
//	conn, err := lab.Dial(ctx, "b", "tcp", lab.Address("a")+":7000")
//	lab.Partition([]string{"a"}, []string{"b"})
//	lab.Heal()
//
// Each host is a Linux network namespace with one device, eth0, whose tun file this process holds. One goroutine, the
// forwarder, reads the packets of all hosts and passes each to its destination. So the network between hosts is a
// switch written in Go (fabric.go), which needs no qdisc, firewall, kernel bridge or tool. Each host has a link to
// the switch. A packet from a to b goes through the link of a and then that of b, so their delays add up.
//
// A lab leaves nothing behind, even if its process is killed: namespaces have no names and devices are not
// persistent, so the kernel removes both with their process, and kills the commands that run in them. To inspect a
// host during a test, run nsenter --net=PATH ip addr with the result of Lab.Path.
//
// A lab needs /dev/net/tun, and root or a user namespace with root's rights (unshare --user --map-root-user --net go
// test), in which it is more sensitive to load. Tests with a lab run only with TROUPE_NETLAB=1, which make check-net
// sets.
//
// Limits: IPv4 only, no names (use Lab.Address), no broadcast or multicast, no access to other networks. The
// forwarder runs in the process of the test and shares its processors, so under load packets come later than the link
// says, never earlier. On 2 cores it carries 2 Gbit/s and more of TCP without delay, and about 1 Gbit/s with 1 ms, of
// which a rate of 1 Gbit/s leaves 0.8 to 0.95; a round trip of 1 ms each way takes 0.1 ms longer than 2 ms (go test
// -run '^$' -bench Net). Rates up to 500 Mbit/s are therefore kept well.
//
// TCP in a host uses cubic if the machine allows namespaces to select it, else reno, never the machine's default.
//
// The package must not depend on the programs in its hosts.
package netlab
