// The engine's kernels as functions of a shared library, for test_kernels.py.

#include "activations.hpp"
#include "attention.hpp"
#include "norms.hpp"
#include "positions.hpp"
#include "softmax.hpp"

namespace {

// attend_plain for all sizes, where `attend` chooses attend_fast.
template <class T>
void attend_as_written(const Shape& shape, int64_t rows, const float* q, const T* keys, const T* values, int64_t stride,
                       const RowIndex& at, int64_t count, float* out) {
    std::vector<float> query(rows * shape.heads * shape.key), scores(shape.heads * scores_size(count));
    for (size_t i = 0; i < query.size(); ++i) query[i] = q[i] * shape.scale;
    attend_plain(shape, int(rows), query.data(), keys, values, stride, at, count, scores.data(), out);
}

template <class T>
void attend_slots(const Shape& shape, int64_t rows, const float* q, const T* keys, const T* values, int64_t stride,
                  const int32_t* slots, int64_t count, bool as_written, float* out) {
    RowIndex at{};
    std::vector<uint8_t> common(count, 1);
    for (int r = 0; r < GROUP; ++r) {
        at.lists[r] = slots + (r < rows ? r * count : 0);
        for (int64_t i = 0; i < count; ++i) common[i] &= at.lists[r][i] == slots[i];
    }
    at.common = common.data();
    const RowsOut to{out, nullptr, FP32};
    if (as_written)
        attend_as_written(shape, rows, q, keys, values, stride, at, count, out);
    else
        attend(shape, int(rows), q, shape.heads * shape.key, keys, values, stride, at, count, to, 0);
}

}  // namespace

#define FUNCTION extern "C" __attribute__((visibility("default"))) void

// y (size,) <- e^x of each sixteen numbers
FUNCTION exponentials(int64_t size, const float* x, float* y) {
    for (int64_t i = 0; i < size; i += LANES) put(exponential(vector(x + i, size - i, 0.0f)), y + i, size - i);
}

FUNCTION logarithms(int64_t size, const float* x, float* y) {
    for (int64_t i = 0; i < size; ++i) y[i] = logarithm(x[i]);
}

// y <- the sum of x, its largest number, the sum of exp(x - largest), and the logarithm of that sum over chunks of
// `chunk`
FUNCTION reductions(int64_t size, const float* x, int64_t chunk, float* y) {
    y[0] = sum_over(x, size);
    y[1] = largest_of(x, size);
    y[2] = sum_exp(x, size, y[1]);
    std::vector<Sum> sums;
    for (int64_t first = 0; first < size; first += chunk)
        sums.push_back(Sum::of(x + first, std::min(chunk, size - first)));
    y[3] = log_sum(sums.data(), int64_t(sums.size()));
}

FUNCTION write_rows(int64_t rows, int64_t size, const float* x, int32_t kind, void* y, float* scales) {
    for (int64_t n = 0; n < rows; ++n) RowsOut{y, scales, kind}.write(n, x + n * size, size);
}

FUNCTION normed(int64_t rows, int64_t size, float* residual, const float* input, const float* weight, const float* bias,
                float epsilon, int32_t post, float* out) {
    norm(rows, size, residual, input, weight, bias, epsilon, post, RowsOut{out, nullptr, FP32});
}

FUNCTION activated(int32_t activation, int64_t rows, int64_t size, float* x) { activate(activation, rows, size, x); }

FUNCTION embedded(int64_t rows, int64_t size, const void* table, const float* scales, const int64_t* ids, float factor,
                  const float* positions, const int64_t* at, float* out) {
    embed(rows, size, table, scales, ids, factor, positions, at, out);
}

FUNCTION rotated(int64_t rows, int64_t width, int64_t heads, int64_t key, const float* rotations, const int64_t* at,
                 float* x) {
    rotate(rows, width, heads, key, rotations, at, x);
}

FUNCTION attended_range(int64_t rows, int64_t heads, int64_t key, int64_t value, float scale, const float* queries,
                        const void* keys, const void* values, int32_t dtype, const int64_t* first, const int64_t* count,
                        float* out, float* weights) {
    const Shape shape{heads, key, value, scale};
    const RowsOut to{out, nullptr, FP32};
    const int64_t query_stride = heads * key, stride = heads * (key + value);
    if (dtype == FP32)
        attend_range(shape, rows, queries, query_stride, static_cast<const float*>(keys),
                     static_cast<const float*>(values), stride, first, count, to, weights);
    else
        attend_range(shape, rows, queries, query_stride, static_cast<const bf16*>(keys),
                     static_cast<const bf16*>(values), stride, first, count, to, weights);
}

// Up to four rows, each with its own slots (rows, count) of keys and values.
FUNCTION attended_slots(int64_t rows, int64_t heads, int64_t key, int64_t value, float scale, const float* queries,
                        const void* keys, const void* values, int32_t dtype, const int32_t* slots, int64_t count,
                        int32_t as_written, float* out) {
    const Shape shape{heads, key, value, scale};
    const int64_t stride = heads * (key + value);
    if (dtype == FP32)
        attend_slots(shape, rows, queries, static_cast<const float*>(keys), static_cast<const float*>(values), stride,
                     slots, count, as_written, out);
    else
        attend_slots(shape, rows, queries, static_cast<const bf16*>(keys), static_cast<const bf16*>(values), stride,
                     slots, count, as_written, out);
}
