package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
)

// checker holds the values of a configuration against each other.
type checker struct {
	*Config
	suspect map[string]bool // keys to leave alone
	errs    Errors
}

// Validate checks every value and every pair of values again, for a Config that
// was changed from Go code.
func (c *Config) Validate() error {
	var errs Errors
	suspect := make(map[string]bool)
	for i := range schema {
		f := &schema[i]
		if c.isOpen(f) {
			continue
		}
		if err := f.checkValue(f.load(c), c.Where(f.key), false); err != nil {
			errs = append(errs, err)
			suspect[f.key] = true
		}
	}
	if errs = c.checkRelations(suspect, errs); len(errs) > 0 {
		return errs.sorted()
	}
	return nil
}

// checkRelations adds to errs what is wrong between keys, suspect ones aside.
func (c *Config) checkRelations(suspect map[string]bool, errs Errors) Errors {
	k := checker{Config: c, suspect: suspect, errs: errs}
	k.model()
	k.data()
	k.batch()
	k.optimizer()
	k.lists()
	k.cluster()
	k.parallel()
	k.telemetry()
	k.effects()
	return k.errs
}

// clean reports whether the keys may be judged together: none is suspect, nor
// left for LoadShape to fill.
func (c *checker) clean(keys ...string) bool {
	for _, key := range keys {
		if c.suspect[key] || c.isOpen(lookup(key)) {
			return false
		}
	}
	return true
}

// disagree reports that the value at key does not fit the one at other. It
// points at whichever was given, at key if both were. The sentence names key's
// value first, then other's.
func (c *checker) disagree(key, other, sentence, hint string) {
	at := key
	if !c.IsSet(key) && c.IsSet(other) {
		at = other
	}
	subject := c.say(key)
	if at == key {
		subject = render(lookup(key).load(c.Config))
	}
	c.fail(at, subject+" "+sentence, hint)
}

func (c *checker) fail(key, msg, hint string) {
	c.errs = append(c.errs, &Error{Pos: c.Where(key), Key: key, Msg: msg, Hint: hint})
}

// say names a key and its value, and that nobody gave it where that is so.
func (c *checker) say(key string) string {
	s := key + " = " + render(lookup(key).load(c.Config))
	if c.Where(key) == (Pos{}) {
		s = "the default " + s
	}
	return s
}

func (c *checker) model() {
	m := c.Model
	if c.clean("model.family", "data.format") && c.Language() && !c.Text() {
		c.disagree("model.family", "data.format", fmt.Sprintf("learns from text, and %s is none", c.say("data.format")),
			`use format = "text" or "documents", or another family, such as "mlp"`)
	}
	if c.clean("model.family", "data.format") && m.Family == "mlp" && c.Text() {
		c.disagree("model.family", "data.format", fmt.Sprintf("learns from samples with a label or a target, and %s has none",
			c.say("data.format")),
			`set format = "csv", "idx" or "jsonl", or another family, such as "gpt2"`)
	}
	if !c.Language() {
		return // what the numbers mean is the family's affair
	}
	own := c.rotary() && m.HeadDim != 0 // heads of a width of their own
	if own && c.clean("model.head_dim", "model.family", "model.heads") {
		switch {
		case m.HeadDim%2 != 0:
			c.disagree("model.head_dim", "model.family", "is odd, and rotary positions take an even size", "make head_dim even")
		case m.HeadDim > MaxHidden/m.Heads:
			c.disagree("model.head_dim", "model.heads", fmt.Sprintf("times %s is more than %d", c.say("model.heads"), MaxHidden),
				"make one of them smaller")
		}
	}
	if c.clean("model.hidden", "model.heads") && (!own || m.Family == stages.Llama) {
		if rest := m.Hidden % m.Heads; rest != 0 {
			c.disagree("model.hidden", "model.heads",
				fmt.Sprintf("does not divide by %s (remainder %d)", c.say("model.heads"), rest),
				"make hidden a multiple of heads")
		} else if size := m.Hidden / m.Heads; c.rotary() && !own && c.clean("model.family") && size%2 != 0 {
			c.disagree("model.hidden", "model.heads",
				fmt.Sprintf("over %s makes heads of size %d, and %s's rotary embedding takes an even size", c.say("model.heads"), size, m.Family),
				"make hidden a multiple of twice the heads")
		}
	}
	if c.clean("model.heads", "model.kv_heads", "model.family") {
		switch rest := m.Heads % m.KVHeads; {
		case rest != 0:
			c.disagree("model.heads", "model.kv_heads",
				fmt.Sprintf("does not divide by %s (remainder %d)", c.say("model.kv_heads"), rest),
				"make heads a multiple of kv_heads")
		case m.Family == "gpt2" && m.KVHeads != m.Heads:
			c.disagree("model.kv_heads", "model.heads",
				fmt.Sprintf("differs from %s, but gpt2 has no grouped heads", c.say("model.heads")),
				`leave kv_heads out, or set model.family = "llama"`)
		}
	}
	if c.clean("model.mtp_layers", "model.context") && m.MTPLayers >= m.Context {
		c.disagree("model.mtp_layers", "model.context",
			fmt.Sprintf("predicts further ahead than %s reaches", c.say("model.context")),
			"make mtp_layers less than context")
	}
}

func (c *checker) data() {
	d := c.Data
	if c.clean("data.train", "data.format") && len(d.Train) == 0 && !slices.Contains(ownFormats(), d.Format) {
		pos := c.Where("data.train")
		if pos == (Pos{}) {
			pos = c.section("data")
		}
		c.errs = append(c.errs, &Error{Pos: pos, Key: "data.train", Msg: "no text to train on was given",
			Hint: `set it to a list of files or globs such as ["data/*.txt"]`})
		if k := len(c.errs) - 1; !c.Text() {
			c.errs[k].Msg, c.errs[k].Hint = "no data to train on was given", `set it to a list of files or globs such as ["data/train.csv"]`
		}
	}
	if c.clean("data.val", "data.val_fraction") {
		switch {
		case len(d.Val) > 0 && d.ValFraction > 0:
			c.fail("data.val_fraction", fmt.Sprintf("%s is set, and so is data.val", render(d.ValFraction)),
				"keep one: val_fraction = 0 or val = [] clears the other")
		case len(d.Val) == 0 && d.ValFraction == 0 && c.Text():
			c.fail("data.val_fraction", "0 leaves no text to validate on", "use a fraction such as 0.1, or set data.val")
		}
	}
	if c.clean("data.tokenizer", "data.format") && d.Tokenizer == "chars" && d.Format != "text" && c.Text() {
		c.disagree("data.tokenizer", "data.format",
			fmt.Sprintf("takes its vocabulary from text, and %s is none", c.say("data.format")),
			`use tokenizer = "bytes" or format = "text"`)
	}
}

// ownFormats are those that the program has registered, which may need no files.
func ownFormats() []string {
	return slices.DeleteFunc(samples.Formats(), func(f string) bool { return slices.Contains([]string{"csv", "idx", "jsonl"}, f) })
}

// section is where a key that is missing would stand.
func (c *Config) section(name string) Pos {
	if pos, ok := c.headers[name]; ok {
		return pos
	}
	return Pos{File: c.file}
}

func (c *checker) batch() {
	b := c.Batch
	if c.clean("batch.sequences", "batch.microbatch") {
		if rest := b.Sequences % b.Microbatch; rest != 0 {
			c.disagree("batch.sequences", "batch.microbatch",
				fmt.Sprintf("does not divide by %s (remainder %d)", c.say("batch.microbatch"), rest),
				"make sequences a multiple of microbatch")
		}
	}
	if c.clean("batch.sequences", "model.context") {
		if tokens := int64(b.Sequences) * int64(c.Model.Context); tokens > maxStepTokens {
			c.disagree("batch.sequences", "model.context",
				fmt.Sprintf("times %s makes %d tokens in a step", c.say("model.context"), tokens),
				fmt.Sprintf("use at most %d", maxStepTokens))
		}
	}
}

func (c *checker) optimizer() {
	if c.clean("optimizer.lr", "optimizer.min_lr") && c.Optimizer.MinLR > c.Optimizer.LR {
		c.disagree("optimizer.min_lr", "optimizer.lr",
			fmt.Sprintf("is above %s", c.say("optimizer.lr")),
			"the learning rate decays to min_lr; make it lr or less")
	}
}

// parallel compares the sizes of the grid with each other, and with what there is to share.
func (c *checker) parallel() {
	if !c.clean("parallel.tensor", "parallel.context", "parallel.data", "parallel.order", "parallel.world", "pipeline.stages") {
		return
	}
	p := c.Parallel
	if n := len(p.Tensor); n > 1 && n != c.Pipeline.Stages {
		c.fail("parallel.tensor", fmt.Sprintf("the list has %s, and %s", entries(n), c.say("pipeline.stages")),
			"give one size for each stage, or one for all")
		return
	}
	sizes := c.GridSizes()
	sizes.World = 0
	g, err := grid.New(sizes)
	switch {
	case err != nil:
		c.fail("parallel.order", strings.TrimPrefix(err.Error(), grid.ErrGrid.Error()+": "), "")
		return
	case p.World > 0 && p.World != g.World():
		c.fail("parallel.world", fmt.Sprintf("the world is to have %s, but %v are %d", words.Plural(p.World, "rank"), g, g.World()),
			"change a size, or leave world out")
	}
	for _, group := range []struct {
		key, share string
		has        bool
	}{{"parallel.tensor", "a layer", slices.Max(p.Tensor) > 1}, {"parallel.context", "a sequence", p.Context > 1}} {
		if c.clean("pipeline.post_validation") && group.has && c.Pipeline.PostValidation {
			c.disagree("pipeline.post_validation", group.key, "may stop ranks in the middle of a step, and those that share "+group.share+
				" wait for each other there", "set post_validation = false")
		}
	}
	c.context()
	c.zero()
	if !c.clean("batch.sequences", "batch.microbatch") {
		return
	}
	if n := c.Batch.Sequences / max(c.Batch.Microbatch, 1); p.Data > max(n, 1) {
		c.fail("parallel.data", fmt.Sprintf("%d replicas share the step's microbatches, and there are %d", p.Data, n),
			"use fewer replicas, more batch.sequences, or a smaller batch.microbatch")
	}
}

// context says what ranks that share sequences can't do.
func (c *checker) context() {
	n := c.Parallel.Context
	if n == 1 {
		return
	}
	if c.clean("model.context") && c.Model.From == "" && c.Model.Context%(2*n) != 0 {
		c.disagree("parallel.context", "model.context",
			fmt.Sprintf("gives each rank two of %d blocks of a sequence, which its positions don't divide into", 2*n),
			"choose a context that does, or fewer ranks")
	}
	if c.clean("model.mtp_layers") && c.Model.MTPLayers > 0 {
		c.disagree("parallel.context", "model.mtp_layers",
			"leaves the tokens that follow a block on other ranks, which multi-token prediction needs", "set mtp_layers = 0")
	}
}

// zero says where replicas that share more than the optimizer's state could not do the same at once.
func (c *checker) zero() {
	p := c.Parallel
	if !c.clean("parallel.zero") || p.Data*p.Context == 1 || p.Zero < 2 {
		return
	}
	if n := c.Batch.Sequences / max(c.Batch.Microbatch, 1); c.clean("batch.sequences", "batch.microbatch") && n%p.Data > 0 && n > p.Data {
		c.disagree("parallel.zero", "parallel.data",
			fmt.Sprintf("has replicas come to the sum of a gradient at once, and the %d microbatches of a step don't divide by %d", n, p.Data),
			"choose batch.sequences or batch.microbatch so that they do, or set zero = 1")
	}
	if !c.SharesWeights() {
		return
	}
	if c.clean("pipeline.post_validation") && c.Pipeline.PostValidation {
		c.disagree("parallel.zero", "pipeline.post_validation",
			"has replicas gather each layer's weights at once, and it may stop ranks in the middle of a step",
			"set post_validation = false, or zero = 2")
	}
	if c.clean("model.family") && c.Model.From == "" && !c.Language() {
		c.disagree("parallel.zero", "model.family",
			"lets go of a layer's weights when it has computed, and layers of this family may hand them on", "set zero = 2")
	}
}

// SharesWeights reports whether each replica has a part of the weights.
func (c *Config) SharesWeights() bool {
	return c.Parallel.Zero == 3 && c.Parallel.Data*c.Parallel.Context > 1
}

// GridSizes are those of the grid of ranks.
func (c *Config) GridSizes() grid.Sizes {
	p := c.Parallel
	return grid.Sizes{Tensor: p.Tensor, Context: p.Context, Pipeline: c.Pipeline.Stages, Data: p.Data, Order: p.Order, World: p.World}
}

// Ranks is the number of ranks of the grid.
func (c *Config) Ranks() int {
	g, err := grid.New(c.GridSizes())
	if err != nil { // which Validate tells
		return c.Pipeline.Stages
	}
	return g.World()
}

// StageOf is the stage of the pipeline that a rank of the grid has.
func (c *Config) StageOf(rank int) int {
	g, err := grid.New(c.GridSizes())
	if err != nil {
		return rank
	}
	return g.Coordinates(rank)[grid.Pipeline]
}

// cluster: a worker that gives its ranks up before its silence is noticed leaves a run that waits for it.
func (c *checker) cluster() {
	if c.clean("cluster.lease_s", "cluster.silence_s") && c.Cluster.LeaseS <= c.Cluster.SilenceS {
		c.disagree("cluster.lease_s", "cluster.silence_s", "s must be longer than "+c.say("cluster.silence_s")+
			" s: a worker would give its ranks up before it counts as lost",
			"raise cluster.lease_s, or lower cluster.silence_s")
	}
}

// lists have an entry for each stage.
func (c *checker) lists() {
	d := c.Device
	if n := len(d.Ranks); c.clean("device.ranks", "pipeline.stages") && n > 0 && n != c.Pipeline.Stages {
		c.fail("device.ranks", fmt.Sprintf("the list has %s, and %s", entries(n), c.say("pipeline.stages")),
			"give one kind for each stage, or leave ranks out")
	}
	if c.Cluster.Edge && c.clean("cluster.place") && len(c.Cluster.Place) == 0 {
		c.fail("cluster.edge", "data and the weights of stage 0 are to stay on the coordinator's host, and nothing says which worker is there",
			"name the worker of each rank in cluster.place")
	}
	if n := len(c.Cluster.Place); c.clean("cluster.place", "pipeline.stages", "parallel.tensor", "parallel.context", "parallel.data") &&
		n > 0 && n != c.Ranks() {
		what, each := c.say("pipeline.stages"), "stage"
		if ranks := c.Ranks(); ranks != c.Pipeline.Stages {
			what, each = fmt.Sprintf("the grid has %d ranks", ranks), "rank"
		}
		c.fail("cluster.place", fmt.Sprintf("the list has %s, and %s", entries(n), what),
			"give one worker for each "+each+", or leave place out")
	}
}

// entries counts those of a list.
func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
