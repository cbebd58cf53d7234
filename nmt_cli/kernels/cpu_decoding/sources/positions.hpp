// Embeddings, and the positions of tokens: encodings that are added to them, or rotations of queries and keys.

#pragma once

#include "dtypes.hpp"

namespace {

// x (H, K) <- each pair of numbers x[2i], x[2i + 1] rotated by the angle whose cosine and sine are turns[2i], turns[2i + 1].
template <class T>
void rotate(T* x, int64_t heads, int64_t key, const float* turns) {
    for (int64_t h = 0; h < heads; ++h, x += key) {
#pragma omp simd
        for (int64_t i = 0; i < key; i += 2) {
            const float even = load(x[i]), odd = load(x[i + 1]), cosine = turns[i], sine = turns[i + 1];
            put(x[i], even * cosine - odd * sine);
            put(x[i + 1], odd * cosine + even * sine);
        }
    }
}

// y (D) <- x * scale * factor + positions; without positions nothing is added
template <class T>
void embed(int64_t size, const T* x, float scale, float factor, const float* positions, float* y) {
    if (positions) {
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * factor + positions[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * factor;
    }
}

}  // namespace

extern "C" {

// out (N, D) <- table[ids] * factor + positions[at]; without positions nothing is added.
// The table (V, D) is fp32, or with `scales` (V,) int8: a row's numbers are its integers times its scale.
void nmt_embed(int64_t rows, int64_t size, const void* table, const float* scales, const int64_t* ids, float factor, const float* positions, const int64_t* at, float* out) {
    for (int64_t n = 0; n < rows; ++n) {
        const float* const p = positions ? positions + at[n] * size : nullptr;
        if (scales)
            embed(size, static_cast<const int8_t*>(table) + ids[n] * size, scales[ids[n]], factor, p, out + n * size);
        else
            embed(size, static_cast<const float*>(table) + ids[n] * size, 1.0f, factor, p, out + n * size);
    }
}

// Rotate the first H * K numbers of each row x (N, width) by its position: rotations (P, K), the cosine and sine of each pair.
void nmt_rotate(int64_t rows, int64_t width, int64_t heads, int64_t key, const float* rotations, const int64_t* at, void* x, int dtype) {
    for (int64_t n = 0; n < rows; ++n) {
        const float* const turns = rotations + at[n] * key;
        if (dtype == FP32)
            rotate(static_cast<float*>(x) + n * width, heads, key, turns);
        else
            rotate(static_cast<bf16*>(x) + n * width, heads, key, turns);
    }
}

}  // extern "C"
