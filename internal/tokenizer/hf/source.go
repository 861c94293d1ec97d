package hf

// source says of each byte of a text which part of the original text it comes from.
type source struct {
	base int32  // where the text begins, if it is a part of the original
	of   []Span // else of each byte
}

// span is the part of the original that text[from:to] comes from.
func (s source) span(from, to int) Span {
	switch {
	case s.of == nil:
		return Span{s.base + int32(from), s.base + int32(to)}
	case from < to:
		return Span{s.of[from].From, s.of[to-1].To}
	case from < len(s.of):
		return Span{s.of[from].From, s.of[from].From}
	case len(s.of) > 0:
		end := s.of[len(s.of)-1].To
		return Span{end, end}
	}
	return Span{s.base, s.base}
}

// tail is the source of text[at:].
func (s source) tail(at int) source {
	if s.of == nil {
		return source{base: s.base + int32(at)}
	}
	return source{s.span(at, at).From, s.of[at:]}
}

// editFunc takes what a normalizer writes in place of text[from:to].
type editFunc func(from, to int, with []byte)

// edited is the source of what edits make of a text whose source s is.
func (s source) edited(text []byte, edits func(edit editFunc)) source {
	var of []Span
	done, changed := 0, false
	upTo := func(at int) {
		for ; done < at; done++ {
			of = append(of, s.span(done, done+1))
		}
	}
	edits(func(from, to int, with []byte) {
		if !changed {
			changed, of = true, make([]Span, 0, len(text)+len(with))
		}
		upTo(from)
		end := to
		if from == to && to < len(text) {
			end = charEnd(text, to) // what is put in front of a character belongs to it
		}
		from = min(from, end)
		for range with {
			of = append(of, s.span(from, end))
		}
		done = to
	})
	if !changed {
		return s
	}
	upTo(len(text))
	return source{s.base, of}
}

// editor is what changes a text.
type editor interface {
	edits(w *work, text []byte, edit editFunc)
}

// change makes w.source that of what e makes of the piece of a text at *at, which is at 0 of that
// then; what it returns changes both back.
func (w *work) change(at *int, text []byte, e editor) (back func()) {
	was := w.source
	w.source = was.tail(*at).edited(text, func(edit editFunc) { e.edits(w, text, edit) })
	*at = 0
	return func() { w.source = was }
}
