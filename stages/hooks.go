package stages

// passes.go has the pass of a single rank. Hooks add what the rank does with the ranks that share
// its sequences, microbatches, gradients or weights. A stage of one rank has no hooks.

// hook adds one kind of sharing to the passes of a stage.
type hook interface {
	share(f *inFlight) error             // reduces a whole microbatch (f.mb) to this rank's part
	beforeLayers(p *pass, backward bool) // before the layers of a forward or an input gradient
	beforeLayer(p *pass, i int)          // before a layer is recorded
	afterLayer(p *pass, i int)           // after a layer, including its weight gradient if that is recorded at once
	beforeWeightGrad(p *pass, i int)     // before a layer adds to gradients of weights
	afterWeightGrad(p *pass, i int)      // after it has added all of this microbatch's
	afterGradients(p *pass)              // at the end of a backward pass
}

// noHook does nothing. It is embedded in hooks that need only some of the methods.
type noHook struct{}

func (noHook) share(*inFlight) error       { return nil }
func (noHook) beforeLayers(*pass, bool)    {}
func (noHook) beforeLayer(*pass, int)      {}
func (noHook) afterLayer(*pass, int)       {}
func (noHook) beforeWeightGrad(*pass, int) {}
func (noHook) afterWeightGrad(*pass, int)  {}
func (noHook) afterGradients(*pass)        {}

// hooksOf returns the hooks of a stage with these options.
func (s *Stage) hooksOf() (all hooks) {
	o := &s.opts
	if o.Context.size() > 1 || o.Tensor.Sequence || o.wholeExperts() {
		all = append(all, sharedPositions{stage: s})
	}
	if o.Data.splitsWeights() {
		all = append(all, gatheredWeights{stage: s})
	}
	if o.Data.splitsGrads() || o.BriefGrads {
		all = append(all, gradRoom{stage: s})
	}
	if o.Data.size() > 1 && !o.Inference {
		all = append(all, replicaSums{stage: s})
	}
	return all
}

// hooks are the hooks of a stage; none for one rank.
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
