// Activations of the feed-forward network other than ReLU, which products compute themselves.
//
//   activate(activation, rows, size, x)

#pragma once

#include "vectors.hpp"

enum Activation : int32_t { RELU_OF_PRODUCT = 0, GELU = 1, SILU = 2, SWIGLU = 3 };

namespace {

inline Vector sigmoid(const Vector& x) {
    const Vector one = broadcast(1.0f), e = exponential(minus_abs(x));
    return by_sign(x, e, one) / (one + e);
}

// The normal distribution function; 1 - erf as Abramowitz and Stegun 7.1.26 has it, within 1.5e-7.
inline Vector normal(const Vector& x) {
    const Vector one = broadcast(1.0f), z = minus_abs(x) * broadcast(0.70710678f);
    const Vector t = one / fused(z, broadcast(-0.3275911f), one);
    Vector p = fused(broadcast(1.061405429f), t, broadcast(-1.453152027f));
    p = fused(p, t, broadcast(1.421413741f));
    p = fused(p, t, broadcast(-0.284496736f));
    p = fused(p, t, broadcast(0.254829592f));
    const Vector half = broadcast(0.5f) * p * t * exponential(minus_abs(z * z));
    return by_sign(x, half, one - half);
}

// y (count,) <- f of sixteen adjacent numbers of x.
template <class Function>
inline void map(const float* x, int64_t count, float* y, const Function& f) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) put(f(vector(x + i)), y + i);
    if (i < count) put(f(vector(x + i, count - i, 0.0f)), y + i, count - i);
}

// x (N, d_ff), or (N, 2 * d_ff) for a gate, becomes f(x), (N, d_ff), in the same place.
inline void activate(int32_t activation, int64_t rows, int64_t size, float* x) {
    if (activation == GELU) map(x, rows * size, x, [](const Vector& v) { return v * normal(v); });
    if (activation != SILU && activation != SWIGLU) return;
    const auto silu = [](const Vector& v) { return v * sigmoid(v); };
    if (activation == SILU) return map(x, rows * size, x, silu);
    for (int64_t n = 0; n < rows; ++n) {
        const float *const gate = x + 2 * n * size, *const up = gate + size;
        float* const y = x + n * size;  // at the gate of the first row, before the gates of others
        map(gate, size, y, silu);
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] *= up[i];
    }
}

}  // namespace
