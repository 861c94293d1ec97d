package stages

import "fmt"

// Mistral is the family of Mistral: Llama whose layers may attend to a window of positions only.
const Mistral = "mistral"

type mistralFamily struct{ rotary }

func (mistralFamily) name() string  { return Mistral }
func (mistralFamily) class() string { return "MistralForCausalLM" }

func (f mistralFamily) check(c Config) error {
	if err := c.plain(); err != nil {
		return err
	}
	if len(c.Full) > 0 {
		return fmt.Errorf("%w: all layers of mistral have its window, but %d are configured without it", ErrModel, c.Full)
	}
	return f.rotary.check(c)
}

func (f mistralFamily) keys(r *reading) rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = 32000, 4096*32, 4096, 32, 32, 14336
	r.kvHeads.value, r.windows.size.value = 8, 4096
	own := f.rotary.keys(r)
	own["sliding_window"] = r.windows.sliding
	return own
}

func (f mistralFamily) read(r *reading, c *Config) error {
	c.setWindow(r.windows.size.value, nil)
	return f.rotary.read(r, c)
}

func (f mistralFamily) write(c Config, h *hfWritten) {
	f.rotary.write(c, h)
	h.writeWindow(c)
}
