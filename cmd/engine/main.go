// Command engine trains neural networks in pipeline stages that are actors, and
// uses what it has trained: `engine help` lists its commands, `engine help
// exit-codes` what its exit status means.
//
// All of it is package cli.
package main

import "github.com/troupe-ml/troupe/cli"

func main() { cli.Main() }
