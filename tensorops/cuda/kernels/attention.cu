// Attention of whole sequences.
#include "attention_tile.cuh"

ATTENTION(attention_64, 1, false, false)
ATTENTION(attention_128, 2, false, false)
ATTENTION(attention_64_capped, 1, true, false)
ATTENTION(attention_128_capped, 2, true, false)
