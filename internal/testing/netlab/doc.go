// Package netlab makes small networks on one machine, in which tests run processes that
// have addresses of their own, with delay, loss, a rate, and partitions. It is for tests
// alone: no program may import it.
//
//	lab := netlab.New(t, "a", "b")
//	lab.SetLink("a", netlab.Link{Delay: time.Millisecond, LossPercent: 1, BitsPerSecond: 100e6})
//	server := lab.Command(ctx, "a", "engine", "serve", "--listen", lab.Address("a")+":7000")
//	conn, err := lab.Dial(ctx, "b", "tcp", lab.Address("a")+":7000")
//	lab.Partition([]string{"a"}, []string{"b"})
//	lab.Heal()
//
// Each host is a Linux network namespace with one device, eth0. Behind every device is a
// tun file that this process holds. One goroutine, the forwarder, reads the packets of all
// hosts and hands each to the host that it is for. So the network between the hosts is a
// switch in Go (fabric.go), and needs no qdisc, no firewall and no bridge of the kernel, and
// no tool. Every host hangs on the switch by a cable, its link. A packet from a to b goes
// through the link of a, then through that of b, so their delays add up.
//
// Nothing is left behind, not even by a process that is killed: namespaces have no names
// and devices aren't persistent, so the kernel removes both with the process that
// holds them, and it kills the commands that run in them. To look into a host while a test
// runs: nsenter --net=$(what Lab.Path prints) ip addr.
//
// A lab needs /dev/net/tun, and root or the rights of it in a user namespace (unshare --user
// --map-root-user --net go test), where busy machines disturb it more. Tests that make one run
// only with TROUPE_NETLAB=1, as make check-net sets it.
//
// The limits of it: IPv4 only, no names (use Lab.Address), no broadcast or multicast, no way
// out to other networks. The forwarder runs in the process of the test and shares its
// processors, so under load packets come later than the link says, never earlier. On 2 cores
// it carries 2 Gbit/s and more of TCP without delay, and about 1 Gbit/s with 1 ms, of which a
// rate of 1 Gbit/s leaves 0.8 to 0.95; a round trip of 1 ms each way takes 0.1 ms longer than
// 2 ms (go test -run '^$' -bench Net). Rates up to 500 Mbit/s are therefore kept well.
//
// TCP in a host is cubic where the machine lets a namespace choose it, else reno, never
// the machine's own default.
//
// The package must never know what runs in its hosts.
package netlab
