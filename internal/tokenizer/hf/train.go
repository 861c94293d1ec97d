package hf

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Trainer makes a byte-level BPE tokenizer from texts, with the words of Llama 3's pattern. The
// same texts give the same tokenizer, in any order. The most frequent pair is merged first; of
// equally frequent pairs the one with the lower first id, then with the lower second id, as in the
// tokenizers library's BpeTrainer.
type Trainer struct {
	chars *table
	words map[string]int64
	valid []byte
	total int64
}

// NewTrainer returns a Trainer without texts.
func NewTrainer() *Trainer { return &Trainer{chars: chars(), words: make(map[string]int64)} }

// Add counts the words of a text.
func (t *Trainer) Add(text []byte) {
	if !utf8.Valid(text) {
		t.valid = appendValid(t.valid[:0], text)
		text = t.valid
	}
	t.total += int64(len(text))
	for len(text) > 0 {
		n := scanLlama(t.chars, text, 3, propLetter)
		t.words[string(text[:n])]++
		text = text[n:]
	}
}

// Bytes returns the size of the added texts.
func (t *Trainer) Bytes() int64 { return t.total }

// byteTokens is the number of tokens before the first merge, besides special ones.
const byteTokens = 256

// Train returns the tokenizer.json of a vocabulary of at most vocab tokens, and its size: the
// special tokens, then the bytes, then the results of merges. It has fewer tokens if the texts have
// no more pairs.
func (t *Trainer) Train(vocab int, special []string) (file []byte, size int, err error) {
	if least := byteTokens + len(special); vocab < least || vocab > maxTokens {
		return nil, 0, fmt.Errorf("the vocabulary has %d tokens: it must have from %d (256 bytes and %d special tokens) to %d", vocab, least,
			len(special),
			maxTokens)
	}
	m := &merger{counts: make(map[[2]int32]int64), ids: make(map[string]int32)}
	for _, name := range special {
		if _, twice := m.ids[name]; twice || name == "" || !utf8.ValidString(name) {
			return nil, 0, fmt.Errorf("the special token %s is empty, occurs twice, or is not UTF-8", quote(name))
		}
		if utf8.RuneCountInString(name) == 1 {
			return nil, 0, fmt.Errorf("the special token %s has only one character, which could be the name of a byte: use a longer name",
				quote(name))
		}
		m.token(name)
	}
	names := slices.Clone(byteNames[:])
	slices.Sort(names) // by code points, as UTF-8 sorts
	for _, name := range names {
		m.token(name)
	}
	if len(t.words) == 0 {
		return nil, 0, errors.New("there is no text to train on")
	}
	for _, word := range slices.Sorted(maps.Keys(t.words)) {
		ids := make([]int32, len(word))
		for i := range len(word) {
			ids[i] = m.ids[byteNames[word[i]]]
		}
		m.words = append(m.words, ids)
		m.times = append(m.times, t.words[word])
	}
	m.merge(vocab)
	file, err = m.file(special)
	return file, len(m.names), err
}

// merger merges pairs in words.
type merger struct {
	names  []string // of tokens, by id
	ids    map[string]int32
	words  [][]int32
	times  []int64 // how often each word comes
	counts map[[2]int32]int64
	queue  pairQueue
	merges [][2]int32
}

func (m *merger) token(name string) int32 {
	id, ok := m.ids[name]
	if !ok {
		id = int32(len(m.names))
		m.names = append(m.names, name)
		m.ids[name] = id
	}
	return id
}

// pairCount is a pair in the queue, with the words that contain it.
type pairCount struct {
	pair  [2]int32
	count int64
	in    []int32
}

type pairQueue []pairCount

func (q pairQueue) Len() int { return len(q) }
func (q pairQueue) Less(i, j int) bool {
	if q[i].count != q[j].count {
		return q[i].count > q[j].count
	}
	return cmp.Or(cmp.Compare(q[i].pair[0], q[j].pair[0]), cmp.Compare(q[i].pair[1], q[j].pair[1])) < 0
}
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(pairCount)) }
func (q *pairQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = pairCount{}
	*q = (*q)[:last]
	return x
}

// merge merges until there are vocab tokens.
//
// A pair's count is the library's: it stays when the pair is merged. So if the pair appears again,
// because another merge results in the same token, counting continues from there.
func (m *merger) merge(vocab int) {
	where := make(map[[2]int32][]int32) // pairs that are new, and the words that have them
	note := func(pair [2]int32, word int32) {
		if in := where[pair]; len(in) == 0 || in[len(in)-1] != word {
			where[pair] = append(in, word)
		}
	}
	queue := func() {
		for pair, in := range where {
			if m.counts[pair] > 0 {
				heap.Push(&m.queue, pairCount{pair, m.counts[pair], in})
			}
		}
		clear(where)
	}
	for i, word := range m.words {
		for j := 1; j < len(word); j++ {
			pair := [2]int32{word[j-1], word[j]}
			m.counts[pair] += m.times[i]
			note(pair, int32(i))
		}
	}
	queue()
	for len(m.names) < vocab && len(m.queue) > 0 {
		top := heap.Pop(&m.queue).(pairCount)
		if count := m.counts[top.pair]; count != top.count {
			if top.count = count; count > 0 {
				heap.Push(&m.queue, top)
			}
			continue
		}
		token := m.token(m.names[top.pair[0]] + m.names[top.pair[1]])
		m.merges = append(m.merges, top.pair)
		for _, i := range top.in {
			m.words[i] = m.replace(m.words[i], top.pair, token, func(pair [2]int32, by int64) {
				m.counts[pair] += by * m.times[i]
				if by > 0 {
					note(pair, i)
				}
			})
		}
		queue()
	}
}

// replace merges a pair in a word, and calls change for the pairs that it has fewer and more
// of then.
func (m *merger) replace(word []int32, pair [2]int32, token int32, change func(pair [2]int32, by int64)) []int32 {
	out := word[:0]
	for i := 0; i < len(word); i++ {
		if word[i] != pair[0] || i+1 == len(word) || word[i+1] != pair[1] {
			out = append(out, word[i])
			continue
		}
		if len(out) > 0 {
			before := out[len(out)-1]
			change([2]int32{before, pair[0]}, -1)
			change([2]int32{before, token}, 1)
		}
		if i+2 < len(word) {
			change([2]int32{pair[1], word[i+2]}, -1)
			change([2]int32{token, word[i+2]}, 1)
		}
		out = append(out, token)
		i++
	}
	return out
}

// file writes the trained tokenizer.
func (m *merger) file(special []string) ([]byte, error) {
	type object = map[string]any
	var added []any
	for id, name := range special {
		added = append(added, ordered{{"id", id}, {"content", name}, {"single_word", false}, {"lstrip", false}, {"rstrip", false},
			{"normalized", false}, {"special", true}})
	}
	var vocab ordered
	for id, name := range m.names {
		vocab = append(vocab, member{name, id})
	}
	// Of a pair that was merged twice the last time counts.
	merges, seen := [][2]string{}, make(map[[2]int32]bool)
	for _, pair := range slices.Backward(m.merges) {
		if !seen[pair] {
			seen[pair] = true
			merges = append(merges, [2]string{m.names[pair[0]], m.names[pair[1]]})
		}
	}
	slices.Reverse(merges)
	byteLevel := ordered{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}
	return marshal(ordered{
		{"version", "1.0"}, {"truncation", nil}, {"padding", nil}, {"added_tokens", added}, {"normalizer", nil},
		{"pre_tokenizer", ordered{{"type", "Sequence"}, {"pretokenizers", []any{
			ordered{{"type", "Split"}, {"pattern", object{"Regex": patternLlama}}, {"behavior", isolated}, {"invert", false}},
			byteLevel,
		}}}},
		{"post_processor", nil}, {"decoder", byteLevel},
		{"model", ordered{{"type", "BPE"}, {"dropout", nil}, {"unk_token", nil}, {"continuing_subword_prefix", nil}, {"end_of_word_suffix", nil},
			{"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", false}, {"vocab", vocab}, {"merges", merges}}},
	})
}

// ordered is a JSON object with its members in order.
type ordered []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members.
func (o ordered) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		for j, v := range []any{m.name, m.value} {
			text, err := compact(v)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				out.WriteByte(':')
			}
			out.Write(text)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// compact leaves <, > and & as they are.
func compact(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

func marshal(v any) ([]byte, error) {
	text, err := compact(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
