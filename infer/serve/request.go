package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// request is a request for a text.
type request struct {
	chat   bool
	model  string
	stream bool
	usage  bool   // a last event of a stream counts the tokens
	choice string // tool_choice: "auto" or "none"
	o      infer.TextOptions
	given  map[string]bool // options that the request sets
	has    map[string]bool // keys
}

// read reads a request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, chat bool) (*request, error) {
	if !isJSON(r) {
		return nil, &apiError{Message: "the content type must be application/json", Type: invalidRequest, status: http.StatusUnsupportedMediaType}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limitBodyBytes))
	if err != nil {
		return nil, err
	}
	q := &request{chat: chat, given: map[string]bool{}, has: map[string]bool{}}
	q.o = infer.TextOptions{Temperature: 1, Seed: randomSeed(), Fit: true, Tokens: usualTokens}
	if chat {
		q.o.Tokens = s.o.MaxTokens
	}
	keys := q.keys(s)
	dec, err := strictjson.NewDecoder(body)
	if err != nil {
		return nil, bad("", "the body is not JSON: %v", err)
	}
	err = strictjson.Object(dec, func(key string) error {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		set := keys[key]
		if set == nil {
			return bad(key, "unknown key %s", strictjson.Quote(key))
		}
		if string(v) == "null" {
			return nil
		}
		q.has[key] = true
		return set(key, v)
	})
	if err == nil {
		err = strictjson.End(dec)
	}
	if err != nil {
		if e := errorOf(err); e.status == http.StatusBadRequest {
			return nil, e
		}
		return nil, bad("", "the body is not a JSON object: %v", err)
	}
	return q, q.check(s)
}

// check checks what concerns several keys.
func (q *request) check(s *Server) error {
	switch {
	case !q.has["model"]:
		return bad("model", "model is missing: this server has %q", s.o.Name)
	case q.model != s.o.Name:
		return s.noModel(q.model)
	case !q.chat && !q.has["prompt"]:
		return bad("prompt", "prompt is missing")
	case q.chat && !q.has["messages"]:
		return bad("messages", "messages is missing")
	case q.usage && !q.stream:
		return bad("stream_options", "stream_options has no effect without stream")
	case q.has["tool_choice"] && !q.has["tools"]:
		return bad("tool_choice", "tool_choice has no effect without tools")
	}
	s.o.Defaults.Apply(&q.o, func(option string) bool { return q.given[option] })
	q.o.Tokens = min(q.o.Tokens, s.o.MaxTokens)
	if q.o.TopP == 0 && q.has["top_p"] { // the options have 0 for all tokens
		q.o.TopP = leastTopP
	}
	if q.choice == "none" {
		q.o.Tools = nil
	}
	return nil
}

// leastTopP leaves only the most likely token.
const leastTopP = 1e-9

type setter = func(key string, v json.RawMessage) error

// keys are the keys of a request, with what each sets.
func (q *request) keys(s *Server) map[string]setter {
	option := func(name string, set setter) setter {
		return func(key string, v json.RawMessage) error {
			q.given[name] = true
			return set(key, v)
		}
	}
	set := wholeNumber(&q.o.Tokens, 1, s.o.MaxTokens)
	tokens := func(key string, v json.RawMessage) error {
		other, twice := q.o.Tokens, q.given[infer.OptionTokens]
		q.given[infer.OptionTokens] = true
		if err := set(key, v); err != nil {
			return err
		}
		if twice && q.o.Tokens != other {
			return bad(key, "max_tokens and max_completion_tokens differ: %d and %d; give only one of them", other, q.o.Tokens)
		}
		return nil
	}
	keys := map[string]setter{
		"model":              text(&q.model),
		"stream":             truth(&q.stream),
		"stream_options":     q.streamOptions,
		"max_tokens":         tokens,
		"temperature":        option(infer.OptionTemperature, number(&q.o.Temperature, 0, 100)),
		"top_p":              option(infer.OptionTopP, number(&q.o.TopP, 0, 1)),
		"top_k":              option(infer.OptionTopK, q.topK),
		"min_p":              option(infer.OptionMinP, number(&q.o.MinP, 0, 0.999999)),
		"repetition_penalty": option(infer.OptionRepetitionPenalty, number(&q.o.RepetitionPenalty, 1e-3, 1e3)),
		"seed":               q.seed,
		"stop":               option(infer.OptionStop, q.stop),

		"n":                 only("1"),
		"frequency_penalty": only("0"),
		"presence_penalty":  only("0"),
		"logit_bias":        only("{}"),

		"user": ignored, "metadata": ignored, "store": only("false"), "service_tier": only(`"auto"`, `"default"`),
		"safety_identifier": ignored, "prompt_cache_key": ignored,
	}
	if q.chat {
		keys["messages"] = q.messages
		keys["max_completion_tokens"] = tokens
		keys["tools"], keys["tool_choice"] = q.functions, q.toolChoice
		keys["parallel_tool_calls"] = only("true")
		keys["chat_template_kwargs"] = q.templateVars
		keys["logprobs"], keys["top_logprobs"] = only("false"), only("0")
		keys["response_format"] = q.format
		keys["modalities"] = only(`["text"]`)
		return keys
	}
	keys["prompt"] = q.prompt
	keys["logprobs"], keys["best_of"], keys["echo"], keys["suffix"] = only(), only("1"), only("false"), only(`""`)
	return keys
}

func ignored(string, json.RawMessage) error { return nil }

// only accepts values with which a key that is not supported has no effect.
func only(values ...string) setter {
	return func(key string, v json.RawMessage) error {
		var plain bytes.Buffer
		_ = json.Compact(&plain, v) // v is JSON
		for _, one := range values {
			var a, b float64
			if one == plain.String() || json.Unmarshal([]byte(one), &a) == nil && json.Unmarshal(v, &b) == nil && a == b {
				return nil
			}
		}
		if len(values) == 0 {
			return bad(key, "%s is not supported: remove it", key)
		}
		return bad(key, "%s = %s is not supported; use %s or remove it", key, strictjson.Show(v), values[0])
	}
}

func text(to *string) setter {
	return func(key string, v json.RawMessage) error {
		if json.Unmarshal(v, to) != nil {
			return bad(key, "%s is %s: it must be a text", key, strictjson.Show(v))
		}
		return nil
	}
}

func truth(to *bool) setter {
	return func(key string, v json.RawMessage) error {
		if json.Unmarshal(v, to) != nil {
			return bad(key, "%s is %s: it must be true or false", key, strictjson.Show(v))
		}
		return nil
	}
}

func number(to *float64, least, most float64) setter {
	return func(key string, v json.RawMessage) error {
		if json.Unmarshal(v, to) != nil || !(*to >= least && *to <= most) {
			return bad(key, "%s is %s: it must be a number from %g to %g", key, strictjson.Show(v), least, most)
		}
		return nil
	}
}

func wholeNumber(to *int, least, most int) setter {
	return func(key string, v json.RawMessage) error {
		var n float64
		if json.Unmarshal(v, &n) != nil || n != math.Trunc(n) || !(n >= float64(least) && n <= float64(most)) {
			return bad(key, "%s is %s: it must be a whole number from %d to %d", key, strictjson.Show(v), least, most)
		}
		*to = int(n)
		return nil
	}
}

// topK reads top_k: other servers use -1 for all tokens.
func (q *request) topK(key string, v json.RawMessage) error {
	err := wholeNumber(&q.o.TopK, -1, math.MaxInt32)(key, v)
	q.o.TopK = max(q.o.TopK, 0)
	return err
}

func (q *request) seed(key string, v json.RawMessage) error {
	var n int64
	if json.Unmarshal(v, &n) != nil {
		return bad(key, "seed is %s: it must be a whole number", strictjson.Show(v))
	}
	q.o.Seed = uint64(n)
	return nil
}

// randomSeed is the seed of a request without one.
func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return binary.LittleEndian.Uint64(b[:])
}

func (q *request) stop(key string, v json.RawMessage) error {
	var one string
	if json.Unmarshal(v, &one) == nil {
		q.o.Stop = []string{one}
	} else if json.Unmarshal(v, &q.o.Stop) != nil {
		return bad(key, "stop is %s: it must be a text or a list of texts", strictjson.Show(v))
	}
	switch {
	case len(q.o.Stop) > limitStops:
		return bad(key, "stop has %d texts; the limit is %d", len(q.o.Stop), limitStops)
	case slices.Contains(q.o.Stop, ""):
		return bad(key, "stop has an empty text; leave it out")
	}
	return nil
}

func (q *request) streamOptions(key string, v json.RawMessage) error {
	var o map[string]json.RawMessage
	if json.Unmarshal(v, &o) != nil {
		return bad(key, "stream_options is %s: it must be an object", strictjson.Show(v))
	}
	for name, v := range o {
		switch name {
		case "include_usage":
			if err := truth(&q.usage)(key, v); err != nil {
				return err
			}
		case "include_obfuscation":
			if err := only("false")(key+"."+name, v); err != nil {
				return err
			}
		default:
			return bad(key, "stream_options has the unknown key %s", strictjson.Quote(name))
		}
	}
	return nil
}

func (q *request) format(key string, v json.RawMessage) error {
	var f struct{ Type string }
	if json.Unmarshal(v, &f) != nil || f.Type != "text" {
		return bad(key, "response_format = %s is not supported: use the type text or remove it", strictjson.Show(v))
	}
	return nil
}

// prompt reads the prompt of a completion: a text, or a list of one.
func (q *request) prompt(key string, v json.RawMessage) error {
	var list []string
	switch {
	case json.Unmarshal(v, &q.o.Prompt) == nil:
	case json.Unmarshal(v, &list) == nil && len(list) == 1:
		q.o.Prompt = list[0]
	default:
		return bad(key, "prompt is %s: it must be one text; send a request for each prompt", strictjson.Show(v))
	}
	return nil
}
