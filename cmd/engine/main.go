// Command engine trains neural networks in pipeline stages that are actors, and
// uses what it has trained: `engine help` lists its commands, `engine help
// exit-codes` what its exit status means.
//
// All of it is package cli.
package main

import (
	"github.com/troupe-ml/troupe/cli"

	// By what a coordinator is found, beside its address: a program of one's own imports what it
	// wants of these.
	_ "github.com/troupe-ml/troupe/cluster/discovery/dns"
	_ "github.com/troupe-ml/troupe/cluster/discovery/etcd"
)

func main() { cli.Main() }
