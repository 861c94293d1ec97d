//go:build !race

package world

const manyWorlds = 10_000
