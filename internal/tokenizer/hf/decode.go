package hf

import (
	"bytes"
	"unicode/utf8"
)

// Decoder decodes ids one by one. Its results can be printed at once; together they are the text of
// all ids.
type Decoder struct {
	t       *Tokenizer
	special bool
	first   decodePart
	sink    *sink
}

// NewDecoder starts a text. With special, the names of special tokens are part of it.
func (t *Tokenizer) NewDecoder(special bool) *Decoder {
	d := &Decoder{t: t, special: special, sink: &sink{joined: t.joined}}
	d.first = d.sink
	for i := len(t.decoders) - 1; i >= 0; i-- {
		d.first = t.decoders[i](d.first)
	}
	return d
}

// Next appends the text that an id completes. Ids without a token have no text.
func (d *Decoder) Next(dst []byte, id int32) []byte {
	name, ok := d.t.Token(id)
	if !ok || !d.special && d.t.special[name] {
		return dst
	}
	d.sink.out = dst
	d.first.text([]byte(name))
	d.first.tokenEnd()
	dst, d.sink.out = d.sink.out, nil
	return dst
}

// Flush appends the text that is still held back, at the end.
func (d *Decoder) Flush(dst []byte) []byte {
	d.sink.out = dst
	d.first.end()
	dst, d.sink.out = d.sink.out, nil
	return dst
}

// AppendDecode appends the text of ids.
func (t *Tokenizer) AppendDecode(dst []byte, ids []int32, special bool) []byte {
	d := t.NewDecoder(special)
	for _, id := range ids {
		dst = d.Next(dst, id)
	}
	return d.Flush(dst)
}

// decodePart is a step of decoding. Tokens arrive in parts, which are valid only during the call.
type decodePart interface {
	text(part []byte)
	tokenEnd()
	end()
}

// decodeStep makes a part that passes its results to the next one.
type decodeStep func(next decodePart) decodePart

// sink is the text.
type sink struct {
	out    []byte
	joined bool // by spaces
	later  bool // there was a token
	begun  bool // this one has begun
}

func (s *sink) text(part []byte) {
	s.begin()
	s.out = append(s.out, part...)
}

func (s *sink) begin() {
	if s.joined && s.later && !s.begun {
		s.out = append(s.out, ' ')
	}
	s.begun = true
}

func (s *sink) tokenEnd() {
	s.begin()
	s.later, s.begun = true, false
}

func (s *sink) end() {}

// wholeTokens changes tokens one by one.
type wholeTokens struct {
	next   decodePart
	change func(dst, token []byte) []byte
	token  []byte
	out    []byte
}

func (c *wholeTokens) text(part []byte) { c.token = append(c.token, part...) }

func (c *wholeTokens) tokenEnd() {
	c.out = c.change(c.out[:0], c.token)
	c.token = c.token[:0]
	c.next.text(c.out)
	c.next.tokenEnd()
}

func (c *wholeTokens) end() { c.next.end() }

// fuse joins all tokens.
type fuse struct{ next decodePart }

func (f fuse) text(part []byte) { f.next.text(part) }
func (f fuse) tokenEnd()        {}
func (f fuse) end() {
	f.next.tokenEnd()
	f.next.end()
}

// bytesFromNames joins the bytes of all tokens. A token with a character that is not the name of a
// byte stands for itself.
type bytesFromNames struct {
	next  decodePart
	token []byte
	held  []byte // the beginning of a character behind what was handed on
	out   []byte
}

func (b *bytesFromNames) text(part []byte) { b.token = append(b.token, part...) }

func (b *bytesFromNames) tokenEnd() {
	held, ok := unspell(b.held, string(b.token))
	if !ok {
		held = append(held, b.token...)
	}
	b.held = held
	b.token = b.token[:0]
	b.hand(len(b.held) - unfinished(b.held))
}

func (b *bytesFromNames) hand(n int) {
	b.out = appendValid(b.out[:0], b.held[:n])
	b.held = b.held[:copy(b.held, b.held[n:])]
	if len(b.out) > 0 {
		b.next.text(b.out)
	}
}

func (b *bytesFromNames) end() {
	b.hand(len(b.held))
	b.next.tokenEnd()
	b.next.end()
}

// byteFallback turns consecutive tokens such as <0x41> into text or, if they are not UTF-8, into
// one U+FFFD for each.
type byteFallback struct {
	next  decodePart
	token []byte
	bytes []byte
}

func (f *byteFallback) text(part []byte) { f.token = append(f.token, part...) }

func (f *byteFallback) tokenEnd() {
	if b, ok := byteToken(f.token); ok {
		f.bytes = append(f.bytes, b)
	} else {
		f.flush()
		f.next.text(f.token)
		f.next.tokenEnd()
	}
	f.token = f.token[:0]
}

func (f *byteFallback) flush() {
	switch {
	case len(f.bytes) == 0:
		return
	case utf8.Valid(f.bytes):
		f.next.text(f.bytes)
		f.next.tokenEnd()
	default:
		for range f.bytes {
			f.next.text([]byte(replacement))
			f.next.tokenEnd()
		}
	}
	f.bytes = f.bytes[:0]
}

func (f *byteFallback) end() {
	f.flush()
	f.next.end()
}

// byteToken reads a token such as <0x41>. Like the library, it also accepts +A as a number.
func byteToken(token []byte) (byte, bool) {
	if len(token) != 6 || !bytes.HasPrefix(token, []byte("<0x")) || token[5] != '>' {
		return 0, false
	}
	digits := token[3:5]
	if digits[0] == '+' {
		digits = digits[1:]
	}
	n := 0
	for _, d := range digits {
		switch {
		case d >= '0' && d <= '9':
			n = n<<4 | int(d-'0')
		case d >= 'a' && d <= 'f':
			n = n<<4 | int(d-'a'+10)
		case d >= 'A' && d <= 'F':
			n = n<<4 | int(d-'A'+10)
		default:
			return 0, false
		}
	}
	return byte(n), true
}

// spaceFor writes a character as a space. In the first token it drops it, if encoding has prepended
// it.
type spaceFor struct {
	next  decodePart
	char  []byte
	drop  bool
	later bool
	token []byte
	out   []byte
}

func (m *spaceFor) text(part []byte) { m.token = append(m.token, part...) }

func (m *spaceFor) tokenEnd() {
	with := space
	if m.drop && !m.later {
		with = nil
	}
	m.out = replaceLiteral{m.char, with}.apply(nil, m.out[:0], m.token)
	m.token, m.later = m.token[:0], true
	m.next.text(m.out)
	m.next.tokenEnd()
}

func (m *spaceFor) end() { m.next.end() }

// stripChar removes a character, up to a number of times, at both ends of each token.
type stripChar struct {
	next        decodePart
	char        []byte
	start, stop int
	taken       int  // at this token's beginning
	inside      bool // of the token: nothing more is taken
	held        int  // at its end, so far
	out         []byte
}

func (s *stripChar) text(part []byte) {
	for !s.inside && s.taken < s.start && bytes.HasPrefix(part, s.char) {
		part = part[len(s.char):]
		s.taken++
	}
	if len(part) == 0 {
		return
	}
	s.inside = true
	if s.stop == 0 {
		s.next.text(part)
		return
	}
	s.out = s.out[:0]
	for range s.held {
		s.out = append(s.out, s.char...)
	}
	s.out = append(s.out, part...)
	end := len(s.out)
	for s.held = 0; s.held < s.stop && bytes.HasSuffix(s.out[:end], s.char); s.held++ {
		end -= len(s.char)
	}
	s.next.text(s.out[:end])
}

func (s *stripChar) tokenEnd() {
	s.taken, s.inside, s.held = 0, false, 0
	s.next.tokenEnd()
}

func (s *stripChar) end() { s.next.end() }

// wordEnds writes the marker of a word's end as a space, except in the last token.
type wordEnds struct {
	next   decodePart
	suffix []byte
	token  []byte
	last   []byte // the token before
	any    bool
	out    []byte
}

func (e *wordEnds) text(part []byte) { e.token = append(e.token, part...) }

func (e *wordEnds) tokenEnd() {
	if e.any {
		e.hand(space)
	}
	e.last, e.token, e.any = e.token, e.last[:0], true
}

func (e *wordEnds) hand(with []byte) {
	e.out = replaceLiteral{e.suffix, with}.apply(nil, e.out[:0], e.last)
	e.next.text(e.out)
	e.next.tokenEnd()
}

func (e *wordEnds) end() {
	if e.any {
		e.hand(nil)
	}
	e.next.end()
}
