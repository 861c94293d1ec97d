// Command custom-layer is engine with an additional layer, "gated", which model.stack may name:
//
//	go run ./examples/custom-layer run examples/custom-layer/config.toml
//
// It has engine's whole command line; start its workers with the same binary. gated.go has the
// layer. main_test.go checks its gradients and trains it in several layouts.
package main

import (
	"github.com/troupe-ml/troupe/cli"
	"github.com/troupe-ml/troupe/stages"
)

func main() {
	stages.RegisterLayer("gated", newGated)
	cli.Main()
}
