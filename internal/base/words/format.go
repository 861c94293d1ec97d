package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Short writes a number in about four characters: 999, 12.3k, 4.56M.
func Short(n float64) string {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Sprint(n)
	}
	const units = " kMGTPE"
	unit := 0
	for math.Abs(n) >= 999.5 && unit < len(units)-1 {
		n /= 1000
		unit++
	}
	if unit == 0 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	decimals := 0
	switch a := math.Abs(n); {
	case a < 9.995:
		decimals = 2
	case a < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(n, 'f', decimals, 64) + units[unit:unit+1]
}

// Count writes a whole number with its thousands set apart: 1,234,567.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// CountOf writes a number with its noun: 1 step, 1,200 steps.
func CountOf(n int64, noun string) string {
	if n == 1 {
		return Plural(1, noun)
	}
	_, nouns, _ := strings.Cut(Plural(2, noun), " ")
	return Count(n) + " " + nouns
}

// Bytes writes a size: 512 B, 1.2 MiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1024, 0
	for size >= 1023.95 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

// Duration writes a time in its two largest units: 12ms, 4.2s, 1m03s, 2h05m, 3d04h.
func Duration(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 0.0995:
		return fmt.Sprintf("%.0fms", s*1000)
	case s < 9.95:
		return fmt.Sprintf("%.1fs", s)
	case s < 59.5:
		return fmt.Sprintf("%.0fs", s)
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s%86400/3600)
}
