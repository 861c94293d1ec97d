package chat

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unicode"

	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// The library parses a template, runs its statements and finds its variables. Its operators,
// filters, tests, methods, members and printing follow Go. So each of these nodes is replaced in
// the parsed tree by a call of nodeName with the node's number, which computes it as Python does.

// nodeName is the function that stands for a node; no template can name it.
const nodeName = "\x00node"

// tree has the nodes that are computed here.
type tree struct {
	nodes []nodes.Node
	lines []int // of each
	seen  map[uintptr]bool
}

// Nodes of our own.
type (
	printNode struct{ nodes.Node } // what an output prints
	truthNode struct{ nodes.Node } // a condition
	iterNode  struct {             // what a loop goes over
		nodes.Node
		pairs bool
	}
)

// own replaces the nodes of a parsed template.
func own(parsed *exec.Template, c *config.Config, loader loaders.Loader, e *exec.Environment) {
	t := &tree{seen: make(map[uintptr]bool)}
	e.Context.Set(nodeName, t.call)
	root := exec.NewRenderer(&exec.Environment{Context: exec.EmptyContext()}, io.Discard, c, loader, parsed).RootNode
	t.visit(reflect.ValueOf(root))
}

// visit replaces what it finds within a value.
func (t *tree) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return
		}
		n, isNode := v.Interface().(nodes.Node)
		if !isNode {
			t.visit(v.Elem())
			return
		}
		if r := t.replace(n); r != n && v.CanSet() && reflect.TypeOf(r).AssignableTo(v.Type()) {
			v.Set(reflect.ValueOf(r))
		}
	case reflect.Pointer:
		if v.IsNil() || t.seen[v.Pointer()] || skipped(v.Type()) {
			return
		}
		t.seen[v.Pointer()] = true
		t.visit(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() && f.CanAddr() { // an unexported one
				f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
			}
			if v.Type().Field(i).Name != "target" { // of set, which is no expression
				t.visit(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			t.visit(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			one := reflect.New(v.Type().Elem()).Elem()
			one.Set(v.MapIndex(key))
			t.visit(one)
			v.SetMapIndex(key, one)
		}
	}
}

// skipped are types in which no expressions are.
func skipped(t reflect.Type) bool {
	return t == reflect.TypeFor[*tokens.Token]() || strings.HasSuffix(t.Elem().PkgPath(), "/parser") ||
		strings.HasSuffix(t.Elem().PkgPath(), "/exec")
}

// replace gives what stands for a node, whose parts are replaced first.
func (t *tree) replace(n nodes.Node) nodes.Node {
	switch n := n.(type) {
	case *nodes.Call:
		if attr, isMethod := n.Func.(*nodes.GetAttribute); isMethod && attr.Attribute != "" {
			t.visit(reflect.ValueOf(&attr.Node).Elem())
			t.visit(reflect.ValueOf(n.Args))
			t.visit(reflect.ValueOf(n.Kwargs))
			return t.hook(n, line(attr))
		}
		t.visit(reflect.ValueOf(&n.Func).Elem())
		t.visit(reflect.ValueOf(n.Args))
		t.visit(reflect.ValueOf(n.Kwargs))
		if name, ok := n.Func.(*nodes.Name); ok && name.Name.Val == "dict" {
			return t.hook(n, line(name))
		}
		return n
	case *nodes.Output:
		t.visit(reflect.ValueOf(n))
		n.Expression = t.hook(printNode{n.Expression}, line(n))
		return n
	}
	if f, ok := n.(*nodes.FilteredExpression); ok {
		n = nearest(f)
	}
	at := line(n)
	t.visit(reflect.ValueOf(n))
	switch s := n.(type) {
	case *controls.IfControlStructure:
		for i := range s.Conditions {
			s.Conditions[i] = t.hook(truthNode{s.Conditions[i]}, line(s.Conditions[i]))
		}
	case *controls.ForControlStructure:
		s.ObjectEvaluator = t.hook(iterNode{s.ObjectEvaluator, s.Value != ""}, line(s.ObjectEvaluator))
		if s.IfCondition != nil {
			s.IfCondition = t.hook(truthNode{s.IfCondition}, line(s.IfCondition))
		}
	case *nodes.BinaryExpression, *nodes.UnaryExpression, *nodes.Negation, *nodes.FilteredExpression, *nodes.TestExpression, *nodes.GetItem,
		*nodes.GetAttribute,
		*nodes.GetSlice, *nodes.Tuple, *nodes.List, *nodes.Dict:
		return t.hook(n, at)
	}
	return n
}

// nearest gives filters to what stands next to them. Behind a test, which "in" is to the library, it takes them for those
// of the whole expression: a and b in c | lower is a and b in (c | lower), and a and b is odd | string is a and
// ((b is odd) | string). What stands in brackets is in a call of same.
func nearest(f *nodes.FilteredExpression) nodes.Node {
	var last func(n nodes.Node) (nodes.Node, bool)
	last = func(n nodes.Node) (_ nodes.Node, found bool) {
		switch x := n.(type) {
		case *nodes.BinaryExpression:
			x.Right, found = last(x.Right)
		case *nodes.Negation:
			x.Term, found = last(x.Term)
		case *nodes.TestExpression:
			if x.Test.Name == "in" && len(x.Test.Args) == 1 {
				x.Test.Args[0] = &nodes.FilteredExpression{Expression: x.Test.Args[0], Filters: f.Filters}
				return x, true
			}
			return &nodes.FilteredExpression{Expression: x, Filters: f.Filters}, true
		}
		return n, found
	}
	if _, direct := f.Expression.(*nodes.TestExpression); direct && f.Expression.(*nodes.TestExpression).Test.Name != "in" {
		return f
	}
	if n, found := last(f.Expression); found {
		return n
	}
	return f
}

// line is the line of the template that a node is in.
func line(n nodes.Node) int {
	defer func() { _ = recover() }() // of a node that knows no place
	if n == nil || n.Position() == nil {
		return 0
	}
	return n.Position().Line
}

// hook is a call that stands for a node.
func (t *tree) hook(n nodes.Node, at int) *nodes.Call {
	t.nodes, t.lines = append(t.nodes, n), append(t.lines, at)
	token := &tokens.Token{Type: tokens.Name, Val: nodeName, Line: at}
	return &nodes.Call{Location: token, Func: &nodes.Name{Name: token}, Args: []nodes.Expression{&nodes.Integer{Location: token,
		Val: len(t.nodes) - 1}}}
}

// hooked is the node that a call stands for; nil: it is another call.
func (t *tree) hooked(n nodes.Node) nodes.Node {
	call, ok := n.(*nodes.Call)
	if !ok {
		return nil
	}
	if name, ok := call.Func.(*nodes.Name); !ok || name.Name.Val != nodeName {
		return nil
	}
	return t.nodes[call.Args[0].(*nodes.Integer).Val]
}

// call computes a node.
func (t *tree) call(e *exec.Evaluator, args *exec.VarArgs) (*exec.Value, error) {
	i := args.Args[0].Integer()
	v := t.within(t.lines[i], func() any { return t.value(e, t.nodes[i]) })
	if v == nil {
		return exec.AsValue(nil), nil
	}
	return exec.AsValue(v), nil
}

// eval computes any expression. A fault gets the line of the innermost.
func (t *tree) eval(e *exec.Evaluator, n nodes.Node) any {
	if inner := t.hooked(n); inner != nil {
		return t.within(line(n), func() any { return t.value(e, inner) })
	}
	if name, ok := n.(*nodes.Name); ok && name.Name.Val == "none" {
		return null
	}
	return plainValue(e.Eval(n))
}

// faultAt is a fault with its line.
type faultAt struct {
	line int
	fault
}

// value computes a node that was replaced.
func (t *tree) value(e *exec.Evaluator, n nodes.Node) any {
	b := of(e.Environment.Context)
	b.spend(0)
	switch n := n.(type) {
	case printNode:
		return str(t.eval(e, n.Node))
	case truthNode:
		return truth(t.eval(e, n.Node))
	case iterNode:
		return t.loop(e, n, b)
	case *nodes.BinaryExpression:
		return t.binary(e, n, b)
	case *nodes.Negation:
		return !truth(t.eval(e, n.Term))
	case *nodes.UnaryExpression:
		v := t.eval(e, n.Term)
		if n.Negative {
			return binary(b, "*", needNumber(v), -1)
		}
		return needNumber(v)
	case *nodes.FilteredExpression:
		v := t.eval(e, n.Expression)
		for _, f := range n.Filters {
			v = t.within(f.Token.Line, func() any { return filtered(v, t.arguments(e, b, f.Name, f.Args, f.Kwargs)) })
		}
		return v
	case *nodes.TestExpression:
		if n.Test.Name != "" && !every(n.Test.Name[:1], func(r rune) bool { return r == '_' || unicode.IsLetter(r) }) {
			failf("want the name of a test, not %q", n.Test.Name)
		}
		return tested(t.eval(e, n.Expression), t.arguments(e, b, n.Test.Name, n.Test.Args, n.Test.Kwargs))
	case *nodes.GetItem:
		return item(t.defined(e, n.Node), t.eval(e, n.Arg))
	case *nodes.GetAttribute:
		of := t.defined(e, n.Node)
		if n.Attribute == "" {
			return item(of, n.Index)
		}
		return member(of, n.Attribute)
	case *nodes.GetSlice:
		return sliced(t.defined(e, n.Node), t.bound(e, n.Start), t.bound(e, n.End), t.bound(e, n.Step))
	case *nodes.Tuple:
		return tuple(t.all(e, n.Val))
	case *nodes.List:
		return t.all(e, n.Val)
	case *nodes.Dict:
		d := exec.NewDict()
		for _, p := range n.Pairs {
			set(d, t.eval(e, p.Key), t.eval(e, p.Value))
		}
		return d
	case *nodes.Call:
		return t.method(e, n, b)
	}
	failf("%T cannot be computed", n)
	return nil
}

// within gives a fault a line.
func (t *tree) within(at int, f func() any) any {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fault:
			panic(faultAt{at, v})
		case runtime.Error: // of the library, or of what was overlooked here
			panic(faultAt{at, fault("the template does something that is not supported: " + v.Error())})
		default:
			panic(v)
		}
	}()
	return f()
}

func needNumber(v any) any {
	if _, _, _, ok := numeric(v); !ok {
		failf("bad operand type for unary -: '%s'", typeName(v))
	}
	return v
}

// set puts a member into a dict.
func set(d *exec.Dict, key, value any) {
	hashable(key)
	for _, p := range d.Pairs {
		if equal(plainValue(p.Key), key) {
			p.Value = exec.AsValue(value)
			return
		}
	}
	d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(value)})
}

func (t *tree) all(e *exec.Evaluator, of []nodes.Expression) []any {
	list := make([]any, len(of))
	for i, one := range of {
		list[i] = t.eval(e, one)
	}
	return list
}

func (t *tree) arguments(e *exec.Evaluator, b *budget, name string, args []nodes.Expression, kw map[string]nodes.Expression) *call {
	c := &call{b: b, name: name, args: t.all(e, args), kw: make(map[string]any, len(kw))}
	for name, one := range kw {
		c.kw[name] = t.eval(e, one)
	}
	return c
}

// defined is what members are asked of.
func (t *tree) defined(e *exec.Evaluator, n nodes.Node) any {
	v := t.eval(e, n)
	if v == nil {
		failf("%s is undefined", t.called(n))
	}
	return v
}

// called is what a template calls a value.
func (t *tree) called(n nodes.Node) string {
	if name, ok := n.(*nodes.Name); ok {
		return "'" + name.Name.Val + "'"
	}
	switch x := t.hooked(n).(type) {
	case *nodes.GetAttribute:
		return "the member '" + x.Attribute + "'"
	case *nodes.GetItem:
		if key, ok := x.Arg.(*nodes.String); ok {
			return "the member '" + key.Val + "'"
		}
	}
	return "a value"
}

func (t *tree) bound(e *exec.Evaluator, n nodes.Node) any {
	if n == nil {
		return null
	}
	return t.eval(e, n)
}

// comparisons are the operators that chain: 1 < x < 3.
var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (t *tree) binary(e *exec.Evaluator, n *nodes.BinaryExpression, b *budget) any {
	op := n.Operator.Token.Val
	switch op {
	case "and":
		if v := t.eval(e, n.Left); !truth(v) {
			return v
		}
		return t.eval(e, n.Right)
	case "or":
		if v := t.eval(e, n.Left); truth(v) {
			return v
		}
		return t.eval(e, n.Right)
	}
	if slices.Contains(comparisons, op) {
		if left, ok := t.hooked(n.Left).(*nodes.BinaryExpression); ok && slices.Contains(comparisons, left.Operator.Token.Val) {
			if !truth(t.binary(e, left, b)) {
				return false
			}
			return binary(b, op, t.eval(e, left.Right), t.eval(e, n.Right))
		}
	}
	left, right := t.eval(e, n.Left), t.eval(e, n.Right)
	if (left == nil || right == nil) && op != "==" && op != "!=" && op != "~" && op != "%" {
		of := n.Left
		if left != nil {
			of = n.Right
		}
		failf("%s is undefined", t.called(of))
	}
	return binary(b, op, left, right)
}

// loop are the elements of a loop, as the library takes them.
func (t *tree) loop(e *exec.Evaluator, n iterNode, b *budget) any {
	v := t.eval(e, n.Node)
	if _, is := v.(none); is {
		failf("a loop over None, which has no elements")
	}
	list := iterate(v)
	b.spend(len(list))
	if list == nil {
		list = []any{}
	}
	if !n.pairs {
		return list
	}
	pairs := make([]any, len(list))
	for i := range list {
		one := iterate(plainValue(list[i]))
		if len(one) != 2 {
			failf("%d values to unpack, expected 2", len(one))
		}
		pairs[i] = []any{one[0], one[1]}
	}
	return pairs
}

// method calls a method, or a function that is a member of what the library has.
func (t *tree) method(e *exec.Evaluator, n *nodes.Call, b *budget) any {
	if name, ok := n.Func.(*nodes.Name); ok && name.Name.Val == "dict" {
		return t.dict(e, n)
	}
	attr := n.Func.(*nodes.GetAttribute)
	of := t.defined(e, attr.Node)
	c := t.arguments(e, b, attr.Attribute, n.Args, n.Kwargs)
	if v, known := method(of, c); known {
		return v
	}
	// A loop's, or a namespace's: the library calls it, with its values under names.
	scope := e.Environment.Context.Inherit()
	local := &exec.Evaluator{Config: e.Config, Loader: e.Loader, Environment: &exec.Environment{Context: scope, Tests: e.Environment.Tests,
		Filters:           e.Environment.Filters,
		ControlStructures: e.Environment.ControlStructures, Methods: e.Environment.Methods}}
	variable := func(i int, v any) nodes.Expression {
		token := &tokens.Token{Type: tokens.Name, Val: fmt.Sprintf("\x00%d", i)}
		scope.Set(token.Val, v)
		return &nodes.Name{Name: token}
	}
	call := &nodes.Call{Location: n.Location, Func: &nodes.GetAttribute{Location: attr.Location, Node: variable(0, of),
		Attribute: attr.Attribute}}
	for i, v := range c.args {
		call.Args = append(call.Args, variable(i+1, v))
	}
	return plainValue(local.Eval(call))
}

// dict is dict(a, b=c), with its members in the order of the template.
func (t *tree) dict(e *exec.Evaluator, n *nodes.Call) any {
	d := exec.NewDict()
	for _, arg := range t.all(e, n.Args) {
		switch x := arg.(type) {
		case *exec.Dict:
			for _, p := range x.Pairs {
				set(d, plainValue(p.Key), plainValue(p.Value))
			}
		default:
			for _, one := range iterate(arg) {
				pair := iterate(plainValue(one))
				if len(pair) != 2 {
					failf("dict takes pairs")
				}
				set(d, plainValue(pair[0]), plainValue(pair[1]))
			}
		}
	}
	names := make([]string, 0, len(n.Kwargs))
	for name := range n.Kwargs {
		names = append(names, name)
	}
	place := func(name string) int {
		v := n.Kwargs[name]
		if inner := t.hooked(v); inner != nil {
			v = inner
		}
		return v.Position().Pos
	}
	slices.SortFunc(names, func(x, y string) int { return place(x) - place(y) })
	for _, name := range names {
		set(d, name, t.eval(e, n.Kwargs[name]))
	}
	return d
}
