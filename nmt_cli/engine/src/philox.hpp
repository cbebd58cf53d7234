// Dropout by counter: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//
//   key       seed, place
//   counter   block, position, pair, update
//
// A block's 128 bits are eight draws of 16 bits. Sixteen blocks are computed at once, for 128 units: unit u of a row
// has the half u / 16 % 2 of the word u / 32 % 4 of block u / 128 * 16 + u % 16. It is dropped if its draw is less than
// `dropped`.

#pragma once

#include "model.hpp"
#include "vectors.hpp"

namespace {

constexpr int64_t DRAWS = 8 * LANES;  // units of sixteen blocks

inline void check(const nmt_dropout* dropout) {
    if (!dropout) return;
    if (dropout->dropped < 0 || dropout->dropped >= 65536)
        fail("dropout drops %lld of 65,536, expected 0 to 65,535", (long long)dropout->dropped);
    if (!dropout->pairs || !dropout->positions) fail("dropout has no pairs or no positions of rows");
}

// `size` rounded up to whole groups of draws.
inline int64_t whole_draws(int64_t size) { return (size + DRAWS - 1) / DRAWS * DRAWS; }

struct Counter {
    uint32_t block, position, pair, update;
};

// The four words of sixteen blocks, `counter` and those after it: word w of block b is words[w][b].
typedef uint32_t SixteenBlocks[4][LANES];

constexpr uint32_t MULTIPLY_FIRST = 0xd2511f53, MULTIPLY_THIRD = 0xcd9e8d57;  // the words a and c of a block
constexpr uint32_t NEXT_SEED = 0x9e3779b9, NEXT_PLACE = 0xbb67ae85;
constexpr int ROUNDS = 10;

#if defined(__AVX512F__) || defined(__AVX2__)
// The processor multiplies the lower halves of numbers of 64 bits. So a word is the lower half, the upper one is
// anything, and blocks of even and of odd numbers are computed beside each other.
#if defined(__AVX512F__)
typedef uint64_t Halves __attribute__((vector_size(64)));
inline Halves product(const Halves& x, uint32_t y) {
    return Halves(_mm512_mul_epu32(__m512i(x), _mm512_set1_epi64(y)));
}
#else
typedef uint64_t Halves __attribute__((vector_size(32)));
inline Halves product(const Halves& x, uint32_t y) {
    return Halves(_mm256_mul_epu32(__m256i(x), _mm256_set1_epi64x(y)));
}
#endif

inline void philox(const Counter& counter, uint32_t seed, uint32_t place, SixteenBlocks& words) {
    constexpr int COUNT = sizeof(Halves) / sizeof(uint64_t);
    const Halves zero{};
    Halves even = zero;
    for (int i = 0; i < COUNT; ++i) even[i] = 2 * i;
    for (int first = 0; first < LANES; first += 2 * COUNT) {
        Halves a[2], b[2], c[2], d[2], key = zero + seed, other = zero + place;
        for (int odd = 0; odd < 2; ++odd) {
            a[odd] = even + (counter.block + uint32_t(first + odd)), b[odd] = zero + counter.position;
            c[odd] = zero + counter.pair, d[odd] = zero + counter.update;
        }
        for (int round = 0; round < ROUNDS; ++round, key += NEXT_SEED, other += NEXT_PLACE) {
            for (int odd = 0; odd < 2; ++odd) {
                const Halves x = product(a[odd], MULTIPLY_FIRST), y = product(c[odd], MULTIPLY_THIRD);
                a[odd] = (y >> 32) ^ b[odd] ^ key, b[odd] = y;
                c[odd] = (x >> 32) ^ d[odd] ^ other, d[odd] = x;
            }
        }
        int word = 0;
        for (const Halves* both : {a, b, c, d}) {
            const Halves all = (both[0] & 0xffffffff) | (both[1] << 32);
            std::memcpy(words[word++] + first, &all, sizeof all);
        }
    }
}
#else
inline void philox(const Counter& counter, uint32_t seed, uint32_t place, SixteenBlocks& words) {
    uint32_t *const a = words[0], *const b = words[1], *const c = words[2], *const d = words[3];
#pragma omp simd
    for (int i = 0; i < LANES; ++i) {
        a[i] = counter.block + uint32_t(i), b[i] = counter.position, c[i] = counter.pair, d[i] = counter.update;
    }
    for (int round = 0; round < ROUNDS; ++round, seed += NEXT_SEED, place += NEXT_PLACE) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            const uint64_t x = uint64_t(a[i]) * MULTIPLY_FIRST, y = uint64_t(c[i]) * MULTIPLY_THIRD;
            a[i] = uint32_t(y >> 32) ^ b[i] ^ seed, b[i] = uint32_t(y);
            c[i] = uint32_t(x >> 32) ^ d[i] ^ place, d[i] = uint32_t(x);
        }
    }
}
#endif

// Write the factor of each unit of row n: 0, or what keeps the expectation. `factors` has whole_draws(size) numbers;
// `block` is the number of the first block, a multiple of LANES.
inline void dropout_factors(const nmt_dropout& dropout, int64_t n, int64_t size, float* factors, uint32_t block = 0) {
    Counter counter{block, uint32_t(dropout.positions[n]), uint32_t(dropout.pairs[n]), uint32_t(dropout.update)};
    const uint32_t seed = uint32_t(dropout.seed), place = uint32_t(dropout.place);
    const uint32_t least = uint32_t(dropout.dropped) << 16;  // of a draw in the upper half of a word
    const float kept = 65536.0f / float(65536 - dropout.dropped);
    for (int64_t first = 0; first < size; first += DRAWS, counter.block += LANES) {
        alignas(64) SixteenBlocks words;
        philox(counter, seed, place, words);
        float* out = factors + first;
        for (const auto& word : words) {
#pragma omp simd
            for (int i = 0; i < LANES; ++i) {
                out[i] = word[i] << 16 >= least ? kept : 0.0f;
                out[LANES + i] = word[i] >= least ? kept : 0.0f;
            }
            out += 2 * LANES;
        }
    }
}

}  // namespace
