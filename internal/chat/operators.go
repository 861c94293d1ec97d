package chat

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// binary computes an operator on two values, as Python does.
func binary(b *budget, op string, left, right any) any {
	switch op {
	case "==":
		return equal(left, right)
	case "!=":
		return !equal(left, right)
	case "<":
		return order(op, left, right) < 0
	case "<=":
		return order(op, left, right) <= 0
	case ">":
		return order(op, left, right) > 0
	case ">=":
		return order(op, left, right) >= 0
	case "in":
		return contains(right, left)
	case "~":
		return joined(str(left), str(right))
	case "+":
		if s, ok := left.(string); ok {
			t, ok := right.(string)
			if !ok {
				if right == nil {
					mismatch(op, left, right)
				}
				failf("can only concatenate str (not %q) to str", typeName(right))
			}
			return joined(s, t)
		}
		if v, ok := concatenated(b, left, right); ok {
			return v
		}
	case "*":
		if v, ok := repeated(b, left, right); ok {
			return v
		}
	case "%":
		if format, ok := left.(string); ok {
			return percent(format, right)
		}
	}
	return arithmetic(op, left, right)
}

func mismatch(op string, left, right any) {
	if left == nil || right == nil {
		failf("%s with an undefined value", op)
	}
	failf("unsupported operand types for %s: '%s' and '%s'", op, typeName(left), typeName(right))
}

// joined is a text behind another one, up to the limit of a variable.
func joined(a, b string) string {
	if n := len(a) + len(b); n > maxVariableBytes {
		panic(limitError(tooLong(float64(n))))
	}
	return a + b
}

func concatenated(b *budget, left, right any) (any, bool) {
	switch x := left.(type) {
	case []any:
		if y, ok := right.([]any); ok {
			b.spend(len(x) + len(y))
			return append(append(make([]any, 0, len(x)+len(y)), x...), y...), true
		}
	case tuple:
		if y, ok := right.(tuple); ok {
			b.spend(len(x) + len(y))
			return append(append(make(tuple, 0, len(x)+len(y)), x...), y...), true
		}
	}
	return nil, false
}

// repeated is a text, or a list, a number of times.
func repeated(b *budget, left, right any) (any, bool) {
	n, _, whole, isNumber := numeric(right)
	of := left
	if !isNumber || !whole {
		if n, _, whole, isNumber = numeric(left); !isNumber || !whole {
			return nil, false
		}
		of = right
	}
	n = max(n, 0)
	times := func(list []any) []any {
		if float64(n)*float64(len(list)) > maxSteps {
			panic(limitError("a repeated list has more elements than the limit of steps"))
		}
		b.spend(n * len(list))
		all := make([]any, 0, n*len(list))
		for range n {
			all = append(all, list...)
		}
		return all
	}
	switch x := of.(type) {
	case string:
		if grown := float64(n) * float64(len(x)); grown > maxVariableBytes {
			panic(limitError(tooLong(grown)))
		}
		return strings.Repeat(x, n), true
	case []any:
		return times(x), true
	case tuple:
		return tuple(times(x)), true
	}
	return nil, false
}

const tooWide = "an integer beyond 64 bits"

// arithmetic computes with numbers.
func arithmetic(op string, left, right any) any {
	a, x, aWhole, aOK := numeric(left)
	b, y, bWhole, bOK := numeric(right)
	if !aOK || !bOK {
		mismatch(op, left, right)
	}
	if y == 0 && (op == "/" || op == "//" || op == "%") {
		failf("%s by zero", map[string]string{"/": "division", "//": "floor division", "%": "modulo"}[op])
	}
	if aWhole && bWhole && op != "/" {
		return whole(op, a, b)
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	case "%":
		m := math.Mod(x, y)
		switch {
		case m == 0:
			m = math.Copysign(0, y)
		case (m < 0) != (y < 0):
			m += y
		}
		return m
	}
	return math.Pow(x, y)
}

// whole computes with whole numbers, which are of any size in Python.
func whole(op string, a, b int) any {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c
		}
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c
		}
	case "*":
		if c, ok := product(a, b); ok {
			return c
		}
	case "//":
		if a == math.MinInt && b == -1 {
			break
		}
		q := a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			q--
		}
		return q
	case "%":
		if b == -1 {
			return 0
		}
		m := a % b
		if m != 0 && (m < 0) != (b < 0) {
			m += b
		}
		return m
	case "**":
		return power(a, b)
	}
	unsupported(tooWide)
	return nil
}

func product(a, b int) (int, bool) {
	size := func(n int) uint64 {
		if n < 0 {
			return -uint64(n)
		}
		return uint64(n)
	}
	high, low := bits.Mul64(size(a), size(b))
	return a * b, high == 0 && low < 1<<63
}

func power(a, b int) any {
	if b < 0 {
		if a == 0 {
			failf("0 to a negative power")
		}
		return math.Pow(float64(a), float64(b))
	}
	result := 1
	for ; b > 0 && result != 0 && (a > 1 || a < -1); b-- {
		var ok bool
		if result, ok = product(result, a); !ok {
			unsupported(tooWide)
		}
	}
	if b > 0 { // of 0, 1 or -1
		result = 1
		if a == 0 || a == -1 && b%2 == 1 {
			result = a
		}
	}
	return result
}

func tooLong(bytes float64) string {
	return fmt.Sprintf("a text has %.0f bytes; the limit is %d", bytes, maxVariableBytes)
}
