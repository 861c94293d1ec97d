// Command encoder-decoder trains a transformer with an encoder and a decoder of different lengths
// (Vaswani et al. 2017). It learns to write numbers in digits that it reads in words.
//
//	go run ./examples/encoder-decoder plan examples/encoder-decoder/config.toml
//	go run ./examples/encoder-decoder run examples/encoder-decoder/config.toml
//
// model.go connects the layers; the layers are in embed.go, attend.go and feed.go, the numbers in
// data.go. It has engine's whole command line.
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
	stages.RegisterFamily("encoder-decoder", encoderDecoder)
	samples.Register("numbers", openNumbers)
}
