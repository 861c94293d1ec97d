// Package discovery finds a cluster's coordinator by something other than its address: by
// names, or by a service that knows where it is now. Workers and operators look it up again
// whenever they dial, so that a coordinator that comes back elsewhere is found.
//
// Each way has a scheme, and a package that registers it when it is imported:
//
//	import _ "github.com/troupe-ml/troupe/cluster/discovery/dns"  // dns://NAME:PORT, dns+srv://NAME
//	import _ "github.com/troupe-ml/troupe/cluster/discovery/etcd" // etcd://HOST:PORT,HOST:PORT/PREFIX
//
// cmd/engine has both; a program of one's own imports those that it wants, or registers its
// own (Register). What is found is tried in order until a process proves, by its certificate,
// that it is the coordinator of the right authority: who can change what is found can keep
// processes from finding the coordinator, and no more.
//
// It is no membership, and no failure detector: who is in the cluster, and who is alive, the
// coordinator knows from beats, and from nothing else. Two judges of the same death would
// disagree at some time, and a run would lose a worker that computes, or wait for one that
// does not. So nothing here is asked while connections hold, and a service that is down does
// not disturb a cluster that runs.
//
// The package must never know tokens and certificates.
package discovery
