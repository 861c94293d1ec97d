//go:build unix && !race

package docs

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// checkCommands checks the lines of engine in a block that is not run: the commands exist, their flags too, and they
// have the arguments that they take.
func checkCommands(t *testing.T, f fence) {
	t.Helper()
	all, err := split(f.text)
	if err != nil {
		t.Errorf("%v: %v", f, err)
		return
	}
	for _, words := range all {
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || words[0] != "engine" {
			continue
		}
		if err := checkCommand(words[1:]); err != nil {
			t.Errorf("%v: %s: %v", f, strings.Join(words, " "), err)
		}
	}
}

var (
	assignment  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	commandName = regexp.MustCompile(`^[a-z][a-z-]*$`)
	helpFlag    = regexp.MustCompile(`(?m)^ {2,6}(?:-([a-zA-Z]), )?--([a-z0-9-]+)(\[=)?( [^ ])?`)
	optional    = regexp.MustCompile(`\[[^\]]*\]`)
	manyMore    = regexp.MustCompile(`\.\.\.|…`)
	helpUsage   = regexp.MustCompile(`(?m)^ +engine( .*)?$`)
)

// help is what a command's help says of it.
type help struct {
	path     []string        // the command's names
	takes    map[string]bool // its flags, and whether a value follows
	least    int             // arguments
	most     int
	any      bool // of arguments
	hasTasks bool // it has commands below it
}

// checkCommand compares a command line with the command's help.
func checkCommand(words []string) error {
	var names []string
	for _, w := range words {
		if !commandName.MatchString(w) {
			break
		}
		names = append(names, w)
	}
	h, err := helpOf(names[:min(len(names), 2)])
	if err != nil {
		return err
	}
	words = words[len(h.path):]
	arguments, pattern, ended := 0, false, false
	for i := 0; i < len(words); i++ {
		w := words[i]
		if ended || !strings.HasPrefix(w, "-") || w == "-" {
			arguments++
			pattern = pattern || strings.Contains(w, "*") // stands for any number
			continue
		}
		if ended = w == "--"; ended {
			continue
		}
		name, _, joined := strings.Cut(strings.TrimLeft(w, "-"), "=")
		value, known := h.takes[name]
		if !known && name != "help" && name != "h" {
			return fmt.Errorf("there is no flag %s", w)
		}
		if value && !joined {
			i++
		}
	}
	switch {
	case h.hasTasks && arguments == 0 && !slices.Contains(words, "--help"):
		return fmt.Errorf("engine %s needs a command", strings.Join(h.path, " "))
	case arguments < h.least && !pattern, arguments > h.most && !h.any:
		return fmt.Errorf("it has %d arguments; the command takes %d to %d", arguments, h.least, h.most)
	}
	return nil
}

var helps sync.Map // of help by names, so that each is asked for once

func helpOf(names []string) (help, error) {
	key := strings.Join(names, " ")
	if h, ok := helps.Load(key); ok {
		return h.(help), nil
	}
	out, err := exec.Command("engine", append([]string{"help"}, names...)...).CombinedOutput()
	if err != nil {
		return help{}, fmt.Errorf("engine help %s: %w\n%s", key, err, out)
	}
	h, err := readHelp(string(out))
	if err != nil {
		return help{}, fmt.Errorf("engine help %s: %w", key, err)
	}
	helps.Store(key, h)
	return h, nil
}

// readHelp reads the usage and the flags of a help text.
func readHelp(text string) (help, error) {
	_, rest, found := strings.Cut(text, "\nUsage:\n")
	if !found {
		return help{}, fmt.Errorf("it has no usage:\n%s", text)
	}
	usage := helpUsage.FindStringSubmatch(rest)
	if usage == nil {
		return help{}, fmt.Errorf("its usage is not understood:\n%s", rest)
	}
	h := help{takes: map[string]bool{}, hasTasks: strings.Contains(rest, "\nAvailable Commands:\n")}
	for _, group := range optional.FindAllString(usage[1], -1) {
		switch {
		case group == "[flags]" || group == "[command]" || strings.HasPrefix(group, "[--"):
		case manyMore.MatchString(group):
			h.any = true
		default:
			h.most++
		}
	}
	words := strings.Fields(optional.ReplaceAllString(usage[1], ""))
	for len(words) > 0 && commandName.MatchString(words[0]) {
		h.path, words = append(h.path, words[0]), words[1:]
	}
	for i := 0; i < len(words); i++ {
		if strings.HasPrefix(words[i], "--") { // a flag that it needs, and its value
			i++
			continue
		}
		h.least, h.most = h.least+1, h.most+1
		h.any = h.any || manyMore.MatchString(words[i])
	}
	for _, m := range helpFlag.FindAllStringSubmatch(rest, -1) {
		value := m[4] != "" && m[3] == ""
		h.takes[m[2]] = value
		if m[1] != "" {
			h.takes[m[1]] = value
		}
	}
	return h, nil
}

// split takes a script apart into its commands' words. It knows quotes, comments, continued lines, and what
// stands between commands.
func split(script string) (commands [][]string, err error) {
	var words []string
	var word strings.Builder
	inWord, redirected := false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word.String())
		}
		if inWord {
			redirected = false
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	script = strings.ReplaceAll(script, "\\\n", " ")
	for i := 0; i < len(script); i++ {
		switch c := script[i]; c {
		case ' ', '\t':
			endWord()
		case '\n', ';', '&', '|', '(', ')':
			endCommand()
		case '<', '>':
			if number := word.String(); number == "1" || number == "2" {
				word.Reset()
				inWord = false
			}
			endWord()
			redirected = true
			for i+1 < len(script) && (script[i+1] == '>' || script[i+1] == '&') {
				i++
			}
		case '#':
			if inWord {
				word.WriteByte(c)
				continue
			}
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case '\'', '"':
			end := strings.IndexByte(script[i+1:], c)
			if end < 0 {
				return nil, fmt.Errorf("a quotation has no end: %.40q", script[i:])
			}
			word.WriteString(script[i+1:][:end])
			inWord, i = true, i+1+end
		case '\\':
			if i++; i < len(script) {
				word.WriteByte(script[i])
				inWord = true
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return commands, nil
}

// TestSplit: commands are found between all that a script has besides.
func TestSplit(t *testing.T) {
	const script = `# first
A=1 engine run 'a b.toml' --set "x=[1, 2]" # trained
engine ps \
  --json > out.txt 2>&1; engine stop a | cat && engine version &
echo it\'s x#y
`
	got, err := split(script)
	want := [][]string{{"A=1", "engine", "run", "a b.toml", "--set", "x=[1, 2]"}, {"engine", "ps", "--json"}, {"engine", "stop", "a"},
		{"cat"}, {"engine", "version"}, {"echo", "it's", "x#y"}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(want) {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
}

// TestCheckCommand: what is wrong with a command line is found.
func TestCheckCommand(t *testing.T) {
	for line, ok := range map[string]bool{
		"run config.toml":                          true,
		"run config.toml --set run.steps=3":        true,
		"run config.toml --local-cluster 4":        true,
		"run config.toml --quiet --json":           true,
		"ckpt ls runs/first":                       true,
		"config check config.toml --memory-gib 80": true,
		"run --help":                               true,
		"train config.toml":                        false,
		"run config.toml --lr 3":                   false,
		"run config.toml other.toml":               false,
		"ckpt":                                     false,
		"ckpt lst runs/first":                      false,
		"ckpt ls":                                  false,
		"config check":                             true,
	} {
		if err := checkCommand(strings.Fields(line)); (err == nil) != ok && !strings.Contains(line, "--help") {
			t.Errorf("engine %s: %v", line, err)
		}
	}
}
