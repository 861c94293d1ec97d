//go:build race

package world

const manyWorlds = 2500
