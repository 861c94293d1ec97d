// Attention of documents that share a sequence, on the tensor cores.
#include "attend_mma.cuh"

ATTENTION(attention_mma_64_starts, 64, 3, false, false, true)
ATTENTION(attention_mma_128_starts, 128, 2, false, false, true)
ATTENTION(attention_mma_64_dropped_starts, 64, 3, true, false, true)
ATTENTION(attention_mma_128_dropped_starts, 128, 2, true, false, true)
ATTENTION(attention_mma_64_capped_starts, 64, 3, false, true, true)
ATTENTION(attention_mma_128_capped_starts, 128, 2, false, true, true)
