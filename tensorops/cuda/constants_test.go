//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// TestConstants: what the launchers take for a constant of the kernels is what their
// source defines.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		file, name string
		here       int
	}{
		{"matmul.cuh", "DEPTH", pieceDepth},
		{"tile.cuh", "THREADS", matmulThreads},
		{"tile.cuh", "THREADS", attentionThreads},
		{"attention.cuh", "TILE", attentionTile},
		{"attention_mma.cuh", "MMA_THREADS", mmaThreads},
		{"attend_mma.cuh", "ATTEND_QUERIES_64", mmaTilings[64].attendQueries},
		{"attend_mma.cuh", "ATTEND_QUERIES_128", mmaTilings[128].attendQueries},
		{"attend_mma.cuh", "ATTEND_SHARED_64", mmaTilings[64].attendShared},
		{"attend_mma.cuh", "ATTEND_SHARED_128", mmaTilings[128].attendShared},
		{"attention_grad_mma.cuh", "GRAD_KEYS_64", mmaTilings[64].keys},
		{"attention_grad_mma.cuh", "GRAD_KEYS_128", mmaTilings[128].keys},
		{"attention_grad_mma.cuh", "GRAD_QUERIES_64", mmaTilings[64].gradQueries},
		{"attention_grad_mma.cuh", "GRAD_QUERIES_128", mmaTilings[128].gradQueries},
		{"attention_grad_mma.cuh", "GRAD_SHARED_64", mmaTilings[64].gradShared},
		{"attention_grad_mma.cuh", "GRAD_SHARED_128", mmaTilings[128].gradShared},
		{"delta.cuh", "DELTA_COLUMNS", deltaColumns},
		{"delta.cuh", "DELTA_CHUNK", deltaChunk},
		{"delta.cuh", "DELTA_WIDTH", tensorops.MaxDeltaWidth},
		{"tile.cuh", "THREADS", deltaThreads},
		{"route.cu", "ROUTE_CHUNK", routeChunk},
		{"route.cu", "ROUTE_THREADS", routeThreads},
		{"route.cu", "ROUTE_ROWS", routeRows},
		{"route.cu", "ROUTE_COUNTS", tensorops.RouteCounts},
		{"sources.cu", "SOURCE_THREADS", sourceThreads},
		{"expert.cu", "GROUP_WARPS", groupWarps},
		{"expert.cu", "GROUP_COLUMNS", groupColumns},
		{"grouped.cu", "GROUPED_THREADS", groupedThreads},
		{"optim.cu", "OF_BLOCK", ofBlock},
		{"colsum.cu", "COLSUM_WARPS", colSumWarps},
		{"colsum.cu", "COLSUM_WIDTH", colSumWidth},
		{"colsum.cu", "ADD_WARPS", addWarps},
		{"norm.cu", "NORM_KEPT", normKept},
		{"norm.cu", "MOST_THREADS", normThreads},
		{"norm.cu", "WARPS_THREADS", normWarpsThreads},
		{"norm_grad.cu", "NORM_THREADS", normThreads},
		{"loss.cu", "LOSS_THREADS", lossThreads},
		{"quant.cu", "QUANT_BLOCK", quant.Block},
		{"loss.cu", "IGNORE_TARGET", tensorops.IgnoreTarget},
	} {
		text, err := kernels.Files.ReadFile(c.file)
		if err != nil {
			t.Error(err)
			continue
		}
		found := regexp.MustCompile(`(?m)^#define `+c.name+` (-?[0-9]+)\b`).FindAllSubmatch(text, -1)
		if len(found) != 1 {
			t.Errorf("%s defines %s %d times", c.file, c.name, len(found))
			continue
		}
		if n, err := strconv.Atoi(string(found[0][1])); err != nil || n != c.here {
			t.Errorf("%s of %s is %s, here %d", c.name, c.file, found[0][1], c.here)
		}
	}
}
