package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// ReadModel returns the shape of a checkpoint's model. Its context is that of the run, which may be shorter than the
// model's: the losses belong to it.
func ReadModel(c *checkpoint.Checkpoint) (stages.Config, error) {
	b, err := c.File(rundir.ModelFile)
	if err != nil {
		return stages.Config{}, err
	}
	m, err := stages.ParseHF(b)
	if err != nil || c.Manifest == nil {
		return m, err
	}
	text, err := c.File(rundir.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	run, err := config.ParseStored(rundir.ConfigFile, text)
	if err != nil {
		return m, fmt.Errorf("the run's configuration: %w", err)
	}
	if !m.Language() {
		return m, nil
	}
	m.Context, m.MaxPositions = run.Model.Context, m.Positions()
	return m, m.Validate()
}

// find returns a tensor of a checkpoint that has a parameter, or a part of its optimizer state. It must have the model's shape.
// GPT-2's published files leave out a prefix of the names.
func find(c *checkpoint.Checkpoint, stored stages.StoredPart, part string) (from *checkpoint.Tensors, name string, err error) {
	from, name = c.Model(), stored.Name
	if part != "" {
		from, name = c.Optimizer(), part+"."+name
	}
	info, name, err := named(c, from, name)
	switch {
	case err != nil:
		return nil, "", err
	case !slices.Equal(info.Shape, stored.Shape):
		return nil, "", fmt.Errorf("%s: tensor %q has shape %d, but the model needs %d", from.Path(name), name, info.Shape, stored.Shape)
	case part != "" && info.DType == codes: // findScales checks the rest
	case !slices.Contains([]string{"F32", "F16", "BF16"}, info.DType):
		return nil, "", fmt.Errorf("%s: tensor %q has type %s; only F32, F16 and BF16 are supported", from.Path(name), name, info.DType)
	}
	return from, name, nil
}

// named returns a tensor under one of its names, and that name.
func named(c *checkpoint.Checkpoint, from *checkpoint.Tensors, name string) (info safetensors.Info, found string, err error) {
	info, ok := from.Info(name)
	found = name
	for _, other := range otherNames(name) {
		if its, both := from.Info(other); both && ok {
			return info, "", fmt.Errorf("%s: tensors %q and %q are two names of one tensor; remove one", c.Dir(), name, other)
		} else if both {
			info, ok, found = its, true, other
		}
	}
	if !ok {
		return info, "", fmt.Errorf("%s: tensor %q is missing", c.Dir(), name)
	}
	return info, found, nil
}

// gpt2Prefix is what GPT-2's published files leave out of their tensors' names.
const gpt2Prefix = "transformer."

// otherNames returns the other names under which published files have a tensor. A model for images and text has those
// of its text part under a prefix, which depends on the release of transformers.
func otherNames(name string) []string {
	const text = "language_model."
	if short, ok := strings.CutPrefix(name, gpt2Prefix); ok {
		return []string{short}
	}
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return []string{text + name, "model." + text + rest}
	}
	return []string{text + name}
}

// StateParts returns the names of the parts of the optimizer's state that a parameter must have; nil: none must have any.
type StateParts func(*stages.Param) []string

// of returns "", which is the weight, and the names of the parts.
func (s StateParts) of(p *stages.Param) []string {
	if s == nil || p.Frozen {
		return []string{""}
	}
	return append([]string{""}, s(p)...)
}

// CheckWeights makes sure that a checkpoint has a model's weights and no others, and
// parts of the optimizer's state, before anything is allocated or changed for them. The parameters of an adapter are left out:
// see CheckAdapter.
func CheckWeights(c *checkpoint.Checkpoint, m *stages.Model, parts StateParts) error {
	return checkWeights(c, m, parts, stages.OtherParts{})
}

// CheckTextWeights is CheckWeights for a checkpoint that may have the weights of other parts, such as those for images.
func CheckTextWeights(c *checkpoint.Checkpoint, m *stages.Model) error {
	return checkWeights(c, m, nil, otherParts(c))
}

// otherParts returns the parts of a checkpoint's model besides its text part.
func otherParts(c *checkpoint.Checkpoint) stages.OtherParts {
	b, err := c.File(rundir.ModelFile)
	if err != nil {
		return stages.OtherParts{}
	}
	return stages.OtherPartsOf(b)
}

func checkWeights(c *checkpoint.Checkpoint, m *stages.Model, parts StateParts, leaveOut stages.OtherParts) error {
	used := make(map[string]bool, len(m.Params))
	for _, p := range m.Params {
		if p.Adapter {
			continue
		}
		for _, part := range parts.of(p) {
			for _, stored := range partsOf(c, p, part) {
				names, err := findWhole(c, p, stored, part)
				if err != nil {
					return err
				}
				for _, name := range names {
					used[name] = used[name] || part == ""
				}
			}
		}
	}
	var surplus []string
	buffers := buffersOf(m.Config)
	for _, name := range c.Model().Names() {
		switch {
		case used[name] || buffers[name] || leaveOut.Has(name):
		case slices.Contains(append(otherNames(headWeight), headWeight), name) && m.Config.Tie:
			if err := checkTiedHead(c, m, name); err != nil {
				return err
			}
		default:
			surplus = append(surplus, name)
		}
	}
	if len(surplus) == 0 {
		return nil
	}
	const shown = 5
	var names []string
	for _, name := range surplus[:min(len(surplus), shown)] {
		names = append(names, strictjson.Quote(name))
	}
	if len(surplus) > shown {
		names = append(names, "…")
	}
	if other := otherParts(c); leaveOut.Model == "" && slices.ContainsFunc(surplus, other.Has) {
		return fmt.Errorf("%s: %d of the %d tensors belong to other parts of %s than its text model: %s; "+
			"write the text model to a folder with engine export %s --text-only --to DIR, and use that",
			c.Dir(), len(surplus), len(c.Model().Names()), other.Model, strings.Join(names, ", "), c.Dir())
	}
	return fmt.Errorf("%s: the model in %[4]s does not use %[2]d of the %[3]d tensors: %[5]s; correct it, or remove the tensors",
		c.Dir(), len(surplus), len(c.Model().Names()), rundir.ModelFile, strings.Join(names, ", "))
}

// buffersOf are tensors that published files have beside the weights: what follows from
// the sizes, stored by older releases of transformers, and weights that the model does not use.
func buffersOf(c stages.Config) map[string]bool {
	names := map[string]bool{"model.rotary_emb.inv_freq": c.Family != stages.GPT2}
	for _, name := range c.UnusedTensors() {
		names[name] = true
		for _, other := range otherNames(name) {
			names[other] = true
		}
	}
	for i := range c.Layers {
		if c.Family != stages.GPT2 {
			names[fmt.Sprintf("model.layers.%d.self_attn.rotary_emb.inv_freq", i)] = true
			continue
		}
		for _, buffer := range []string{"bias", "masked_bias"} {
			short := fmt.Sprintf("h.%d.attn.%s", i, buffer)
			names[short], names[gpt2Prefix+short] = true, true
		}
	}
	return names
}

// headWeight is the head's weight, which a model with a tied one has none of.
const headWeight = "lm_head.weight"

// checkTiedHead lets a stored copy of a tied head pass where it is one: where it differs,
// releases of transformers disagree on which counts. A tied model's head is the
// embedding, which is its first parameter.
func checkTiedHead(c *checkpoint.Checkpoint, m *stages.Model, headWeight string) error {
	from, embedding, err := find(c, m.Params[0].StoredParts()[0], "")
	if err != nil {
		return err
	}
	a, _ := from.Info(headWeight)
	b, _ := from.Info(embedding)
	same := a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	if same {
		head, err := from.Bytes(headWeight)
		if err != nil {
			return err
		}
		tied, err := from.Bytes(embedding)
		if err != nil {
			return err
		}
		same = bytes.Equal(head, tied)
	}
	if !same {
		return fmt.Errorf("%s: tensor %q differs from %q, but with tie_word_embeddings they must be equal; "+
			"set that to false in %s, or remove the tensor",
			c.Dir(), headWeight, embedding, rundir.ModelFile)
	}
	return nil
}

// Weights is the Source that reads a checkpoint.
func Weights(c *checkpoint.Checkpoint) stages.Source {
	return func(p *stages.Param, part string, dst []float32) error {
		for _, stored := range partsOf(c, p, part) {
			if err := read(c, p, stored, part, dst); err != nil {
				return err
			}
		}
		return nil
	}
}

// read gets what a tensor has of a parameter, or of the part of it that a rank has.
func read(c *checkpoint.Checkpoint, p *stages.Param, stored stages.StoredPart, part string, dst []float32) error {
	if stored.MXFP4 {
		return readMXFP4(c, p, stored, dst)
	}
	from, name, err := find(c, stored, part)
	if err != nil {
		return err
	}
	defer from.Forget(name) // else the file's pages would count beside the weights
	if info, _ := from.Info(name); info.DType == codes {
		return readState(c, name, p, stored, part, dst)
	}
	check := func(numbers []float32) error {
		if c.Manifest != nil {
			return nil
		}
		// Nobody has looked at what other programs have written.
		for i, v := range numbers {
			if v-v != 0 {
				return fmt.Errorf("%s: tensor %q: element %d is %g, not a finite number; the file is damaged, or the model has diverged",
					from.Path(name), name, i, v)
			}
		}
		return nil
	}
	switch {
	case stored.Strides != nil:
		if err = gather(from, name, p, stored, dst); err == nil {
			err = check(dst)
		}
		return err
	case p.Slice == (stages.Slice{}) && stored.Len == len(dst) && stored.At == 0 && stored.Len == elementsOf(stored.Shape):
		if err := from.Float32(name, dst); err != nil {
			return err
		}
		return check(dst)
	}
	eachRange(p, stored, dst, func(to []float32, first int) {
		if err != nil {
			return
		}
		if err = from.Float32At(name, to, stored.At+first-stored.First); err == nil {
			err = check(to)
		}
	})
	return err
}

// eachRange calls f for the ranges of a parameter that a rank has and a tensor, too: from the parameter's element first on.
func eachRange(p *stages.Param, stored stages.StoredPart, dst []float32, f func(to []float32, first int)) {
	p.Slice.Runs(p.Whole, func(at, wholeAt, n int) {
		if lo, hi := max(wholeAt, stored.First), min(wholeAt+n, stored.First+stored.Len); lo < hi {
			f(dst[at+lo-wholeAt:at+hi-wholeAt], lo)
		}
	})
}

// Stored gives the bytes of a tensor of a checkpoint. They are valid until that is closed.
func Stored(c *checkpoint.Checkpoint, stored stages.StoredPart) ([]byte, error) {
	from, name, err := find(c, stored, "")
	if err != nil {
		return nil, err
	}
	return from.Bytes(name)
}

// StoredInfo gives the type and shape of a tensor of a checkpoint.
func StoredInfo(c *checkpoint.Checkpoint, stored stages.StoredPart) (info safetensors.Info, err error) {
	from, name, err := find(c, stored, "")
	if err == nil {
		info, _ = from.Info(name)
	}
	return info, err
}
