package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Symbol is one part of a model in a layout.
type Symbol byte

// The symbols of the layout language.
const (
	SymbolEmbedding Symbol = 'E'
	SymbolLayer     Symbol = 't'
	SymbolMTP       Symbol = 'm' // multi-token-prediction layer
	SymbolLoss      Symbol = 'L' // head and loss
)

const layoutSymbols = "EtmL"

// Layout says which parts of a model each chunk holds. A chunk may be empty: it passes its input
// on.
type Layout struct {
	Chunks [][]Symbol
}

// ParseLayout reads the layout language:
//
//	E t m L     a part of the model: embedding, layer, multi-token-prediction layer, loss
//	|           ends a chunk
//	x*3         three times the part (or the end of a chunk)
//	(tt|)*29    29 times the content of the parentheses, which can't be nested
//	,           ignored; it makes the text easier to read
//
// Et*3|(tt|)*29,m|L has 32 chunks and 61 layers. An error is ErrSyntax and names the column,
// counted from 1.
func ParseLayout(text string) (*Layout, error) {
	p := layoutParser{text: text}
	cells, err := p.sequence(false)
	if err != nil {
		return nil, fmt.Errorf("%w: layout %q, column %d: %w", ErrSyntax, shorten(text), p.position+1, err)
	}
	l := &Layout{}
	for chunk := range strings.SplitSeq(string(cells), "|") {
		l.Chunks = append(l.Chunks, []Symbol(chunk))
	}
	return l, nil
}

// layoutParser expands a layout to its symbols and chunk ends.
type layoutParser struct {
	text     string
	position int // of the next character, or of the error
}

// peek returns the next character that isn't ignored, 0 at the end.
func (p *layoutParser) peek() byte {
	for p.position < len(p.text) && p.text[p.position] == ',' {
		p.position++
	}
	if p.position == len(p.text) {
		return 0
	}
	return p.text[p.position]
}

func (p *layoutParser) sequence(inGroup bool) ([]byte, error) {
	var cells []byte
	for {
		c := p.peek()
		start := p.position
		unit := []byte{c}
		switch {
		case start == len(p.text):
			if inGroup {
				return nil, errors.New("a parenthesis is not closed")
			}
			return cells, nil
		case c == '|' || strings.IndexByte(layoutSymbols, c) >= 0:
			p.position++
		case c == '(' && !inGroup:
			var err error
			if unit, err = p.group(); err != nil {
				return nil, err
			}
		case c == '(':
			return nil, errors.New("parentheses cannot be nested")
		case c == ')' && inGroup:
			return cells, nil
		case c == ')':
			return nil, errors.New("this parenthesis was never opened")
		case c == '*':
			return nil, errors.New("nothing stands before * to repeat")
		default:
			odd, _ := utf8.DecodeRuneInString(p.text[start:])
			return nil, fmt.Errorf("unexpected %q, want one of E t m L | ( ) * ,", odd)
		}
		n, err := p.count(c == '(')
		if err != nil {
			return nil, err
		}
		if n > (MaxLayoutSymbols-len(cells))/len(unit) {
			p.position = start
			return nil, fmt.Errorf("the layout expands to more than %d symbols", MaxLayoutSymbols)
		}
		cells = append(cells, slices.Repeat(unit, n)...)
	}
}

// group reads the content of parentheses.
func (p *layoutParser) group() ([]byte, error) {
	p.position++
	cells, err := p.sequence(true)
	if err != nil {
		return nil, err
	}
	if len(cells) == 0 {
		return nil, errors.New("the parentheses are empty")
	}
	p.position++
	return cells, nil
}

// count reads a repetition. Without one it returns 1, or an error if one is required.
func (p *layoutParser) count(required bool) (int, error) {
	if p.peek() != '*' {
		if required {
			return 0, errors.New("parentheses need a repetition, such as (tt|)*4")
		}
		return 1, nil
	}
	p.position++
	p.peek()
	start := p.position
	for p.position < len(p.text) && isDigit(p.text[p.position]) {
		p.position++
	}
	digits := p.text[start:p.position]
	n, err := strconv.Atoi(digits)
	switch {
	case digits == "":
		return 0, errors.New("a number must follow *")
	case err != nil || n > MaxLayoutSymbols:
		p.position = start
		return 0, fmt.Errorf("%s repetitions exceed the limit of %d", shorten(digits), MaxLayoutSymbols)
	}
	if p.peek() == '*' {
		return 0, errors.New("a repetition cannot be repeated")
	}
	return n, nil
}

// String writes the layout in one canonical form: three or more equal parts or equal chunks in a
// row as a repetition, everything else in full.
func (l *Layout) String() string {
	chunks := make([]string, len(l.Chunks))
	for i, symbols := range l.Chunks {
		chunks[i] = chunkString(symbols)
	}
	var w layoutWriter
	last := len(chunks) - 1
	for i := 0; i < last; {
		n := 1
		for i+n < last && chunks[i+n] == chunks[i] {
			n++
		}
		if n >= repeatFrom {
			w.add("(" + chunks[i] + "|)" + "*" + strconv.Itoa(n))
			i += n
			continue
		}
		w.add(chunks[i] + "|")
		i++
	}
	if last >= 0 {
		w.add(chunks[last])
	}
	return w.text.String()
}

// repeatFrom is the smallest count that is written as a repetition.
const repeatFrom = 3

func chunkString(symbols []Symbol) string {
	var w layoutWriter
	for len(symbols) > 0 {
		n := 1
		for n < len(symbols) && symbols[n] == symbols[0] {
			n++
		}
		if n >= repeatFrom {
			w.add(string(symbols[0]) + "*" + strconv.Itoa(n))
		} else {
			w.add(strings.Repeat(string(symbols[0]), n))
		}
		symbols = symbols[n:]
	}
	return w.text.String()
}

// layoutWriter puts a comma between a number and a symbol that follows it.
type layoutWriter struct {
	text    strings.Builder
	inCount bool
}

func (w *layoutWriter) add(s string) {
	if s == "" {
		return
	}
	if w.inCount && s[0] != '|' {
		w.text.WriteByte(',')
	}
	w.text.WriteString(s)
	w.inCount = isDigit(s[len(s)-1])
}
