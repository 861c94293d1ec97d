// Package cpu is the Device that computes on the machine's cores. It needs no cgo and nothing
// installed. Its inner loops are assembly where the processor has AVX2 and FMA, or NEON, and Go
// elsewhere.
//
// # Cores
//
// All streams of a device share one set of cores (cores.go). An operation is split into ranges,
// and each free core takes the next one. So one busy stream uses all cores, and many streams share
// them without oversubscription. How the work is split never changes a result: a range owns its
// outputs, and no border between ranges cuts a sum.
//
// # Inner loops
//
// Four packages below internal do the work of one core: gemm (matrix products from packed strips),
// attn (attention of one head, whose scores stay in the cache), delta (the gated delta rule of one head,
// of products and loops of the others) and vec (loops over vectors). Their
// assembly is generated (asmgen, make generate), one file for each kernel and instruction set.
// AVX2, AVX-512 and NEON make the same sums in the same order. TestRecorded of each package holds
// them to the same bits, and a test of the same name does so for whole runs.
//
// # bfloat16
//
// A product reads float32 or bfloat16 while it packs its operands, and rounds each sum once, when
// the sum is complete (matmul.go). Every other operation widens a part that fits the cache, works on
// it in float32 and rounds the result (values.go). So there is one set of loops.
//
// # Operations in one
//
// Memory is slower than the cores. So some operations that follow each other in a list are carried out together, a part that fits the
// cache at a time: an activation after its product (follow.go), an update of a state that is not float32 with what reads and stores
// that state (narrowupdate.go), and operations on elements (chain.go). No bit depends on it.
//
// The package must not know models, schedules or actors.
package cpu
