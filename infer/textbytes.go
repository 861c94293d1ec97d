package infer

import (
	"bytes"
	"slices"

	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// noText returns the ids without text, besides the tokenizer's special ones: those that the model's
// directory lists as end tokens, or with a name such as bos_token.
func noText(m *trained.Model) map[int32]bool {
	ids := make(map[int32]bool)
	said, err := m.Text()
	if err != nil { // then only the tokenizer's special ids have no text
		return ids
	}
	for _, id := range said.Talk.Ends {
		ids[id] = true
	}
	for _, name := range said.Talk.Special {
		if id, ok := m.Tokenizer.TokenID(name); ok {
			ids[id] = true
		}
	}
	return ids
}

// targetBytes is the number of bytes in the text of all targets: all tokens except the first of
// each piece. A special token has a name, but no text.
func targetBytes(c data.Corpus, tok tokenizer.Tokenizer, noText map[int32]bool) (n int64, err error) {
	ids := make([]int32, 1<<16)
	for _, p := range data.Pieces(c) {
		text := textBytes{tok: tok, noText: noText}
		for at := p.Off; at < p.Off+p.Len; {
			part := ids[:min(int64(len(ids)), p.Off+p.Len-at)]
			if err := c.Read(part, at); err != nil {
				return 0, err
			}
			if text.add(part); at == p.Off { // the first token is not a target
				first := textBytes{tok: tok, noText: noText}
				first.add(part[:1])
				n -= first.n
			}
			at += int64(len(part))
		}
		text.end()
		n += text.n
	}
	return n, nil
}

// textBytes counts the bytes of the text of ids. Ids without text separate texts.
type textBytes struct {
	tok    tokenizer.Tokenizer
	noText map[int32]bool
	text   *tokenizer.StreamDecoder // of the present text; nil: none has started
	ended  bool                     // an id without text has ended a text
	n      int64
}

// dummy is the number of bytes that a tokenizer adds before each text and does not remove when it decodes, if a text
// that starts with this id has them.
func dummy(tok tokenizer.Tokenizer, first int32) int64 {
	const one = "x"
	ids, err := tok.Encode([]byte(one))
	if err != nil || string(tok.DecodeText(ids)) != " "+one || !bytes.HasPrefix(tok.DecodeText([]int32{first}), []byte(" ")) {
		return 0
	}
	return 1
}

func (b *textBytes) add(ids []int32) {
	for len(ids) > 0 {
		upTo := slices.IndexFunc(ids, func(id int32) bool { return b.noText[id] || b.tok.IsSpecial(id) })
		if upTo == 0 {
			b.end()
			ids = ids[1:]
			continue
		}
		if upTo < 0 {
			upTo = len(ids)
		}
		if b.text == nil {
			if b.text = tokenizer.NewTextDecoder(b.tok); b.ended {
				b.n -= dummy(b.tok, ids[0])
			}
		}
		b.n += int64(len(b.text.Decode(ids[:upTo]...)))
		ids = ids[upTo:]
	}
}

// end ends the present text. Some tokenizers add a space before the next one.
func (b *textBytes) end() {
	b.ended = true
	if b.text != nil {
		b.n += int64(len(b.text.Flush()))
		b.text = nil
	}
}
