// Activations of the feed-forward network other than ReLU, which products compute themselves.

#pragma once

#include "dtypes.hpp"

enum Activation : int32_t { RELU_OF_PRODUCT = 0, GELU = 1, SILU = 2, SWIGLU = 3 };

namespace {

inline float sigmoid(float x) {
    const float e = exponential(-std::fabs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// The normal distribution function; 1 - erf as Abramowitz and Stegun 7.1.26 has it, within 1.5e-7.
inline float normal(float x) {
    const float z = std::fabs(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float half = 0.5f * p * t * exponential(-z * z);
    return x < 0.0f ? half : 1.0f - half;
}

}  // namespace

extern "C" {

// x (N, d_ff), or (N, 2 * d_ff) for a gate, becomes f(x), (N, d_ff), in the same place.
void nmt_activate(int activation, int64_t rows, int64_t size, float* x) {
    for (int64_t n = 0; n < rows; ++n) {
        float* const y = x + n * size;
        if (activation == GELU) {
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) y[i] *= normal(y[i]);
        } else if (activation == SILU) {
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) y[i] *= sigmoid(y[i]);
        } else if (activation == SWIGLU) {
            const float *gate = x + 2 * n * size, *up = gate + size;  // at y or behind it
#pragma omp simd
            for (int64_t i = 0; i < size; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
        }
    }
}

}  // extern "C"
