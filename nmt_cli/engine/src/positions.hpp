// Embeddings, and the positions of tokens: encodings that are added to them, or rotations of queries and keys.
//
//   embed(rows, size, table, scales, ids, factor, positions, at, out)
//   rotate(rows, width, heads, key, rotations, at, x)

#pragma once

#include "vectors.hpp"

namespace {

// y (D) <- x * scale * factor + positions; without positions nothing is added
template <class T>
inline void embed_row(int64_t size, const T* x, float scale, float factor, const float* positions, float* y) {
    if (positions) {
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * factor + positions[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * factor;
    }
}

// out (N, D) <- table[ids] * factor + positions[at]; without positions nothing is added.
// The table (V, D) is fp32, or with `scales` (V,) int8: a row's numbers are its integers times its scale.
inline void embed(int64_t rows, int64_t size, const void* table, const float* scales, const int64_t* ids, float factor,
                  const float* positions, const int64_t* at, float* out) {
    for (int64_t n = 0; n < rows; ++n) {
        const int64_t first = ids[n] * size;
        const float* const p = positions ? positions + at[n] * size : nullptr;
        if (scales)
            embed_row(size, static_cast<const int8_t*>(table) + first, scales[ids[n]], factor, p, out + n * size);
        else
            embed_row(size, static_cast<const float*>(table) + first, 1.0f, factor, p, out + n * size);
    }
}

// Rotate each pair of numbers x[2i], x[2i + 1] of the first H * K of each row x (N, width) by the angle of its
// position: rotations (P, K) has its cosine at 2i and its sine at 2i + 1.
inline void rotate(int64_t rows, int64_t width, int64_t heads, int64_t key, const float* rotations, const int64_t* at,
                   float* x) {
    for (int64_t n = 0; n < rows; ++n) {
        const float* const turns = rotations + at[n] * key;
        for (int64_t h = 0; h < heads; ++h) {
            float* const y = x + n * width + h * key;
#pragma omp simd
            for (int64_t i = 0; i < key; i += 2) {
                const float even = y[i], odd = y[i + 1], cosine = turns[i], sine = turns[i + 1];
                y[i] = fused(even, cosine, -(odd * sine));
                y[i + 1] = fused(odd, cosine, even * sine);
            }
        }
    }
}

}  // namespace
