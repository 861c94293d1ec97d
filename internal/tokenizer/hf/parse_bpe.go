package hf

import (
	"encoding/json"
	"fmt"
	"strings"
)

func parseBPE(s settings) (*bpe, error) {
	m := &bpe{}
	var dropout float64
	var unk *string
	for _, o := range []struct {
		name string
		into any
	}{
		{"dropout", &dropout}, {"unk_token", &unk}, {"continuing_subword_prefix", &m.prefix}, {"end_of_word_suffix", &m.suffix},
		{"fuse_unk", &m.fuseUnk}, {"byte_fallback", &m.byteFallback}, {"ignore_merges", &m.ignoreMerges},
	} {
		if err := s.into(o.name, o.into); err != nil {
			return nil, err
		}
	}
	if dropout != 0 {
		return nil, fmt.Errorf("%w: dropout is %g, which makes encoding random: replace it with null", ErrUnsupported, dropout)
	}
	ids, err := m.parseVocab(s["vocab"])
	if err != nil {
		return nil, err
	}
	if unk != nil {
		if m.unk, m.hasUnk = m.ids[*unk]; !m.hasUnk {
			return nil, fmt.Errorf("unk_token %s is not in the vocabulary", quote(*unk))
		}
	}
	merges, err := parseMerges(s["merges"])
	if err != nil {
		return nil, err
	}
	m.merges = newPairTable(len(merges))
	const meta = '▁'
	breaks := ids && m.prefix == "" && m.suffix == "" && (unk == nil || !strings.HasSuffix(*unk, string(meta)))
	if _, ok := m.ids[string(meta)]; !ok {
		breaks = false
	}
	for rank, pair := range merges {
		a, ok := m.ids[pair[0]]
		b, also := m.ids[pair[1]]
		for i, ok := range []bool{ok, also} {
			if !ok {
				return nil, fmt.Errorf("merge %d uses %s, which is not in the vocabulary", rank, quote(pair[i]))
			}
		}
		if len(pair[1]) < len(m.prefix) {
			return nil, fmt.Errorf("merge %d: %s is shorter than continuing_subword_prefix", rank, quote(pair[1]))
		}
		name := pair[0] + pair[1][len(m.prefix):]
		merged, ok := m.ids[name]
		if !ok {
			return nil, fmt.Errorf("merge %d results in %s, which is not in the vocabulary", rank, quote(name))
		}
		m.merges.put(pairSlot{a, b, int32(rank), merged})
		if strings.HasPrefix(pair[1], string(meta)) && !strings.HasSuffix(pair[0], string(meta)) {
			breaks = false
		}
	}
	if breaks {
		m.breakAt = meta
	}
	return m, nil
}

// parseMerges reads pairs, or strings with a space between both.
func parseMerges(data json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	if err := json.Unmarshal(data, &pairs); err == nil && pairs != nil {
		out := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("merge %d has %d tokens, want 2", i, len(p))
			}
			out[i] = [2]string(p)
		}
		return out, nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil || lines == nil {
		if data == nil {
			data = json.RawMessage("null")
		}
		return nil, fmt.Errorf("merges has the impossible value %s", clip(data))
	}
	var out [][2]string
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merge %d, %s, must be two tokens with a space between them", len(out), quote(line))
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}
