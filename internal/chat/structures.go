package chat

import (
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// statements are those that templates may use: Jinja's without what reads other templates.
var statements = []string{"for", "if", "set", "macro", "call", "filter", "raw", "with", "break", "continue"}

// structures are the statements, each of which counts against the budget.
func structures() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{"generation": parseGeneration}
	for _, name := range statements {
		parse, ok := builtins.ControlStructures.Get(name)
		if !ok {
			continue // TestStatements says so
		}
		set[name] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
			sets := ""
			if t := args.Current(); t != nil && name == "set" {
				sets = t.Val
			}
			s, err := parse(p, args)
			if err != nil {
				return nil, err
			}
			inner, ok := s.(exec.ControlStructure)
			if !ok {
				return nil, fmt.Errorf("the statement %q cannot be executed", name)
			}
			return &counted{inner, sets}, nil
		}
	}
	return exec.NewControlStructureSet(set)
}

// counted is a statement that counts.
type counted struct {
	exec.ControlStructure
	sets string // the variable that it sets, or whose member
}

func (c *counted) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	b := of(r.Environment.Context)
	b.spend(1)
	switch s := c.ControlStructure.(type) {
	case *controls.MacroControlStructure:
		if err := s.Execute(r, tag); err != nil {
			return err
		}
		return limitMacro(r, s.Name)
	}
	err := c.ControlStructure.Execute(r, tag)
	if c.sets != "" && err == nil {
		limitVariable(r, c.sets)
	}
	return err
}

// limitMacro puts a macro that counts how deep it is called in the place of one that doesn't.
func limitMacro(r *exec.Renderer, name string) error {
	v, _ := r.Environment.Context.Get(name)
	macro, ok := v.(exec.Macro)
	if !ok {
		return fmt.Errorf("the macro %q cannot be called", name)
	}
	b := of(r.Environment.Context)
	r.Environment.Context.Set(name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		b.spend(1)
		if b.depth++; b.depth > maxMacroDepth {
			panic(limitError(fmt.Sprintf("its macros call each other more than %d deep", maxMacroDepth)))
		}
		defer func() { b.depth-- }()
		return macro(args)
	}))
	return nil
}

// limitVariable ends a rendering in which a text grows too long.
func limitVariable(r *exec.Renderer, name string) {
	v, _ := r.Environment.Context.Get(name)
	if n := textBytes(v); n > maxVariableBytes {
		panic(limitError(fmt.Sprintf("the variable %q has %d bytes; the limit is %d", name, n, maxVariableBytes)))
	}
}

// textBytes is the length of a text, or of the texts in a namespace.
func textBytes(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case *exec.Value:
		if v.IsString() {
			return len(v.String())
		}
	case map[string]any:
		n := 0
		for _, one := range v {
			n += textBytes(one)
		}
		return n
	}
	return 0
}

// generation marks the assistant's text: {% generation %}…{% endgeneration %}, as in transformers.
type generation struct {
	location *tokens.Token
	body     *nodes.Wrapper
}

func (g *generation) Position() *tokens.Token { return g.location }
func (g *generation) String() string          { return "generation" }

func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	b := of(r.Environment.Context)
	from := b.out.Len()
	if err := r.Inherit().ExecuteWrapper(g.body); err != nil {
		return err
	}
	if r.Output == b {
		b.generated = append(b.generated, span{from, b.out.Len()})
	}
	return nil
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{location: p.Current()}
	if !args.End() {
		return nil, args.Error("generation takes no arguments", args.Current())
	}
	body, end, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	if !end.End() {
		return nil, end.Error("endgeneration takes no arguments", nil)
	}
	g.body = body
	return g, nil
}
