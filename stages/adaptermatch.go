package stages

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// adapterMatch says which modules an adapter means, and remembers which of its patterns have matched.
type adapterMatch struct {
	adapter  *Adapter
	targetOf []modulePattern
	saveOf   []modulePattern
	rankOf   []modulePattern // in the order of their names
	alphaOf  []modulePattern
	seen     []string // the modules of linear layers
}

// modulePattern is a name of a module, an end of one, or a regular expression.
type modulePattern struct {
	text string
	exp  *regexp.Regexp // nil: a name
	hit  bool
}

// match reports whether one of a module's names matches, and notes it.
func (p *modulePattern) match(names []string) bool {
	for _, name := range names {
		if p.exp == nil && (name == p.text || strings.HasSuffix(name, "."+p.text)) || p.exp != nil && p.exp.MatchString(name) {
			p.hit = true
			return true
		}
	}
	return false
}

func newAdapterMatch(a *Adapter) (*adapterMatch, error) {
	m := &adapterMatch{adapter: a}
	var err error
	compile := func(key, text, before, after string) (p modulePattern) {
		p.text = text
		exp, failed := regexp.Compile(before + text + after)
		if failed != nil && err == nil {
			err = adapterError(key, "%q is not a regular expression that Go's regexp supports: %v", text, failed)
		}
		p.exp = exp
		return p
	}
	names := func(key string, list []string) (all []modulePattern) {
		for _, text := range list {
			if strings.ContainsAny(text, `*+?()[]{}|^$\`) {
				all = append(all, compile(key, text, `^(?:`, `)$`))
			} else {
				all = append(all, modulePattern{text: text})
			}
		}
		return all
	}
	m.targetOf, m.saveOf = names("targets", a.Targets), names("save", a.Save)
	for _, text := range slices.Sorted(maps.Keys(a.RankPattern)) {
		m.rankOf = append(m.rankOf, compile("rank_pattern", text, `^(?:.*\.)?(?:`, `)$`))
	}
	for _, text := range slices.Sorted(maps.Keys(a.AlphaPattern)) {
		m.alphaOf = append(m.alphaOf, compile("alpha_pattern", text, `^(?:.*\.)?(?:`, `)$`))
	}
	return m, err
}

// saves reports whether a module is trained whole: it, or a module that contains it, is in Save.
func (m *adapterMatch) saves(names []string) (saved bool) {
	var all []string
	for _, name := range names {
		for ; name != ""; name = parentOf(name) {
			all = append(all, name)
		}
	}
	for i := range m.saveOf {
		saved = m.saveOf[i].match(all) || saved
	}
	return saved
}

// parentOf returns the module that contains one; "": none does.
func parentOf(name string) string {
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		return name[:at]
	}
	return ""
}

// targets reports whether a linear layer has an adapter.
func (m *adapterMatch) targets(names []string, isHead bool) (found bool) {
	for i := range m.targetOf {
		p := &m.targetOf[i]
		if p.text == AllLinear {
			found = found || !isHead
			p.hit = p.hit || !isHead
			continue
		}
		found = p.match(names) || found
	}
	return found
}

// sizes returns the rank and alpha of a module.
func (m *adapterMatch) sizes(names []string) (rank int, alpha float64, err error) {
	rank, err = sizeOf("rank_pattern", m.rankOf, m.adapter.RankPattern, names, m.adapter.Rank)
	if err == nil {
		alpha, err = sizeOf("alpha_pattern", m.alphaOf, m.adapter.AlphaPattern, names, m.adapter.Alpha)
	}
	return rank, alpha, err
}

// sizeOf returns the value of the patterns that match, which must agree, or the usual value.
func sizeOf[T cmp.Ordered](key string, patterns []modulePattern, values map[string]T, names []string, usual T) (T, error) {
	value, from := usual, ""
	for i := range patterns {
		p := &patterns[i]
		if !p.match(names) {
			continue
		}
		if v := values[p.text]; from != "" && v != value {
			return value, adapterError(key, "%q says %v and %q says %v for %s: change one so that only one of them matches", from, value, p.text,
				v, names[0])
		}
		value, from = values[p.text], p.text
	}
	return value, nil
}

// see notes the module of a linear layer.
func (m *adapterMatch) see(module string) { m.seen = append(m.seen, module) }

// savesAll reports entries of Save that match no module.
func (m *adapterMatch) savesAll(model *Model) error {
	for _, p := range m.saveOf {
		switch {
		case p.hit:
		case model.Config.Tie && (&modulePattern{text: p.text, exp: p.exp}).match([]string{headModule}):
			return adapterError("save", "%q: this model's head is its embedding matrix: save %q instead", p.text, model.Params[0].Module())
		default:
			var modules []string
			for _, param := range model.Params {
				if !param.Constant {
					modules = append(modules, param.Module())
				}
			}
			return adapterError("save", "%q matches none of the model's %s", p.text, endsOf(modules))
		}
	}
	return nil
}

// used reports patterns that match no module.
func (m *adapterMatch) used(model *Model) error {
	for _, p := range m.targetOf {
		if !p.hit {
			return adapterError("targets", "%q matches none of the %s of this %s model; an adapter is for linear layers", p.text,
				endsOf(m.seen), model.Config.Family)
		}
	}
	adapted := 0
	for _, p := range model.Params {
		if p.Adapter {
			adapted++
		}
	}
	if adapted == 0 {
		return adapterError("targets", "all of the modules are in adapter.save, so none has an adapter: leave some out of save")
	}
	for _, of := range []struct {
		key      string
		patterns []modulePattern
	}{{"rank_pattern", m.rankOf}, {"alpha_pattern", m.alphaOf}} {
		for _, p := range of.patterns {
			if !p.hit {
				return adapterError(of.key, "%q matches none of the modules with an adapter, out of %s", p.text, endsOf(m.seen))
			}
		}
	}
	return nil
}

// endsOf lists the number of modules and the last parts of their names.
func endsOf(modules []string) string {
	slices.Sort(modules)
	modules = slices.Compact(modules)
	var ends []string
	for _, name := range modules {
		if end := name[strings.LastIndexByte(name, '.')+1:]; !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	const most = 20
	quoted := make([]string, 0, most)
	for _, end := range ends[:min(most, len(ends))] {
		quoted = append(quoted, strconv.Quote(end))
	}
	if len(ends) > most {
		quoted = append(quoted, "…")
	}
	return fmt.Sprintf("%d modules (%s)", len(modules), strings.Join(quoted, ", "))
}
