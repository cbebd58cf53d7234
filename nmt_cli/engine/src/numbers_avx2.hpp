// The numbers of a product in registers of AVX2: sixteen sums are two registers, in fp32 and of 8-bit numbers. A
// processor with AVX-512 but without VNNI has the latter only.

#pragma once

#include "outputs.hpp"

namespace {

// The tiles of a product: 12 of the 16 registers are sums, two for each row and panel.
struct NarrowTiles {
    static constexpr int TILE = 6;  // rows at most
    static constexpr int most_rows(int panels) { return panels == 4 ? 1 : panels == 2 ? 3 : TILE; }
};

// Write sixteen results of a map, or as many as it has.
template <Finish FINISH>
void finished(const Outputs& outputs, __m256 low, __m256 high, float* out) {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 y[2] = {FINISH == PLAIN ? low : _mm256_max_ps(zero, low),
                         FINISH == PLAIN ? high : _mm256_max_ps(zero, high)};
    if (outputs.left == LANES)
        std::memcpy(out, y, sizeof y);
    else
        std::memcpy(out, y, outputs.left * sizeof(float));
}

#ifndef __AVX512F__
struct Floats : NarrowTiles {
    struct Sum {
        __m256 low, high;
    };
    using X = float;
    static constexpr int64_t TOGETHER = 1, STEP = sizeof(Sum);  // numbers of x that meet STEP bytes of W in a panel

    static Sum start(const Map&, int64_t, bool) { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static Sum load(const char* w) {
        const float* const numbers = reinterpret_cast<const float*>(w);
        return {_mm256_loadu_ps(numbers), _mm256_loadu_ps(numbers + 8)};
    }
    static __m256 spread(const X* x) { return _mm256_broadcast_ss(x); }
    static void add(Sum& sum, const __m256& x, const Sum& w) {
        sum.low = _mm256_fmadd_ps(x, w.low, sum.low);
        sum.high = _mm256_fmadd_ps(x, w.high, sum.high);
    }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, const Sum& sum, float, float* out) {
        finished<FINISH>(outputs, _mm256_add_ps(sum.low, low_half(outputs.bias)),
                         _mm256_add_ps(sum.high, high_half(outputs.bias)), out);
    }
};
#endif

#ifndef __AVX512VNNI__
// Sums of 8-bit products in two registers.
struct ByteSums : NarrowTiles {
    struct Sum {
        __m256i low, high;
    };

    static __m256 scaled(__m256i sum, __m256 scales, float scale, __m256 bias) {
        return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scales, _mm256_set1_ps(scale))),
                             bias);
    }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, const Sum& sum, float scale, float* out) {
        finished<FINISH>(outputs, scaled(sum.low, low_half(outputs.scales), scale, low_half(outputs.bias)),
                         scaled(sum.high, high_half(outputs.scales), scale, high_half(outputs.bias)), out);
    }
};

#ifdef __AVXVNNI__
// The instruction multiplies unsigned numbers by signed ones, four at once: panels are (d_in / 4, LANES, 4).
struct Bytes : ByteSums {
    using X = uint8_t;
    static constexpr int64_t TOGETHER = 4, STEP = sizeof(Sum);
    static constexpr Grid INPUT = OFFSET;  // what a pass before it writes

    static Sum start(const Map& map, int64_t at, bool is_offset) {
        const __m256i zero = _mm256_setzero_si256();
        if (!is_offset) return {zero, zero};
        const __m256i* const sums = reinterpret_cast<const __m256i*>(map.sums + at);
        return {_mm256_sub_epi32(zero, _mm256_loadu_si256(sums)), _mm256_sub_epi32(zero, _mm256_loadu_si256(sums + 1))};
    }
    static Sum load(const char* w) {
        const __m256i* const bytes = reinterpret_cast<const __m256i*>(w);
        return {_mm256_loadu_si256(bytes), _mm256_loadu_si256(bytes + 1)};
    }
    static __m256i spread(const X* x) {
        int32_t four;
        std::memcpy(&four, x, sizeof four);
        return _mm256_set1_epi32(four);
    }
    static void add(Sum& sum, const __m256i& x, const Sum& w) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.low) : "x"(x), "x"(w.low));  // the intrinsic copies sums
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.high) : "x"(x), "x"(w.high));
    }
    static const X* prepared(const void* x, int64_t, int) { return static_cast<const X*>(x); }
};
#else
// There is no product of 8-bit numbers whose sums are exact: they are multiplied as 16-bit numbers, two at once. Panels
// are (d_in / 2, LANES, 2), and are widened as they are read; x is widened before.
struct Bytes : ByteSums {
    using X = int16_t;
    static constexpr int64_t TOGETHER = 2, STEP = sizeof(Sum) / 2;
    static constexpr Grid INPUT = SIGNED;  // what a pass before it writes

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

    // x (count,) of the grid SIGNED or UNSIGNED in 16 bits; valid until the next call in this thread.
    static const X* prepared(const void* x, int64_t count, int kind) {
        static thread_local std::vector<X> wide;
        wide.resize(count);
        if (kind == SIGNED)
            std::copy_n(static_cast<const int8_t*>(x), count, wide.data());
        else
            std::copy_n(static_cast<const uint8_t*>(x), count, wide.data());
        return wide.data();
    }
};
#endif
#endif

}  // namespace
