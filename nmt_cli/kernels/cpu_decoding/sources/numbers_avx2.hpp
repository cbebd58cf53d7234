// The numbers of a product in registers of AVX2: sixteen sums are two registers, in fp32 and of 8-bit numbers. A processor with
// AVX-512 but without VNNI has the latter only.

#pragma once

#include "outputs.hpp"

namespace {

// The tiles of a product: 12 of the 16 registers are sums, two for each row and panel.
struct NarrowTiles {
    static constexpr int TILE = 6;  // rows at most
    static constexpr int most_rows(int panels) { return panels == 4 ? 1 : panels == 2 ? 3 : TILE; }
};

// A half of sixteen numbers.
#ifdef __AVX512F__
inline __m256 half(const Vector& numbers, int which) { return _mm256_loadu_ps(reinterpret_cast<const float*>(&numbers) + 8 * which); }
#else
inline __m256 half(const Vector& numbers, int which) { return which ? numbers.high : numbers.low; }
#endif

// Write the first `left` of sixteen results.
inline void put(__m256 low, __m256 high, int64_t left, char* out) {
    const __m256 y[2] = {low, high};
    if (left == LANES)
        std::memcpy(out, y, sizeof y);
    else
        std::memcpy(out, y, left * sizeof(float));
}

inline __m256 at_least_zero(__m256 y) { return _mm256_max_ps(y, _mm256_setzero_ps()); }

#ifndef __AVX512F__
struct Floats : NarrowTiles {
    struct Sum {
        __m256 low, high;
    };
    using X = float;
    static constexpr int64_t TOGETHER = 1, STEP = sizeof(Sum);  // numbers of x that meet STEP bytes of W in a panel

    static Sum start(const Map&, int64_t, bool) { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static Sum load(const char* w) { return {_mm256_loadu_ps(reinterpret_cast<const float*>(w)), _mm256_loadu_ps(reinterpret_cast<const float*>(w) + 8)}; }
    static __m256 spread(const X* x) { return _mm256_broadcast_ss(x); }
    static void add(Sum& sum, const __m256& x, const Sum& w) {
        sum.low = _mm256_fmadd_ps(x, w.low, sum.low);
        sum.high = _mm256_fmadd_ps(x, w.high, sum.high);
    }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, const Sum& sum, char* out, float) {
        const __m256 low = _mm256_add_ps(sum.low, half(outputs.bias, 0)), high = _mm256_add_ps(sum.high, half(outputs.bias, 1));
        FINISH == PLAIN ? put(low, high, outputs.left, out) : put(at_least_zero(low), at_least_zero(high), outputs.left, out);
    }
};
#endif

#ifndef __AVX512VNNI__
// There is no product of 8-bit numbers whose sums are exact: they are multiplied as 16-bit numbers, two at once. Panels are
// (d_in / 2, LANES, 2), and are widened as they are read; x is widened before.
struct Bytes : NarrowTiles {
    struct Sum {
        __m256i low, high;
    };
    using X = int16_t;
    static constexpr int64_t TOGETHER = 2, STEP = sizeof(Sum) / 2;
    static constexpr int INPUT = INT8;  // what a pass before it writes best

    static Sum start(const Map&, int64_t, bool) { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static Sum load(const char* w) {
        const __m128i* const bytes = reinterpret_cast<const __m128i*>(w);
        return {_mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)), _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1))};
    }
    static __m256i spread(const X* x) {
        int32_t two;
        std::memcpy(&two, x, sizeof two);
        return _mm256_set1_epi32(two);
    }
    static void add(Sum& sum, const __m256i& x, const Sum& w) {
        add(sum.low, x, w.low);
        add(sum.high, x, w.high);
    }

    // Of intrinsics, the compiler computes all products before it adds one, and keeps the sums in memory.
    static void add(__m256i& sum, const __m256i& x, const __m256i& w) {
        __m256i products;
        asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(x), "x"(w));
    }

    // x (count,) of INT8 or UINT8 in 16 bits.
    static const X* prepared(const void* x, int64_t count, int dtype) {
        scratch.input.resize(count * sizeof(X));
        X* const to = reinterpret_cast<X*>(scratch.input.data());
        if (dtype == INT8)
            std::copy_n(static_cast<const int8_t*>(x), count, to);
        else
            std::copy_n(static_cast<const uint8_t*>(x), count, to);
        return to;
    }

    // The product is rounded before the bias is added, as in oneDNN: the compiler may not contract them.
    template <Finish FINISH>
    static __m256 scaled(__m256i sum, __m256 scales, __m256 bias) {
        __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scales);
        asm("" : "+x"(y));
        y = _mm256_add_ps(y, bias);
        return FINISH == PLAIN ? y : at_least_zero(y);
    }

    // The nearest integers, at most 255.
    static __m256i in_bytes(__m256 y, float factor) { return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_mul_ps(y, _mm256_set1_ps(factor)), _mm256_set1_ps(255.0f))); }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, const Sum& sum, char* out, float factor) {
        const __m256 low = scaled<FINISH>(sum.low, half(outputs.scales, 0), half(outputs.bias, 0)), high = scaled<FINISH>(sum.high, half(outputs.scales, 1), half(outputs.bias, 1));
        if (FINISH != RELU_IN_BYTES) return put(low, high, outputs.left, out);
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(in_bytes(low, factor), in_bytes(high, factor)), 0xd8);
        const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        if (outputs.left == LANES)
            std::memcpy(out, &bytes, sizeof bytes);
        else
            std::memcpy(out, &bytes, outputs.left);
    }
};
#endif

}  // namespace
