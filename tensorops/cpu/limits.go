package cpu

// limitAngles bounds the angles of rotary embeddings that a device keeps: 131,072
// positions of heads of 128 channels, in 64 MiB. Angles beyond it are computed for each
// use.
const limitAngles = 8 << 20
