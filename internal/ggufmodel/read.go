package ggufmodel

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/gguf"
)

// reader turns the entries of a file into a config.json.
type reader struct {
	header *gguf.Header
	bytes  func(tensor string) ([]byte, error)
	arch   *architecture
	used   map[string]bool // keys of the architecture
	config map[string]any
	err    error // the first

	layers, hidden, heads, kvHeads, headDim, context int
	delta                                            deltaHeads
}

// readConfig returns the config.json of a file.
func readConfig(h *gguf.Header, bytes func(tensor string) ([]byte, error)) (r *reader, err error) {
	v, ok := h.Value(architectureKey)
	name, text := v.(string)
	if !ok || !text {
		return nil, fmt.Errorf("%s is missing or no string", architectureKey)
	}
	if err := checkWhole(h); err != nil {
		return nil, err
	}
	r = &reader{header: h, bytes: bytes, used: make(map[string]bool), config: make(map[string]any)}
	if r.arch, err = named(name); err != nil {
		return nil, err
	}
	r.set("model_type", r.arch.families[0])
	r.set("architectures", []string{r.arch.class})
	embedding, ok := h.Info("token_embd.weight")
	if !ok || len(embedding.Shape) != 2 {
		return nil, fmt.Errorf("tensor %q is missing or no matrix", "token_embd.weight")
	}
	r.set("vocab_size", embedding.Shape[0])
	if n := r.int("vocab_size", embedding.Shape[0]); n != embedding.Shape[0] {
		r.fail("vocab_size", "%d, but %q has %d rows", n, embedding.Name, embedding.Shape[0])
	}
	_, head := h.Info("output.weight")
	r.set("tie_word_embeddings", !head)
	if r.arch.read != nil {
		r.arch.read(r)
	} else {
		r.rotary()
	}
	r.rest()
	return r, r.err
}

// checkWhole refuses files that are only a part of a model.
func checkWhole(h *gguf.Header) error {
	const countKey, typeKey = "split.count", "general.type"
	if v, ok := h.Value(countKey); ok {
		if n, ok := whole(v); !ok || n > 1 {
			return fmt.Errorf("%w: %s is %s: the file is one of several; join them with llama-gguf-split --merge", ErrUnsupported, countKey, show(v))
		}
	}
	if v, ok := h.Value(typeKey); ok && v != "model" {
		return fmt.Errorf("%w: %s is %s; Troupe reads models", ErrUnsupported, typeKey, show(v))
	}
	return nil
}

func (r *reader) set(key string, value any) { r.config[key] = value }

// setFloat sets a number that the file has in float32, in the fewest digits that mean the same.
func (r *reader) setFloat(key string, v float32) { r.set(key, shortest(v)) }

func shortest(v float32) json.Number {
	text := strconv.FormatFloat(float64(v), 'g', -1, 32)
	if !strings.ContainsAny(text, ".eN") {
		text += ".0" // transformers tells whole numbers from others
	}
	return json.Number(text)
}

func (r *reader) key(name string) string { return r.arch.name + "." + name }

// fail reports a key with a wrong value.
func (r *reader) fail(name, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is %w", r.key(name), fmt.Errorf(format, args...))
	}
}

func (r *reader) refuse(name, format string, args ...any) {
	r.fail(name, "%s: %w", fmt.Sprintf(format, args...), ErrUnsupported)
}

// value returns a key's value and uses it.
func (r *reader) value(name string) (any, bool) {
	r.used[r.key(name)] = true
	return r.header.Value(r.key(name))
}

// int reads a whole number, or a list of equal ones, as files with a number for each layer have it.
func (r *reader) int(name string, otherwise int) int {
	v, ok := r.value(name)
	if !ok {
		return otherwise
	}
	n, ok := whole(v)
	if !ok {
		r.fail(name, "%s, but must be a whole number from 0 to %d", show(v), math.MaxInt32)
		return otherwise
	}
	return n
}

// whole returns a number that config.json can have.
func whole(v any) (int, bool) {
	n := int64(-1)
	switch v := v.(type) {
	case uint32:
		n = int64(v)
	case int32:
		n = int64(v)
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case int64:
		n = v
	case uint16:
		n = int64(v)
	case uint8:
		n = int64(v)
	case []int32:
		return equal(v)
	case []uint32:
		return equal(v)
	}
	return int(n), n >= 0 && n <= math.MaxInt32
}

func equal[T int32 | uint32](all []T) (int, bool) {
	for _, v := range all {
		if v != all[0] {
			return 0, false
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return whole(any(all[0]))
}

// need is int for a key that must be there.
func (r *reader) need(name string) int {
	if _, ok := r.header.Value(r.key(name)); !ok {
		r.fail(name, "missing")
	}
	return r.int(name, 0)
}

// float reads a finite number.
func (r *reader) float(name string, otherwise float32) float32 {
	v, ok := r.value(name)
	if !ok {
		return otherwise
	}
	var f float32
	switch v := v.(type) {
	case float32:
		f = v
	case float64:
		f = float32(v)
	default:
		r.fail(name, "%s, but must be a number", show(v))
	}
	if f-f != 0 {
		r.fail(name, "%g, not a finite number", f)
	}
	return f
}

// show is a value in a message.
func show(v any) string {
	text := fmt.Sprint(v)
	if _, ok := v.(string); ok {
		return strictjson.Quote(text)
	}
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return fmt.Sprintf("%s (%T)", text, v)
}

// rest refuses keys of the architecture that were not read. A number that is zero switches its part off.
func (r *reader) rest() {
	for _, e := range r.header.Entries() {
		rest, own := strings.CutPrefix(e.Key, r.arch.name+".")
		if !own || r.used[e.Key] || r.err != nil {
			continue
		}
		if n, ok := whole(e.Value); ok && n == 0 {
			continue
		}
		r.refuse(rest, "%s, which Troupe does not know", show(e.Value))
	}
}

// json returns the config.json.
func (r *reader) json() ([]byte, error) {
	text, err := json.MarshalIndent(r.config, "", "  ")
	return append(text, '\n'), err
}
