package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// decoderKeys are the settings of each decoder. Those of ByteLevel have no effect on a text.
var decoderKeys = map[string][]string{
	"ByteFallback": {}, "Fuse": {},
	"ByteLevel":  {"add_prefix_space", "trim_offsets", "use_regex"},
	"Metaspace":  metaKeys,
	"Replace":    {"pattern", "content"},
	"Strip":      {"content", "start", "stop"},
	"BPEDecoder": {"suffix"},
	"WordPiece":  {"prefix", "cleanup"},
}

func (t *Tokenizer) parseDecoder(data json.RawMessage, depth int) ([]decodeStep, error) {
	s, kind, err := typed(data)
	if err != nil {
		return nil, err
	}
	one := func(f decodeStep) ([]decodeStep, error) { return []decodeStep{f}, nil }
	if err := checked(decoderKeys, s, kind); err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel":
		return one(func(next decodePart) decodePart { return &bytesFromNames{next: next} })
	case "ByteFallback":
		return one(func(next decodePart) decodePart { return &byteFallback{next: next} })
	case "Fuse":
		return one(func(next decodePart) decodePart { return fuse{next} })
	case "Metaspace":
		char, scheme, err := parseMeta(s)
		if err != nil {
			return nil, within("Metaspace", err)
		}
		return one(func(next decodePart) decodePart {
			return &spaceFor{next: next, char: []byte(char), drop: scheme != "never"}
		})
	case "Replace":
		r, err := parseReplace(s)
		if err != nil {
			return nil, within("Replace", err)
		}
		return one(func(next decodePart) decodePart {
			w := &work{}
			return &wholeTokens{next: next, change: func(dst, token []byte) []byte { return r.apply(w, dst, token) }}
		})
	case "Strip":
		var char string
		var start, stop int
		if err := errors.Join(s.into("content", &char), s.into("start", &start), s.into("stop", &stop)); err != nil {
			return nil, within("Strip", err)
		}
		if utf8.RuneCountInString(char) != 1 || start < 0 || stop < 0 || stop > math.MaxInt16 {
			return nil, within("Strip", fmt.Errorf("impossible content %s, start %d or stop %d", clip(s["content"]), start, stop))
		}
		return one(func(next decodePart) decodePart {
			return &stripChar{next: next, char: []byte(char), start: start, stop: stop}
		})
	case "BPEDecoder":
		suffix := "</w>"
		if err := s.into("suffix", &suffix); err != nil || suffix == "" {
			return nil, within("BPEDecoder", fmt.Errorf("unsupported suffix %s", clip(s["suffix"])))
		}
		return one(func(next decodePart) decodePart { return &wordEnds{next: next, suffix: []byte(suffix)} })
	case "WordPiece":
		var prefix string
		var cleanup bool
		if !s.has("prefix") || !s.has("cleanup") {
			return nil, within("WordPiece", errors.New("prefix or cleanup is missing"))
		}
		if err := errors.Join(s.into("prefix", &prefix), s.into("cleanup", &cleanup)); err != nil {
			return nil, within("WordPiece", err)
		}
		return one(func(next decodePart) decodePart {
			return &joinPieces{next: next, prefix: []byte(prefix), cleanup: cleanup}
		})
	case "Sequence":
		return sequence(s, "decoders", depth, t.parseDecoder)
	}
	return nil, unknown(kind)
}
