// A stand-in for cuBLASLt: the functions that package driver binds, with numbers of
// arguments, attributes and statuses as in cublasLt.h. Products are computed in plain
// loops, in float32.
//
// It is stricter than the real one where that finds mistakes: what a caller must not do is
// an internal error, which nobody takes for the lack of an algorithm; an algorithm is only
// taken for the product that it was chosen for; and the workspace comes out full of NaN.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <map>
#include <vector>

#include "standin.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") // the loops of products take most of the tests' time
#endif

using troupe::locked;

typedef int cublasStatus_t;

namespace {

enum status { success = 0, not_initialized = 1, invalid_value = 7, internal_error = 14, not_supported = 15 };
enum type { real_32f = 0, real_16bf = 14 };
enum compute { compute_32f = 68, compute_32f_fast_tf32 = 77 };
enum epilogue { no_epilogue = 1, bias = 4, gelu_aux_bias = 32 | 128 | 4, sums_a = 256, sums_b = 512 };
enum { desc_transa = 3, desc_transb = 4, desc_epilogue = 7, desc_bias = 8, desc_aux = 11, desc_aux_ld = 12 };
enum { pref_workspace = 1, pref_reductions = 3, pref_align_a = 5, pref_align_d = 8 };

struct Handle {
    int unused;
};

struct Desc {
    int compute;
    int transposed[2] = {0, 0}; // A and B
    unsigned epilogue = no_epilogue;
    uint64_t bias = 0, aux = 0;
    int64_t aux_ld = 0;
};

struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
    uint64_t bytes() const { return (uint64_t)(type == real_32f ? 4 : 2) * (cols ? (cols - 1) * (uint64_t)ld + rows : 0); }
};

struct Preference {
    uint64_t workspace = 0;
    unsigned reductions = 7;
    unsigned align[4] = {256, 256, 256, 256}; // A, B, C and D
};

// Algorithm is what the 64 bytes of cublasLtMatmulAlgo_t hold here.
struct Algorithm {
    uint64_t mark, product; // a hash of what it was chosen for
    uint64_t workspace;
    unsigned short align[6]; // A, B, C, D, bias, aux
    char rest[28];
};
static_assert(sizeof(Algorithm) == 64, "cublasLtMatmulAlgo_t has 64 bytes");

struct Result { // cublasLtMatmulHeuristicResult_t
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Result) == 96, "cublasLtMatmulHeuristicResult_t has 96 bytes");

const uint64_t the_mark = 0x7472'6f75'7065'6c74;

std::map<void *, int> &left = *new std::map<void *, int>; // what there is: 'h', 'd', 'l' or 'p'
float wrongness = 0; // see troupe_standin_wrong
int refused = 0;                                           // see troupe_standin_refuse

int wrong(const char *what) {
    fprintf(stderr, "stand-in for cuBLASLt: %s\n", what);
    return internal_error;
}

template <class T> T *make(T *t, int kind) {
    left[t] = kind;
    return t;
}

template <class T> cublasStatus_t unmake(T *t, int kind) {
    auto it = left.find(t);
    if (it == left.end() || it->second != kind) return wrong("what is destroyed is not there");
    left.erase(it);
    delete t;
    return success;
}

bool is(void *p, int kind) {
    auto it = left.find(p);
    return it != left.end() && it->second == kind;
}

#define CALL()                 \
    auto lock = locked();      \
    if (int code = troupe::enter_call(__func__)) return code

// attribute copies a value that must have its size.
template <class T> int attribute(T &to, const void *from, size_t bytes) {
    if (!from || bytes != sizeof(T)) return wrong("an attribute of another size");
    memcpy(&to, from, bytes);
    return success;
}

unsigned alignment_of(uint64_t at) {
    const uint64_t lowest = at & -at;
    return lowest == 0 || lowest > 256 ? 256 : (unsigned)lowest;
}

// fits says what is wrong with a product.
const char *fits(const Desc &d, const Layout &a, const Layout &b, const Layout &c, const Layout &r) {
    const bool ta = d.transposed[0], tb = d.transposed[1];
    const uint64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols;
    if ((tb ? b.cols : b.rows) != k || (tb ? b.rows : b.cols) != r.cols || r.rows != m) return "the sizes do not fit";
    if (m == 0 || k == 0 || r.cols == 0) return "an empty product";
    if (a.type != b.type || (r.type != real_32f && (r.type != a.type || (d.epilogue != no_epilogue && d.epilogue != bias)))) return "types that do not go together";
    if (d.compute == compute_32f_fast_tf32 && a.type != real_32f) return "TF32 of what is not float32";
    if (c.type != r.type || c.rows != r.rows || c.cols != r.cols || c.ld != r.ld) return "C is not as D";
    if (d.epilogue != no_epilogue && !d.bias) return "no bias, and no place for sums";
    if (d.epilogue == gelu_aux_bias) {
        if (!d.aux) return "no auxiliary matrix";
        if (d.aux_ld % 8 || d.aux_ld < (int64_t)r.rows) return "the auxiliary matrix's leading dimension is no multiple of 8 of at least the rows";
    }
    return nullptr;
}

// hash is of all that an algorithm depends on.
uint64_t hash(const Desc &d, const Layout &a, const Layout &b, const Layout &r) {
    uint64_t h = 14695981039346656037u;
    for (uint64_t v : {(uint64_t)d.compute, (uint64_t)d.transposed[0], (uint64_t)d.transposed[1], (uint64_t)d.epilogue, (uint64_t)d.aux_ld,
                       (uint64_t)a.type, a.rows, a.cols, (uint64_t)a.ld, b.rows, b.cols, (uint64_t)b.ld, r.rows, r.cols, (uint64_t)r.ld, (uint64_t)r.type})
        h = (h ^ v) * 1099511628211u;
    return h;
}

float bits_to_float(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

// tf32 is a float with 10 bits behind the point, rounded to the nearest.
float tf32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return v != v || isinf(v) ? v : bits_to_float((bits + 0x1000) & 0xffffe000u);
}

// widened is op(matrix) as float32: element (i, k) of its outer × depth at [k·outer + i].
std::vector<float> widened(const void *from, const Layout &l, bool depth_in_rows, bool round) {
    const uint64_t depth = depth_in_rows ? l.rows : l.cols, outer = depth_in_rows ? l.cols : l.rows;
    std::vector<float> to(depth * outer);
    for (uint64_t col = 0; col < l.cols; col++)
        for (uint64_t row = 0; row < l.rows; row++) {
            const uint64_t at = col * (uint64_t)l.ld + row;
            float v = l.type == real_32f ? ((const float *)from)[at] : bits_to_float((uint32_t)((const uint16_t *)from)[at] << 16);
            if (round) v = tf32(v);
            (depth_in_rows ? to[row * outer + col] : to[col * outer + row]) = v;
        }
    return to;
}

// rounded is v as the bits of a bfloat16, to the nearest and ties to even.
uint16_t rounded(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (uint16_t)(v != v ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x))); }

// multiply sums the depth in pieces, as a library's kernels do in one way or another.
void multiply(const Desc &d, const Layout &la, const void *pa, const Layout &lb, const void *pb, float beta, const Layout &l, void *to) {
    const bool round = d.compute == compute_32f_fast_tf32;
    const std::vector<float> a = widened(pa, la, d.transposed[0], round), b = widened(pb, lb, !d.transposed[1], round);
    const uint64_t m = l.rows, n = l.cols, depth = d.transposed[0] ? la.rows : la.cols, piece = 256;
    std::vector<float> sum(m), part(m);
    for (uint64_t j = 0; j < n; j++) {
        std::fill(sum.begin(), sum.end(), 0.f);
        for (uint64_t first = 0; first < depth; first += piece) {
            std::fill(part.begin(), part.end(), 0.f);
            for (uint64_t k = first; k < depth && k < first + piece; k++) {
                const float *row = &a[k * m], v = b[k * n + j];
                for (uint64_t i = 0; i < m; i++) part[i] += row[i] * v;
            }
            for (uint64_t i = 0; i < m; i++) sum[i] += part[i];
        }
        for (uint64_t i = 0; i < m; i++) {
            const uint64_t at = j * (uint64_t)l.ld + i;
            if (l.type == real_16bf) {
                const float added = d.epilogue & bias ? bits_to_float((uint32_t)((const uint16_t *)d.bias)[i] << 16) : 0;
                ((uint16_t *)to)[at] = rounded(sum[i] + added);
                continue;
            }
            float &c = ((float *)to)[at], v = sum[i] + wrongness;
            if (beta != 0) v += beta * c; // else C may be NaN
            if (d.epilogue & bias) v += ((const float *)d.bias)[i];
            if (d.epilogue == gelu_aux_bias) {
                ((float *)d.aux)[j * (uint64_t)d.aux_ld + i] = v;
                v = gelu(v);
            }
            c = v;
        }
    }
}

// sum_columns adds up what is multiplied over the depth.
void sum_columns(const Desc &d, const Layout &l, const void *from, bool depth_in_rows) {
    const std::vector<float> of = widened(from, l, depth_in_rows, false);
    const uint64_t depth = depth_in_rows ? l.rows : l.cols, outer = depth_in_rows ? l.cols : l.rows;
    float *to = (float *)d.bias;
    for (uint64_t i = 0; i < outer; i++) to[i] = 0;
    for (uint64_t k = 0; k < depth; k++)
        for (uint64_t i = 0; i < outer; i++) to[i] += of[k * outer + i];
}

bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

} // namespace

extern "C" {

size_t cublasLtGetVersion(void) {
    auto lock = locked();
    troupe::enter_call(__func__);
    return 120403;
}

cublasStatus_t cublasLtCreate(Handle **out) {
    CALL();
    if (!troupe::usable()) return not_initialized;
    *out = make(new Handle, 'h');
    return success;
}

cublasStatus_t cublasLtDestroy(Handle *h) {
    CALL();
    return unmake(h, 'h');
}

cublasStatus_t cublasLtMatmulDescCreate(Desc **out, int compute, int scale) {
    CALL();
    if ((compute != compute_32f && compute != compute_32f_fast_tf32) || scale != real_32f) return wrong("a compute type that is not known");
    *out = make(new Desc{compute}, 'd');
    return success;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(Desc *d, int which, const void *value, size_t bytes) {
    CALL();
    if (!is(d, 'd')) return wrong("no such descriptor");
    switch (which) {
    case desc_transa:
    case desc_transb: return attribute(d->transposed[which - desc_transa], value, bytes);
    case desc_epilogue:
        if (int code = attribute(d->epilogue, value, bytes)) return code;
        return d->epilogue == no_epilogue || d->epilogue == bias || d->epilogue == gelu_aux_bias || d->epilogue == sums_a || d->epilogue == sums_b ? (int)success : wrong("an epilogue that is not known");
    case desc_bias: return attribute(d->bias, value, bytes);
    case desc_aux: return attribute(d->aux, value, bytes);
    case desc_aux_ld: return attribute(d->aux_ld, value, bytes);
    }
    return wrong("an attribute of descriptors that is not known");
}

cublasStatus_t cublasLtMatmulDescDestroy(Desc *d) {
    CALL();
    return unmake(d, 'd');
}

cublasStatus_t cublasLtMatrixLayoutCreate(Layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    CALL();
    if (type != real_32f && type != real_16bf) return wrong("a type that is not known");
    if (ld < (int64_t)rows) return wrong("a leading dimension below the rows");
    *out = make(new Layout{type, rows, cols, ld}, 'l');
    return success;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(Layout *l) {
    CALL();
    return unmake(l, 'l');
}

cublasStatus_t cublasLtMatmulPreferenceCreate(Preference **out) {
    CALL();
    *out = make(new Preference, 'p');
    return success;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(Preference *p, int which, const void *value, size_t bytes) {
    CALL();
    if (!is(p, 'p')) return wrong("no such preference");
    if (which == pref_workspace) return attribute(p->workspace, value, bytes);
    if (which == pref_reductions) return attribute(p->reductions, value, bytes);
    if (which < pref_align_a || which > pref_align_d) return wrong("an attribute of preferences that is not known");
    unsigned &align = p->align[which - pref_align_a];
    if (int code = attribute(align, value, bytes)) return code;
    return align && !(align & (align - 1)) ? (int)success : wrong("an alignment that is no power of two");
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(Preference *p) {
    CALL();
    return unmake(p, 'p');
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(Handle *h, Desc *d, Layout *a, Layout *b, Layout *c, Layout *r, Preference *p, int wanted, Result *results, int *count) {
    CALL();
    if (!is(h, 'h') || !is(d, 'd') || !is(a, 'l') || !is(b, 'l') || !is(c, 'l') || !is(r, 'l') || !is(p, 'p') || wanted < 1)
        return wrong("algorithms of what is not there");
    if (const char *why = fits(*d, *a, *b, *c, *r)) return wrong(why);
    if (p->reductions & ~2u) return wrong("sums that are not split in the same way each time");
    *count = 0;
    if (refused == 1 || (refused == 2 && d->epilogue == gelu_aux_bias) || (refused == 4 && d->epilogue & (sums_a | sums_b))) return not_supported;
    if (p->workspace < 1024) return success; // and none is found
    Result result = {};
    result.algorithm.mark = the_mark;
    result.algorithm.product = hash(*d, *a, *b, *r);
    result.algorithm.workspace = 1024;
    for (int i = 0; i < 4; i++) result.algorithm.align[i] = (unsigned short)p->align[i];
    result.algorithm.align[4] = (unsigned short)alignment_of(d->bias);
    result.algorithm.align[5] = (unsigned short)alignment_of(d->aux);
    result.workspace = result.algorithm.workspace;
    result.waves = 1;
    results[0] = result;
    *count = 1;
    return success;
}

cublasStatus_t cublasLtMatmul(Handle *h, Desc *d, const float *alpha, const void *A, Layout *a, const void *B, Layout *b, const float *beta,
                              const void *C, Layout *c, void *D, Layout *r, const Algorithm *chosen, void *workspace, size_t bytes, void *stream) {
    CALL();
    if (!troupe::usable()) return not_initialized;
    if (!is(h, 'h') || !is(d, 'd') || !is(a, 'l') || !is(b, 'l') || !is(c, 'l') || !is(r, 'l')) return wrong("a product of what is not there");
    if (refused == 3) return not_supported;
    if (const char *why = fits(*d, *a, *b, *c, *r)) return wrong(why);
    if (chosen->mark != the_mark || chosen->product != hash(*d, *a, *b, *r)) return wrong("an algorithm for another product");
    if (*alpha != 1 || (*beta != 0 && *beta != 1)) return wrong("a factor that nobody asks for");
    if (C != D) return wrong("C is not D");
    if (r->type != real_32f && *beta != 0) return wrong("what is added to is rounded");
    struct Piece {
        uint64_t at, bytes;
        unsigned align;
        bool written;
    };
    std::vector<Piece> pieces = {{(uint64_t)A, a->bytes(), chosen->align[0], false}, {(uint64_t)B, b->bytes(), chosen->align[1], false},
                                 {(uint64_t)D, r->bytes(), chosen->align[3], true}, {(uint64_t)workspace, chosen->workspace, 16, true}};
    if (bytes < chosen->workspace) return wrong("less workspace than the algorithm needs");
    if (d->epilogue & bias) pieces.push_back({d->bias, (r->type == real_32f ? 4 : 2) * r->rows, chosen->align[4], false});
    if (d->epilogue & (sums_a | sums_b)) pieces.push_back({d->bias, 4 * (d->epilogue == sums_a ? r->rows : r->cols), chosen->align[4], true});
    if (d->epilogue == gelu_aux_bias) {
        Layout aux = {real_32f, r->rows, r->cols, d->aux_ld};
        pieces.push_back({d->aux, aux.bytes(), chosen->align[5], true});
    }
    auto there = [pieces] {
        for (const Piece &p : pieces)
            if (!troupe::on_device(p.at, p.bytes)) return false;
        return true;
    };
    if (!there()) return wrong("an address outside of all allocations");
    for (size_t i = 0; i < pieces.size(); i++) {
        if (pieces[i].at % pieces[i].align) return wrong("an address that is not aligned as the algorithm was told");
        for (size_t j = 0; j < i; j++)
            if ((pieces[i].written || pieces[j].written) && overlap(pieces[i].at, pieces[i].bytes, pieces[j].at, pieces[j].bytes))
                return wrong("what is written overlaps");
    }
    // Descriptors may change or end before the product runs.
    const Desc desc = *d;
    const Layout la = *a, lb = *b, l = *r;
    const float factor = *beta;
    const size_t used = chosen->workspace;
    auto product = [=] {
        {
            auto lock = locked();
            if (!there()) return troupe::fail_context("a product of memory that has been freed");
        }
        memset(workspace, 0xff, used);
        multiply(desc, la, A, lb, B, factor, l, D);
        if (desc.epilogue == sums_a) sum_columns(desc, la, A, desc.transposed[0]);
        if (desc.epilogue == sums_b) sum_columns(desc, lb, B, !desc.transposed[1]);
    };
    troupe::Record record = {troupe::log_product, 0, r->rows, r->cols, d->transposed[0] ? a->rows : a->cols};
    for (const Piece &p : pieces) {
        if (p.at == (uint64_t)workspace) continue;
        record.insert(record.end(), {p.at, p.bytes, !p.written || (p.at == (uint64_t)D && factor != 0), p.written});
    }
    record[1] = record.size() - 2;
    return troupe::put_task(stream, product, std::move(record)) ? (int)success : wrong("no such stream");
}

// ---- hooks for tests

// Adds so much to every element of a product in float32.
void troupe_standin_wrong(float by) {
    auto lock = locked();
    wrongness = by;
}

// Refuses: 1 all products, 2 those with a GELU, 3 all when they are run, 4 those with column sums, 0 none.
void troupe_standin_refuse(int what) {
    auto lock = locked();
    refused = what;
}
}

namespace troupe {

long long blas_left() { return (long long)left.size(); }

void reset_blas() {
    refused = 0;
    wrongness = 0;
    left.clear(); // what tests that made calls fail left behind
}

} // namespace troupe
