package config

import (
	"fmt"
	"strconv"
	"strings"
)

// deviceKinds are the kinds of devices.
var deviceKinds = []string{"auto", "cpu", cuda}

// cuda is the kind that there may be several of, told apart by their numbers.
const cuda = "cuda"

// limitGPUs bounds the number of a GPU, as in "cuda:3".
const limitGPUs = 64

// SplitDevice is the kind of a device, as device.kind has it, and which one it is of several:
// "cuda:1" is the second GPU. Without a number it is -1; "cuda:x" is no kind that there is.
func SplitDevice(word string) (kind string, ordinal int) {
	kind, number, numbered := strings.Cut(word, ":")
	if !numbered {
		return word, -1
	}
	n, err := strconv.Atoi(number)
	if kind != cuda || err != nil || n < 0 || n >= limitGPUs || strconv.Itoa(n) != number {
		return word, -1
	}
	return kind, n
}

// deviceWord checks for a kind of device, or one of several.
func deviceWord(v any) (string, string) {
	kind, _ := SplitDevice(v.(string))
	if kind == v && strings.HasPrefix(kind, cuda+":") {
		return quoted(kind) + " is no GPU", fmt.Sprintf(`use "cuda:0" to "cuda:%d", or "cuda"`, limitGPUs-1)
	}
	return oneOf(deviceKinds...)(kind)
}

// KindOf is the kind that is given for a pipeline rank, without the number of a GPU.
func (d Device) KindOf(rank int) string {
	kind, _ := SplitDevice(d.of(rank))
	return kind
}

// OrdinalOf is the number of the GPU that is given for a pipeline rank; -1: none is.
func (d Device) OrdinalOf(rank int) int {
	_, ordinal := SplitDevice(d.of(rank))
	return ordinal
}

func (d Device) of(rank int) string {
	if rank < len(d.Ranks) {
		return d.Ranks[rank]
	}
	return d.Kind
}
