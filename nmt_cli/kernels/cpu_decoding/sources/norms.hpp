// Residual sums, LayerNorm and RMSNorm.

#pragma once

#include <cmath>

#include "dtypes.hpp"

namespace {

// The sum of term(i) over `size` numbers: PARTS partial sums, then their sum.
template <class Term>
float sum_over(int64_t size, const Term& term) {
    float parts[PARTS] = {};
    int64_t i = 0;
    for (; i + PARTS <= size; i += PARTS) {
#pragma omp simd
        for (int j = 0; j < PARTS; ++j) parts[j] += term(i + j);
    }
    const Four sums = sums_of(vector(parts), vector(parts + LANES), vector(parts + 2 * LANES), vector(parts + 3 * LANES));
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < size; ++i) sum += term(i);
    return sum;
}

void layer_norm(const float* x, int64_t size, const float* weight, const float* bias, float epsilon, float* out) {
    const float mean = sum_over(size, [=](int64_t i) { return x[i]; }) / size;
    const float squares = sum_over(size, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float factor = 1.0f / std::sqrt(squares / size + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

void rms_norm(const float* x, int64_t size, const float* weight, float epsilon, float* out) {
    const float squares = sum_over(size, [=](int64_t i) { return x[i] * x[i]; });
    const float factor = 1.0f / std::sqrt(squares / size + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

}  // namespace

extern "C" {

// x (N, D) <- residual; post: residual <- Norm(residual + input), out <- residual; otherwise residual += input,
// out <- Norm(residual). input may be null: nothing is added; weight null: no norm; bias null: RMSNorm instead of LayerNorm.
void nmt_norm(int64_t rows, int64_t size, float* residual, const void* input, int dtype, const float* weight, const float* bias, float epsilon, int post, void* out, int out_dtype, float int8_scale) {
    std::vector<float>& y = scratch.out;
    y.resize(size);
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = residual + n * size;
        if (input) {
            if (dtype == FP32)
                add(x, static_cast<const float*>(input) + n * size, size);
            else
                add(x, static_cast<const bf16*>(input) + n * size, size);
        }
        const float* from = x;
        if (weight) {
            float* const normed = post ? x : y.data();
            if (bias)
                layer_norm(x, size, weight, bias, epsilon, normed);
            else
                rms_norm(x, size, weight, epsilon, normed);
            if (!post) from = y.data();
        }
        store(from, size, static_cast<char*>(out) + n * size * size_of(out_dtype), out_dtype, int8_scale);
    }
}

}  // extern "C"
