package main

import "github.com/mmcloughlin/avo/build"

func gemmKernels() []kernel {
	return []kernel{
		{pkg: "gemm", name: "tile_avx2", doc: gemmTileDoc, emit: func(c *build.Context) { gemmTiles(c, gemmAVX2) }},
		{pkg: "gemm", name: "tile_avx512", doc: gemmTileDoc, emit: func(c *build.Context) { gemmTiles(c, gemmAVX512) }},
		{pkg: "gemm", name: "tile_avx512bf16", doc: gemmPairTileDoc, emit: gemmPairTiles},
		{pkg: "gemm", name: "pack_avx512bf16", doc: gemmPairsDoc, emit: gemmPairs},
		{pkg: "gemm", name: "pack_amx", doc: gemmAMXDoc, emit: gemmAMXPack},
		{pkg: "gemm", name: "pack", doc: gemmPackDoc, emit: gemmPacks},
	}
}
