// Command engine trains neural networks in pipeline stages that are actors, and runs the trained
// models. `engine help` lists its commands, `engine help exit-codes` explains its exit status.
//
// The code is in package cli.
package main

import (
	"github.com/troupe-ml/troupe/cli"

	// The discovery schemes of --join and --cluster. A custom program imports the ones that it needs.
	_ "github.com/troupe-ml/troupe/cluster/discovery/dns"
	_ "github.com/troupe-ml/troupe/cluster/discovery/etcd"
)

func main() { cli.Main() }
