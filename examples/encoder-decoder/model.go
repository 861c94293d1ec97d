package main

import (
	"fmt"

	"github.com/troupe-ml/troupe/stages"
)

// encoderDecoder has model.layers encoder layers, which read the field "source", and the same
// number of decoder layers. The decoder gets all target tokens before a position (field "before")
// and learns the token at that position (field "after"). Each decoder layer attends to the
// encoder's output. That output travels from the first stage that uses it to the next, and so on.
//
// In a layout an encoder layer is tt, a decoder layer ttt.
func encoderDecoder(g *stages.Graph, c stages.Config) error {
	width, heads, ffn := c.Hidden, c.Heads, c.FFN
	if heads < 1 || width%heads != 0 {
		return fmt.Errorf("%w: model.hidden = %d is not a multiple of model.heads = %d", stages.ErrModel, width, heads)
	}
	embed := func(field string) ([]stages.Value, error) {
		f, err := c.Field(field)
		if err == nil && (f.Classes < 1 || len(f.Shape) != 1) {
			err = fmt.Errorf("%w: field %q has shape %v and %d classes, but the model takes a row of ids", stages.ErrModel, field, f.Shape,
				f.Classes)
		}
		return g.Embed("embed."+field, &embed{field, f.Classes, c.Context, width}), err
	}

	memory, err := embed("source")
	if err != nil {
		return err
	}
	for i := range c.Layers {
		memory = g.Add(fmt.Sprintf("encoder.%d.attend", i), &attend{width: width, heads: heads, keys: "source"}, memory...)
		memory = g.Add(fmt.Sprintf("encoder.%d.feed", i), &feed{width, ffn}, memory...)
	}
	memory = g.Add("encoder.norm", stages.NewLayerNorm(width), memory...)

	x, err := embed("before")
	if err != nil {
		return err
	}
	for i := range c.Layers {
		x = g.Add(fmt.Sprintf("decoder.%d.attend", i), &attend{width: width, heads: heads}, x...)
		x = g.Add(fmt.Sprintf("decoder.%d.look", i), &attend{width: width, heads: heads, keys: "source"}, append(x, memory...)...)
		x = g.Add(fmt.Sprintf("decoder.%d.feed", i), &feed{width, ffn}, x...)
	}
	x = g.Add("decoder.norm", stages.NewLayerNorm(width), x...)
	after, err := c.Field("after")
	if err != nil {
		return err
	}
	x = g.Add("output", stages.NewDense(width, after.Classes, "", 0), x...)
	g.Loss("loss", stages.NewCrossEntropy("after", after.Classes), x...)
	return nil
}
