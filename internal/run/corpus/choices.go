package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/data"
)

// Limits of a multiple-choice item.
const (
	leastChoices = 2
	mostChoices  = 100
)

// ChoiceItem is an item of a multiple-choice file.
type ChoiceItem struct {
	File    string
	Row     int
	Prompt  string
	Choices []string
	Answer  int // the index of the right choice
}

// ReadChoices reads multiple-choice items from files of JSON lines. An object has "prompt", a text that the choices continue, or
// "question", which becomes "Question: …\nAnswer:"; "choices", a list of texts; and "answer", the index of the right one from 0, or its
// letter from "A".
func ReadChoices(patterns []string) (items []ChoiceItem, err error) {
	files, err := data.Files(patterns)
	if err != nil {
		return nil, unreadable(err)
	}
	text, err := data.ReadText(files)
	if err != nil {
		return nil, unreadable(err)
	}
	err = text.Lines(func(file string, row int, line []byte) error {
		item, err := readChoice(line)
		item.File, item.Row = file, row
		items = append(items, item)
		if err != nil {
			return fmt.Errorf("%s, row %d: %w", data.Plain(file), row, err)
		}
		return nil
	})
	if err == nil && len(items) == 0 {
		err = fmt.Errorf("%w: %s has no items", data.ErrEmpty, Listed(files))
	}
	return items, err
}

func readChoice(line []byte) (item ChoiceItem, err error) {
	m, err := readRow(line, nil)
	if err != nil {
		return item, err
	}
	switch asked := m.has("question"); {
	case asked == m.has("prompt"):
		return item, errors.New(`the object must have either "prompt" or "question"`)
	case asked:
		var question string
		question, err = m.text("question")
		item.Prompt = "Question: " + question + "\nAnswer:"
	default:
		item.Prompt, err = m.text("prompt")
	}
	if err != nil {
		return item, err
	}
	var choices []*string // nil: null
	if !m.has("choices") || json.Unmarshal(m.value("choices"), &choices) != nil || slices.Contains(choices, nil) {
		return item, errors.New(`"choices" must be a list of strings`)
	}
	for _, text := range choices {
		item.Choices = append(item.Choices, *text)
	}
	if n := len(item.Choices); n < leastChoices || n > mostChoices {
		return item, fmt.Errorf(`"choices" must have %d to %d texts, not %d`, leastChoices, mostChoices, n)
	}
	if i := slices.IndexFunc(item.Choices, func(s string) bool { return strings.TrimSpace(s) == "" }); i >= 0 {
		return item, fmt.Errorf(`choice %d is empty; its log-likelihood would be 0`, i+1)
	}
	item.Answer, err = answerOf(m.value("answer"), len(item.Choices))
	return item, err
}

// answerOf reads the index or the letter of one of n choices.
func answerOf(value json.RawMessage, n int) (int, error) {
	var index int
	var letter string
	switch {
	case value == nil:
		return 0, errors.New(`there is no "answer"; give the index of the right choice from 0, or its letter from "A"`)
	case json.Unmarshal(value, &index) == nil && string(value) != "null":
	case json.Unmarshal(value, &letter) == nil && len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'Z':
		index = int(letter[0] - 'A')
	default:
		return 0, fmt.Errorf(`"answer" is %s, but must be an index from 0 or a letter from "A"`, data.Plain(string(value)))
	}
	if index < 0 || index >= n {
		return 0, fmt.Errorf(`"answer" is %s, but there are %d choices: use 0 to %d, or "A" to "%c"`, data.Plain(string(value)), n, n-1,
			'A'+rune(min(n, 26)-1))
	}
	return index, nil
}

// ChoiceTokens has the ids of an item's choices after its prompt.
type ChoiceTokens struct {
	IDs    [][]int32 // of the prompt and each choice
	First  []int     // the index of each choice's first token
	Length []int     // characters of each choice, as in the file
}

// Choices encodes the items as lm-evaluation-harness does: a blank separates the prompt from a choice, blanks at the end of the prompt
// belong to the choices. A choice begins at the index that is the prompt's number of tokens alone.
func (m *Text) Choices(item ChoiceItem) (t ChoiceTokens, err error) {
	prompt := strings.TrimRight(item.Prompt, " \t\n\r")
	blanks := item.Prompt[len(prompt):]
	before, err := m.Encode(prompt)
	if err != nil {
		return t, err
	}
	for i, choice := range item.Choices {
		text := blanks + choice
		if blanks == "" && !strings.HasPrefix(choice, " ") {
			text = " " + choice
		}
		whole, err := m.Encode(prompt + text)
		if err != nil {
			return t, err
		}
		first := max(len(before), 1)
		if first >= len(whole) {
			return t, fmt.Errorf("choice %d (%s) has no token of its own after the prompt, or nothing comes before it", i+1,
				strconv.Quote(choice))
		}
		t.IDs, t.First = append(t.IDs, whole), append(t.First, first)
		t.Length = append(t.Length, utf8.RuneCountInString(choice))
	}
	return t, nil
}
