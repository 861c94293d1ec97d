package config

import (
	"fmt"
	"strconv"
	"strings"
)

// deviceKinds are the kinds of devices.
var deviceKinds = []string{"auto", "cpu", cuda}

// cuda is the kind of which a machine may have several devices, told apart by their numbers.
const cuda = "cuda"

// limitGPUs bounds the number of a GPU, as in "cuda:3".
const limitGPUs = 64

// SplitDevice returns the kind of a device and its number: "cuda:1" is "cuda" and 1, the second GPU.
// Without a valid number the kind is the whole word and the number is -1.
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
var deviceWord = &check{fmt.Sprintf(`%s, "cuda:0" to "cuda:%d"`, enumerate(deviceKinds), limitGPUs-1), func(v any) (string, string) {
	kind, _ := SplitDevice(v.(string))
	if kind == v && strings.HasPrefix(kind, cuda+":") {
		return quoted(kind) + " is not the name of a GPU", fmt.Sprintf(`use "cuda:0" to "cuda:%d", or "cuda"`, limitGPUs-1)
	}
	return among(deviceKinds...).judge(kind)
}}

// KindOf returns the kind of a stage's device, without the number of a GPU.
func (d Device) KindOf(rank int) string {
	kind, _ := SplitDevice(d.of(rank))
	return kind
}

// OrdinalOf returns the number of a stage's GPU, or -1 if none is given.
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
