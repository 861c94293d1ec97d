// Attention of whole sequences on the tensor cores.
#include "attend_mma.cuh"

ATTENTION(attention_mma_64, 64, 3, false, false, false)
ATTENTION(attention_mma_128, 128, 2, false, false, false)
ATTENTION(attention_mma_64_dropped, 64, 3, true, false, false)
ATTENTION(attention_mma_128_dropped, 128, 2, true, false, false)
ATTENTION(attention_mma_64_capped, 64, 3, false, true, false)
ATTENTION(attention_mma_128_capped, 128, 2, false, true, false)
