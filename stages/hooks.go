package stages

// A pass of a rank alone is in passes.go. What it does besides, with the ranks that share its sequences, microbatches,
// gradients or weights, is in hooks: a stage of one rank has none.

// hook is what one kind of sharing adds to the passes of a stage.
type hook interface {
	share(f *inFlight) error             // makes of a whole microbatch (f.mb) what this rank has of it
	beforeLayers(p *pass, backward bool) // of a forward, or an input gradient
	beforeLayer(p *pass, i int)          // one of them is about to be recorded
	afterLayer(p *pass, i int)           // with its weight gradient, where that is recorded at once
	beforeWeightGrad(p *pass, i int)     // a layer is about to add to gradients of weights
	afterWeightGrad(p *pass, i int)      // it has added all of this microbatch's
	afterGradients(p *pass)              // of a pass that is no forward
}

// noHook has nothing to add: what is embedded where a hook needs a few of the methods.
type noHook struct{}

func (noHook) share(*inFlight) error       { return nil }
func (noHook) beforeLayers(*pass, bool)    {}
func (noHook) beforeLayer(*pass, int)      {}
func (noHook) afterLayer(*pass, int)       {}
func (noHook) beforeWeightGrad(*pass, int) {}
func (noHook) afterWeightGrad(*pass, int)  {}
func (noHook) afterGradients(*pass)        {}

// hooksOf are those of a stage with these options.
func (s *Stage) hooksOf() (all hooks) {
	o := &s.opts
	if o.Context.size() > 1 || o.Tensor.Sequence {
		all = append(all, sharedPositions{stage: s})
	}
	if o.Data.splitsWeights() {
		all = append(all, &gatheredWeights{stage: s})
	}
	if o.Data.splitsGrads() || o.BriefGrads {
		all = append(all, gradRoom{stage: s})
	}
	if o.Data.size() > 1 && !o.Inference {
		all = append(all, replicaSums{stage: s})
	}
	return all
}

// hooks are those of a stage; none for one rank.
type hooks []hook

func (hs hooks) share(f *inFlight) error {
	for _, h := range hs {
		if err := h.share(f); err != nil {
			return err
		}
	}
	return nil
}

func (hs hooks) beforeLayers(p *pass, backward bool) {
	for _, h := range hs {
		h.beforeLayers(p, backward)
	}
}

func (hs hooks) beforeLayer(p *pass, i int) {
	for _, h := range hs {
		h.beforeLayer(p, i)
	}
}

func (hs hooks) afterLayer(p *pass, i int) {
	for _, h := range hs {
		h.afterLayer(p, i)
	}
}

func (hs hooks) beforeWeightGrad(p *pass, i int) {
	for _, h := range hs {
		h.beforeWeightGrad(p, i)
	}
}

func (hs hooks) afterWeightGrad(p *pass, i int) {
	for _, h := range hs {
		h.afterWeightGrad(p, i)
	}
}

func (hs hooks) afterGradients(p *pass) {
	for _, h := range hs {
		h.afterGradients(p)
	}
}
