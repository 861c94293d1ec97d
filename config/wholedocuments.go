package config

import "fmt"

// wholeDocuments checks what cannot be combined with a loss that needs whole documents, one in each sequence, at the head alone: that of
// [preference] and of [distill]. key turns the loss on, its documents have parts, and why ends the reason against packing. It returns what
// refuses a further key.
func (c *checker) wholeDocuments(key, parts, why string) (refuse func(other string, wrong bool, sentence, hint string)) {
	refuse = func(other string, wrong bool, sentence, hint string) {
		if c.clean(other) && wrong {
			c.disagree(key, other, sentence, hint)
		}
	}
	refuse("data.format", !c.Documents(), fmt.Sprintf("needs documents with %s, but %s", parts, c.say("data.format")),
		`set data.format = "documents"`)
	refuse("data.packing", c.Data.Packing != PackNone, "cannot be combined with "+c.say("data.packing")+why, "leave packing out")
	refuse("data.stream", c.Data.Stream, "cannot be combined with data.stream", "leave stream out")
	refuse("model.mtp_layers", c.Model.MTPLayers > 0, "cannot be combined with multi-token prediction ("+c.say("model.mtp_layers")+")",
		"leave mtp_layers out")
	refuse("model.aux_loss_weight", c.Model.Experts > 0 && c.Model.AuxLossWeight > 0,
		fmt.Sprintf("cannot be combined with the balance loss of experts, but %s", c.say("model.aux_loss_weight")),
		"set aux_loss_weight = 0.0")
	refuse("model.z_loss_weight", c.Model.Experts > 0 && c.Model.ZLossWeight > 0,
		fmt.Sprintf("cannot be combined with the z-loss of routers, but %s", c.say("model.z_loss_weight")), "leave z_loss_weight out")
	return refuse
}
