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

// checker compares the values of a configuration with each other.
type checker struct {
	*Config
	suspect map[string]bool // keys to leave alone
	errs    Errors
}

// Validate checks every value, then the values against each other. Call it after a change of a Config
// from Go code. The error is Errors.
func (c *Config) Validate() error {
	var errs Errors
	suspect := make(map[string]bool)
	for _, f := range c.fields() {
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

// checkRelations adds the errors between keys to errs. It leaves out suspect keys.
func (c *Config) checkRelations(suspect map[string]bool, errs Errors) Errors {
	k := checker{Config: c, suspect: suspect, errs: errs}
	k.model()
	k.experts()
	k.adapter()
	k.preference()
	k.distill()
	k.data()
	k.evals()
	k.sources()
	k.batch()
	k.optimizer()
	k.groups()
	k.lists()
	k.cluster()
	k.parallel()
	k.telemetry()
	k.effects()
	return k.errs
}

// clean reports whether the keys may be compared: none is suspect, and none must still be
// filled by WithShape.
func (c *checker) clean(keys ...string) bool {
	for _, key := range keys {
		if f := lookup(key); c.suspect[key] || c.suspect[f.row()] || c.isOpen(f) {
			return false
		}
	}
	return true
}

// disagree reports that the value of key does not fit the value of other. The position is that of
// the key that was given, or of key if both were. The sentence continues after key's value.
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

func (c *checker) fail(key, msg, hint string) { c.failAt(c.Where(key), key, msg, hint) }

func (c *checker) failAt(pos Pos, key, msg, hint string) {
	c.errs = append(c.errs, &Error{Pos: pos, Key: key, Msg: msg, Hint: hint})
}

// say writes a key and its value, and whether it is the default.
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
		c.disagree("model.family", "data.format", fmt.Sprintf("trains on text, but %s is not text", c.say("data.format")),
			`use format = "text" or "documents", or another family, such as "mlp"`)
	}
	if c.clean("model.family", "data.format") && m.Family == "mlp" && c.Text() {
		c.disagree("model.family", "data.format", fmt.Sprintf("trains on samples with a label or a target, but %s has none",
			c.say("data.format")),
			`set format = "csv", "idx" or "jsonl", or another family, such as "gpt2"`)
	}
	if !c.Language() {
		return // only the family knows what the numbers mean
	}
	own := c.rotary() && m.HeadDim != 0 // heads of a width of their own
	if own && c.clean("model.head_dim", "model.family", "model.heads") {
		switch {
		case m.HeadDim%2 != 0:
			c.disagree("model.head_dim", "model.family", "is odd, but rotary positions need an even width", "make head_dim even")
		case m.HeadDim > MaxHidden/m.Heads:
			c.disagree("model.head_dim", "model.heads", fmt.Sprintf("times %s is more than %d, the limit of the width", c.say("model.heads"),
				MaxHidden),
				"reduce one of them")
		}
	}
	if c.clean("model.hidden", "model.heads") && (!own || m.Family == stages.Llama) {
		if rest := m.Hidden % m.Heads; rest != 0 {
			c.disagree("model.hidden", "model.heads",
				fmt.Sprintf("is not divisible by %s (remainder %d)", c.say("model.heads"), rest),
				"make hidden a multiple of heads")
		} else if size := m.Hidden / m.Heads; c.rotary() && !own && c.clean("model.family") && size%2 != 0 {
			c.disagree("model.hidden", "model.heads",
				fmt.Sprintf("divided by %s gives heads of width %d, but the rotary positions of %s need an even width", c.say("model.heads"), size,
					m.Family),
				"make hidden a multiple of 2 × heads")
		}
	}
	if c.clean("model.heads", "model.kv_heads", "model.family") {
		switch rest := m.Heads % m.KVHeads; {
		case rest != 0:
			c.disagree("model.heads", "model.kv_heads",
				fmt.Sprintf("is not divisible by %s (remainder %d)", c.say("model.kv_heads"), rest),
				"make heads a multiple of kv_heads")
		case m.Family == "gpt2" && m.KVHeads != m.Heads:
			c.disagree("model.kv_heads", "model.heads",
				fmt.Sprintf("differs from %s, but gpt2 has no grouped heads", c.say("model.heads")),
				`leave kv_heads out, or set model.family = "llama"`)
		}
	}
	if c.clean("model.mtp_layers", "model.context") && m.MTPLayers >= m.Context {
		c.disagree("model.mtp_layers", "model.context",
			fmt.Sprintf("is not less than %s: it predicts beyond the end of a sequence", c.say("model.context")),
			"make mtp_layers less than context")
	}
}

func (c *checker) data() {
	d := c.Data
	if c.clean("data.train", "data.format") && len(d.Train) == 0 && len(d.Source) == 0 && !slices.Contains(ownFormats(), d.Format) {
		pos := c.Where("data.train")
		if pos == (Pos{}) {
			pos = c.section("data")
		}
		c.errs = append(c.errs, &Error{Pos: pos, Key: "data.train", Msg: "no training text is given",
			Hint: `set it to a list of files or patterns, such as ["data/*.txt"]`})
		if k := len(c.errs) - 1; !c.Text() {
			c.errs[k].Msg, c.errs[k].Hint = "no training data is given", `set it to a list of files or patterns, such as ["data/train.csv"]`
		}
	}
	if c.clean("data.val", "data.val_fraction") {
		switch {
		case len(d.Val) > 0 && d.ValFraction > 0:
			c.fail("data.val_fraction", fmt.Sprintf("%s is set, but data.val is set, too", render(d.ValFraction)),
				"remove one of the two, or clear it with val_fraction = 0 or val = []")
		case len(d.Val) == 0 && d.ValFraction == 0 && len(c.Eval) == 0 && c.Text():
			c.fail("data.val_fraction", "0 leaves no text for validation", "use a fraction such as 0.1, or set data.val or [[eval]]")
		}
	}
	if c.clean("data.tokenizer", "data.format") && d.Tokenizer == "chars" && d.Format != "text" && c.Text() {
		c.disagree("data.tokenizer", "data.format",
			fmt.Sprintf("takes its vocabulary from text, but %s is not text", c.say("data.format")),
			`use tokenizer = "bytes" or format = "text"`)
	}
}

// ownFormats returns the formats that the program has registered. They may need no files.
func ownFormats() []string {
	return slices.DeleteFunc(samples.Formats(), func(f string) bool { return slices.Contains([]string{"csv", "idx", "jsonl"}, f) })
}

// section returns the position for an error about a missing key.
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
				fmt.Sprintf("is not divisible by %s (remainder %d)", c.say("batch.microbatch"), rest),
				"make sequences a multiple of microbatch")
		}
	}
	if c.clean("batch.sequences", "model.context") {
		if tokens := int64(b.Sequences) * int64(c.Model.Context); tokens > maxStepTokens {
			c.disagree("batch.sequences", "model.context",
				fmt.Sprintf("times %s is %d tokens a step", c.say("model.context"), tokens),
				fmt.Sprintf("the limit is %d tokens; reduce one of them", maxStepTokens))
		}
	}
}

func (c *checker) optimizer() {
	if c.clean("optimizer.decay", "optimizer.points") && c.Optimizer.Decay == stages.Points && len(c.Optimizer.Points) == 0 {
		c.fail("optimizer.decay", `"points" needs optimizer.points`,
			"set it to pairs of a step and a rate, such as points = [[1, 0.001], [1000, 0.0]]")
	}
	if c.clean("optimizer.lr", "optimizer.min_lr") && c.Optimizer.MinLR > c.Optimizer.LR {
		c.disagree("optimizer.min_lr", "optimizer.lr",
			fmt.Sprintf("is above %s", c.say("optimizer.lr")),
			"the learning rate decays from lr to min_lr; set min_lr to lr or less")
	}
}

// parallel compares the sizes of the grid with each other and with the batch.
func (c *checker) parallel() {
	if !c.clean("parallel.tensor", "parallel.context", "parallel.data", "parallel.order", "parallel.world", "pipeline.stages") {
		return
	}
	p := c.Parallel
	if n := len(p.Tensor); n > 1 && n != c.Pipeline.Stages {
		c.fail("parallel.tensor", fmt.Sprintf("the list has %s, but %s", entries(n), c.say("pipeline.stages")),
			"give one size for each stage, or one number for all stages")
		return
	}
	sizes := c.GridSizes()
	sizes.World, sizes.Expert, sizes.ExpertTensor = 0, 0, 0 // expertGroups checks the latter two
	g, err := grid.New(sizes)
	switch {
	case err != nil:
		c.fail("parallel.order", strings.TrimPrefix(err.Error(), grid.ErrGrid.Error()+": "), "")
		return
	case p.World > 0 && p.World != g.World():
		c.fail("parallel.world", fmt.Sprintf("the grid must have %s, but %v has %d", words.Plural(p.World, "rank"), g, g.World()),
			"change one of the sizes, or leave world out")
	}
	for _, group := range []struct {
		key, share string
		has        bool
	}{{"parallel.tensor", "a layer", slices.Max(p.Tensor) > 1}, {"parallel.context", "a sequence", p.Context > 1}} {
		if c.clean("pipeline.post_validation") && group.has && c.Pipeline.PostValidation {
			c.disagree("pipeline.post_validation", group.key, "may stop a rank in the middle of a step, but ranks that share "+group.share+
				" wait for each other there", "set post_validation = false")
		}
	}
	c.context()
	c.zero()
	c.expertGroups()
	if !c.clean("batch.sequences", "batch.microbatch") {
		return
	}
	if n := c.Batch.Sequences / max(c.Batch.Microbatch, 1); p.Data > max(n, 1) {
		c.fail("parallel.data", fmt.Sprintf("%d replicas need at least %d microbatches a step, but there are %d", p.Data, p.Data, n),
			"use fewer replicas, more batch.sequences, or a smaller batch.microbatch")
	}
}

// context checks what ranks that share sequences cannot do.
func (c *checker) context() {
	n := c.Parallel.Context
	if n == 1 {
		return
	}
	if c.clean("model.context") && c.Model.From == "" && c.Model.Context%(2*n) != 0 {
		c.disagree("parallel.context", "model.context",
			fmt.Sprintf("divides each sequence into %d blocks, two for each rank, but %s is not a multiple of %d", 2*n, c.say("model.context"), 2*n),
			"change model.context, or use fewer ranks")
	}
	if c.clean("model.mtp_layers") && c.Model.MTPLayers > 0 {
		c.disagree("parallel.context", "model.mtp_layers",
			"puts the tokens after a block on another rank, but multi-token prediction needs them", "set mtp_layers = 0")
	}
}

// zero checks that replicas that share gradients or weights can do so at the same time.
func (c *checker) zero() {
	p := c.Parallel
	if !c.clean("parallel.zero") || p.Data*p.Context == 1 || p.Zero < 2 {
		return
	}
	if n := c.Batch.Sequences / max(c.Batch.Microbatch, 1); c.clean("batch.sequences", "batch.microbatch") && n%p.Data > 0 && n > p.Data {
		c.disagree("parallel.zero", "parallel.data",
			fmt.Sprintf("needs replicas with equally many microbatches, but %d microbatches a step are not divisible by %s", n,
				c.say("parallel.data")),
			"change batch.sequences or batch.microbatch, or set zero = 1")
	}
	if !c.SharesWeights() {
		return
	}
	if c.clean("pipeline.post_validation") && c.Pipeline.PostValidation {
		c.disagree("parallel.zero", "pipeline.post_validation",
			"makes replicas gather each layer's weights together, but post_validation may stop a rank in the middle of a step",
			"set post_validation = false, or zero = 2")
	}
	if c.clean("model.family") && c.Model.From == "" && !c.Language() {
		c.disagree("parallel.zero", "model.family",
			"frees a layer's weights after its computation, but other layers of this family may use them", "set zero = 2")
	}
}

// SharesWeights reports whether replicas share the weights (ZeRO-3): each has a part of them.
func (c *Config) SharesWeights() bool {
	return c.Parallel.Zero == 3 && c.Parallel.Data*c.Parallel.Context > 1
}

// GridSizes returns the sizes of the grid of ranks.
func (c *Config) GridSizes() grid.Sizes {
	p := c.Parallel
	return grid.Sizes{Tensor: p.Tensor, Context: p.Context, Pipeline: c.Pipeline.Stages, Data: p.Data, Order: p.Order, World: p.World,
		Expert: p.Expert, ExpertTensor: p.ExpertTensor}
}

// Ranks returns the number of ranks in the grid.
func (c *Config) Ranks() int {
	g, err := grid.New(c.GridSizes())
	if err != nil { // Validate reports it
		return c.Pipeline.Stages
	}
	return g.World()
}

// StageOf returns the pipeline stage of a rank of the grid.
func (c *Config) StageOf(rank int) int {
	g, err := grid.New(c.GridSizes())
	if err != nil {
		return rank
	}
	return g.Coordinates(rank)[grid.Pipeline]
}

// cluster checks that a worker does not drop its ranks before the coordinator notices its failure: the run would wait for it.
func (c *checker) cluster() {
	if c.clean("cluster.lease_s", "cluster.silence_s") && c.Cluster.LeaseS <= c.Cluster.SilenceS {
		c.disagree("cluster.lease_s", "cluster.silence_s", "s must be longer than "+c.say("cluster.silence_s")+
			" s: else a worker would drop its ranks before it counts as failed",
			"raise cluster.lease_s, or lower cluster.silence_s")
	}
}

// lists checks that lists have an entry for each stage.
func (c *checker) lists() {
	d := c.Device
	if n := len(d.Ranks); c.clean("device.ranks", "pipeline.stages") && n > 0 && n != c.Pipeline.Stages {
		c.fail("device.ranks", fmt.Sprintf("the list has %s, but %s", entries(n), c.say("pipeline.stages")),
			"give one device for each stage, or leave ranks out")
	}
	if c.Cluster.Edge && c.clean("cluster.place") && len(c.Cluster.Place) == 0 {
		c.fail("cluster.edge", "the data and the weights of stage 0 stay on the coordinator's host, but cluster.place is empty",
			"name the worker of each rank in cluster.place, with a worker of that host for stage 0")
	}
	if n := len(c.Cluster.Place); c.clean("cluster.place", "pipeline.stages", "parallel.tensor", "parallel.context", "parallel.data") &&
		n > 0 && n != c.Ranks() {
		what, each := c.say("pipeline.stages"), "stage"
		if ranks := c.Ranks(); ranks != c.Pipeline.Stages {
			what, each = fmt.Sprintf("the grid has %d ranks", ranks), "rank"
		}
		c.fail("cluster.place", fmt.Sprintf("the list has %s, but %s", entries(n), what),
			"give one worker for each "+each+", or leave place out")
	}
}

// entries writes a number of entries.
func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
