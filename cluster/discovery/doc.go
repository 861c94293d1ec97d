// Package discovery finds a cluster's coordinator when its address can change: through DNS names, or
// through a service that stores the current address. Workers and operators look it up each time they
// dial, so they find a coordinator that restarts at another address.
//
// Each method has a URL scheme, and a package that registers the scheme when it is imported:
//
//	import _ "github.com/troupe-ml/troupe/cluster/discovery/dns"  // dns://NAME:PORT, dns+srv://NAME
//	import _ "github.com/troupe-ml/troupe/cluster/discovery/etcd" // etcd://HOST:PORT,HOST:PORT/PREFIX
//
// cmd/engine has both. A custom program imports those that it needs, or registers its own (Register).
// The found addresses are tried in order until a process proves, by its certificate, that it is the
// coordinator of the right authority. So someone who can change the addresses can only keep processes
// from finding the coordinator.
//
// The package is neither a membership service nor a failure detector: the coordinator knows only from
// beats which workers are in the cluster and alive. Two failure detectors would disagree at some time,
// and a run would drop a worker that computes, or wait for one that does not. So nothing is looked up
// while connections hold, and a service that is down does not disturb a running cluster.
//
// The package must never know tokens and certificates.
package discovery
