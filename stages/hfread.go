package stages

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// ParseHF reads a config.json. Each of its keys is honored, known to have no effect, or refused by
// name with ErrModel: Troupe must not compute a published model in another way than its authors.
// Dropout is a setting of training. A Config has one rate for it: resid_pdrop, or
// attention_dropout.
func ParseHF(data []byte) (Config, error) {
	c, err := parseHF(data)
	if err != nil {
		return Config{}, fmt.Errorf("%w: config.json: %w", ErrModel, err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

func parseHF(data []byte) (c Config, err error) {
	members, err := membersOf(data)
	if err != nil {
		return c, err
	}
	if isOwn(members) {
		return parseOwn(data)
	}
	if members, err = textMembers(members); err != nil {
		return c, err
	}
	var r reading
	if err := r.readFamily(members); err != nil {
		return c, err
	}
	known := r.rulesOf(r.family)
	for _, m := range members {
		rule, ok := known[m.key]
		if !ok && string(m.value) == "null" {
			continue
		}
		if !ok {
			keys := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(key string) bool { return slices.Contains(neutralKeys, key) })
			return c,
				fmt.Errorf("%s is %s, but Troupe does not know this key of %s. Remove it if it does not change what the model computes. Known keys are %s",
					strictjson.Quote(m.key), show(m.value), r.family.name(), strings.Join(keys, ", "))
		}
		if err := rule(m.key, m.value); err != nil {
			return c, err
		}
	}
	return r.config()
}

// member is a key of an object with its value.
type member struct {
	key   string
	value json.RawMessage
}

// membersOf reads an object. A key must not occur twice.
func membersOf(data []byte) (members []member, err error) {
	if len(data) > MaxHFBytes {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(data), MaxHFBytes)
	}
	dec, err := strictjson.NewDecoder(data)
	if err != nil {
		return nil, err
	}
	err = strictjson.Object(dec, func(key string) error {
		m := member{key: key}
		err := dec.Decode(&m.value)
		members = append(members, m)
		return err
	})
	return members, err
}

// eachMember calls f for each member of an object, with its name below key. null has no members.
func eachMember(key string, v json.RawMessage, f func(name string, m member) error) error {
	if string(v) == "null" {
		return nil
	}
	members, err := membersOf(v)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for _, m := range members {
		if err := f(key+"."+m.key, m); err != nil {
			return err
		}
	}
	return nil
}

// reading is a config.json while it is turned into a Config.
type reading struct {
	family                                  language
	vocab, positions, hidden, layers, heads said[int]
	ffn, kvHeads, headDim, mtpLayers        said[int]
	queryScalar                             said[int]
	eps, theta, windowTheta, dropout        said[float64]
	tie, attentionBias, mlpBias             said[bool]
	rope                                    ropeKeys
	originalPositions                       said[int]
	windows                                 windows
	delta                                   deltaKeys
	fullHeads                               fullHeads
	layerKeys                               layerKeys
	experts                                 expertKeys
	latent                                  saidLatent
	noRope                                  noRope
	numbers                                 map[string]*said[float64] // of keys that only some families have
}

// number returns the value of a key that only some families have.
func (r *reading) number(key string, missing float64) *said[float64] {
	v := r.numbers[key]
	if v == nil {
		v = &said[float64]{value: missing}
		if r.numbers == nil {
			r.numbers = make(map[string]*said[float64])
		}
		r.numbers[key] = v
	}
	return v
}

// said is a value and the key that set it; without a key it is the default.
type said[T comparable] struct {
	value T
	key   string
}

// set sets a value. If another key with the same meaning was set before, the values must agree.
func (s *said[T]) set(key string, value T) error {
	if s.key != "" && s.value != value {
		return fmt.Errorf("%s is %v, but %s is %v. The two keys mean the same: remove one", key, value, s.key, s.value)
	}
	s.value, s.key = value, key
	return nil
}

// readFamily reads model_type.
func (r *reading) readFamily(members []member) error {
	names := LanguageFamilies()
	for i := range names {
		names[i] = strconv.Quote(names[i])
	}
	known := strings.Join(names, ", ")
	for _, m := range members {
		if m.key != "model_type" {
			continue
		}
		for _, f := range languages() {
			if same(m.value, strconv.Quote(f.name())) {
				r.family = f
				return nil
			}
		}
		return fmt.Errorf("unknown model_type %s: Troupe knows %s", show(m.value), known)
	}
	return fmt.Errorf("model_type is missing: Troupe knows %s", known)
}

// config fills in the values that follow from other keys.
func (r *reading) config() (Config, error) {
	c := Config{Family: r.family.name()}
	c.Vocab, c.Context, c.Hidden, c.Layers, c.Heads = r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value
	c.FFN, c.KVHeads, c.MTPLayers = r.ffn.value, r.kvHeads.value, r.mtpLayers.value
	c.NormEps, c.Dropout, c.Tie = r.eps.value, r.dropout.value, r.tie.value
	if c.FFN == 0 {
		c.FFN = 4 * c.Hidden
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if d := r.headDim.value; d != 0 && d*c.Heads != c.Hidden {
		c.HeadDim = d
	}
	err := r.family.read(r, &c)
	if s := c.RopeScaling; s.Type == ropeDynamic && s.dynamicPositions() > c.Context {
		c.MaxPositions = s.dynamicPositions()
	}
	return c, err
}

// groups reads num_key_value_heads; null means the number of heads.
func (r *reading) groups(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return r.kvHeads.set(key, 0)
	}
	return whole(&r.kvHeads, 1, MaxHeads)(key, v)
}

// whole reads an integer.
func whole(into *said[int], from, to int) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		n, err := strconv.Atoi(string(v))
		if err != nil || n < from || n > to {
			return fmt.Errorf("%s is %s: it must be a whole number from %d to %d", key, show(v), from, to)
		}
		return into.set(key, n)
	}
}

// number reads a number.
func number(into *said[float64], from, to float64) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		var x float64
		if err := json.Unmarshal(v, &x); err != nil || string(v) == "null" || !(x >= from && x <= to) {
			return fmt.Errorf("%s is %s: it must be a number from %g to %g", key, show(v), from, to)
		}
		return into.set(key, x)
	}
}

// truth reads true or false.
func truth(into *said[bool]) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		if s := string(v); s != "true" && s != "false" {
			return fmt.Errorf("%s is %s: it must be true or false", key, show(v))
		}
		return into.set(key, string(v) == "true")
	}
}

// orNull keeps the default if the value is null.
func orNull(rule func(string, json.RawMessage) error) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		if string(v) == "null" {
			return nil
		}
		return rule(key, v)
	}
}

// only accepts the given values, written as in JSON.
func only(values ...string) func(string, json.RawMessage) error {
	return func(key string, v json.RawMessage) error {
		if slices.ContainsFunc(values, func(one string) bool { return same(v, one) }) {
			return nil
		}
		return fmt.Errorf("%s is %s, but only %s is supported", key, show(v), strings.Join(values, " or "))
	}
}

// neutral accepts every value.
func neutral(string, json.RawMessage) error { return nil }

// same compares two JSON values; 1 and 1.0 are the same number.
func same(v json.RawMessage, text string) bool {
	var a, b any
	return errors.Join(json.Unmarshal(v, &a), json.Unmarshal([]byte(text), &b)) == nil && reflect.DeepEqual(a, b)
}

// show formats a value for a message: unchanged, unless it is long or contains control characters.
func show(v json.RawMessage) string {
	const bytesMax = 100
	if len(v) > bytesMax || strings.ContainsFunc(string(v), func(r rune) bool { return r < ' ' || r > '~' }) {
		return strictjson.Quote(string(v))
	}
	return string(v)
}
