package main

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/stages"
)

// skipKinds are the ways to combine an image on the way up with the image of the same level on the
// way down.
var skipKinds = []string{"concat", "add", "none"}

// unet is a U-Net (Ronneberger et al. 2015). On the way down it halves the image model.layers times
// and doubles the channels each time, starting with model.hidden. On the way up, each level also
// takes the image of the same level on the way down. model.options says how: "skips=concat", the
// default, "skips=add" or "skips=none".
func unet(g *stages.Graph, c stages.Config) error {
	side, err := imageSide(c)
	if err != nil {
		return err
	}
	skips, err := skipKind(c.Options)
	if err != nil {
		return err
	}
	width := c.Hidden
	x := []stages.Value{g.Input("x")}
	conv := func(name string, stride, out int, in ...int) {
		x = g.Add(name, &conv{side: side, stride: stride, in: in, out: out}, x...)
	}
	conv("first", 1, width, 1)
	var down []stages.Value
	for i := range c.Layers {
		conv(fmt.Sprintf("down.%d", i), 1, width, width)
		down = append(down, x...)
		side /= 2
		conv(fmt.Sprintf("half.%d", i), 2, 2*width, width)
		width *= 2
	}
	conv("bottom", 1, width, width)
	for i := c.Layers - 1; i >= 0; i-- {
		side *= 2
		x = g.Add(fmt.Sprintf("twice.%d", i), &twice{side: side}, x...)
		conv(fmt.Sprintf("up.%d", i), 1, width/2, width)
		width /= 2
		in := []int{width}
		switch skips {
		case "concat":
			x, in = append(x, down[i]), append(in, width)
		case "add":
			x = g.Add(fmt.Sprintf("add.%d", i), add{}, append(x, down[i])...)
		}
		conv(fmt.Sprintf("join.%d", i), 1, width, in...)
	}
	x = g.Add("output", stages.NewDense(width, 1, "", 0), x...)
	g.Loss("loss", stages.NewMSE("y"), x...)
	return nil
}

// imageSide returns the side of the images, which must be square, have one channel, and be large
// enough.
func imageSide(c stages.Config) (int, error) {
	x, err := c.Field("x")
	if err != nil {
		return 0, err
	}
	if len(x.Shape) != 3 || x.Shape[0] != x.Shape[1] || x.Shape[2] != 1 {
		return 0, fmt.Errorf("%w: field x has shape %v, but the model takes square images of one channel", stages.ErrModel, x.Shape)
	}
	side := x.Shape[0]
	if levels := c.Layers; levels > 16 || side%(1<<levels) != 0 {
		return 0, fmt.Errorf("%w: images of %d×%d cannot be halved %d times: lower model.layers", stages.ErrModel, side, side, levels)
	}
	return side, nil
}

func skipKind(options []string) (string, error) {
	kind := skipKinds[0]
	for _, o := range options {
		i := slices.IndexFunc(skipKinds, func(k string) bool { return o == "skips="+k })
		if i < 0 {
			return "", fmt.Errorf("%w: unknown option %q in model.options: use skips= with one of %q", stages.ErrModel, o, skipKinds)
		}
		kind = skipKinds[i]
	}
	return kind, nil
}
