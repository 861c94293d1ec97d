// Command skip trains a small U-Net, a network with skip connections, to remove noise from images
// of handwritten digits.
//
//	go run ./examples/skip plan examples/skip/config.toml
//	go run ./examples/skip run examples/skip/config.toml
//	go run ./examples/skip run examples/skip/config.toml --set 'model.options=["skips=none"]' --set run.out=runs/no-skips
//
// Its layers are in conv.go and image.go; unet.go connects them; the images are in data.go. It has
// engine's whole command line.
package main

import (
	"github.com/troupe-ml/troupe/cli"
	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/stages"
)

func main() {
	register()
	cli.Main()
}

func register() {
	stages.RegisterFamily("unet", unet)
	samples.Register("noisy-images", noisyImages)
}
