package stages

// language is a family of language models. Its file, family_NAME.go, contains all that is specific
// to it: a table (decoder). FAMILIES.md explains how to add one.
type language interface {
	// name is the value of model.family and of config.json's model_type.
	name() string
	// class is the class of transformers that computes the same.
	class() string
	// check refuses sizes that the family can't have. Rules that hold for all families were checked
	// before.
	check(c Config) error
	// build lists the layers, under the names of the family's published files.
	build(m *Model)
	// keys returns the rules for the keys of a config.json, with the family's defaults.
	keys(r *reading) rules
	// read takes the values that only this family has in its Config.
	read(r *reading, c *Config) error
	// write fills in a config.json.
	write(c Config, h *hfWritten)
	// layer changes the description of decoder layer i, which has the sizes and switches of the
	// Config.
	layer(c Config, i int, l *layerSpec)
	// ends changes the description of the embedding and of the head.
	ends(c Config, e *endsSpec)
	// defaults sets the switches of a model that is trained from scratch.
	defaults(c *Config)
}

// moreLanguages are families of tests.
var moreLanguages []language

// languages returns all families of language models, in the order in which messages name them.
func languages() []language {
	return append([]language{gpt2Family{}, llamaFamily, mistralFamily, qwen2Family, qwen3Family, qwen35Family, smolLM3Family,
		graniteFamily, olmo2Family, olmo3Family, phi3Family, gemma2Family, gemma3Family, gemma4Family, mixtralFamily,
		qwen2MoEFamily, qwen3MoEFamily, deepSeekV3Family, gptOSSFamily}, moreLanguages...)
}

// languageOf returns the family with the given name, or nil.
func languageOf(name string) language {
	for _, f := range languages() {
		if f.name() == name {
			return f
		}
	}
	return nil
}

// LanguageFamilies returns the names of the families of language models.
func LanguageFamilies() (names []string) {
	for _, f := range languages() {
		names = append(names, f.name())
	}
	return names
}

// UsualTie reports whether the head of a family's models uses the embedding's weight unless a
// configuration says otherwise.
func UsualTie(family string) bool {
	switch f := languageOf(family).(type) {
	case gpt2Family:
		return true
	case *decoder:
		return f.sizes.tie
	}
	return false
}

// UsualRopeTheta returns the base of a family's rotary wavelengths unless a configuration says
// otherwise; 0: it has no rotary positions.
func UsualRopeTheta(family string) float64 {
	if f, ok := languageOf(family).(*decoder); ok {
		return f.sizes.theta
	}
	return 0
}

// HasWindow reports whether layers of a family can have a window.
func HasWindow(family string) bool {
	c := Config{Family: family, Layers: 1, Hidden: 4, Heads: 1, KVHeads: 1, FFN: 1, Context: 4, Vocab: 1, RopeTheta: MinRopeTheta,
		Window: 2}
	if HasExperts(family) {
		c.Experts = ExpertConfig{Count: 1, PerToken: 1, Width: 1}
	}
	c.SetDefaults()
	return c.Language() && c.Validate() == nil
}
