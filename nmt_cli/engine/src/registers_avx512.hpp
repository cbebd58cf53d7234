// AVX-512: a Vector is one register of 32.

#pragma once

#include <immintrin.h>

namespace {

using Vector = __m512;

inline Vector vector(const float* x) { return _mm512_loadu_ps(x); }

inline Vector vector(const bf16* x) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline Vector broadcast(float x) { return _mm512_set1_ps(x); }

inline void put(const Vector& x, float* out) { _mm512_storeu_ps(out, x); }

inline Vector fused(const Vector& x, const Vector& y, const Vector& z) { return _mm512_fmadd_ps(x, y, z); }

inline void accumulate(Vector& z, const Vector& x, const Vector& y) { z = fused(x, y, z); }

inline Vector larger(const Vector& x, const Vector& y) { return _mm512_max_ps(x, y); }

inline Vector minus_abs(const Vector& x) { return _mm512_or_ps(x, _mm512_set1_ps(-0.0f)); }

inline Vector by_sign(const Vector& x, const Vector& negative, const Vector& other) {
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), other, negative);
}

inline Vector zero_below(float limit, const Vector& x, const Vector& y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), y);
}

inline Vector power(const Vector& sixteenths) {
    const __m512i k = _mm512_castps_si512(sixteenths), powers = _mm512_load_si512(POWERS);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_permutexvar_epi32(k, powers), _mm512_slli_epi32(k, 19)));
}

inline void put_bytes(const Vector& x, const Vector& y, uint8_t flip, uint8_t* out) {
    const __m128i flips = _mm_set1_epi8(char(flip));
    __m128i* const to = reinterpret_cast<__m128i*>(out);
    _mm_storeu_si128(to, _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)), flips));
    _mm_storeu_si128(to + 1, _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(y)), flips));
}

inline Vector from_eight_away(const Vector& x) { return _mm512_shuffle_f32x4(x, x, 0x4e); }

inline Vector from_four_away(const Vector& x) { return _mm512_shuffle_f32x4(x, x, 0xb1); }

inline Four sums_of(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
    const auto both = [](__m512 x, __m512 y) {  // the eight sums of x, then those of y
        return _mm512_mask_blend_ps(0xff00, x, y) + _mm512_shuffle_f32x4(x, y, 0x4e);
    };
    const __m512 ac = both(a, c), bd = both(b, d);
    const __m512 all = _mm512_mask_blend_ps(0xcccc, ac, bd) + _mm512_shuffle_ps(ac, bd, 0x4e);
    const __m256 ab = _mm512_castps512_ps256(all), cd = _mm512_extractf32x8_ps(all, 1);
    const __m256 four = _mm256_shuffle_ps(ab, cd, 0x88) + _mm256_shuffle_ps(ab, cd, 0xdd);
    return (Four)(_mm256_castps256_ps128(four) + _mm256_extractf128_ps(four, 1));
}

// Sixteen registers are sums.
struct Tiles {
    static constexpr int TILE = 8;
    static constexpr int most_rows(int panels) { return panels == 4 ? 4 : TILE; }
};

#ifdef __AVX512VNNI__
// The instruction multiplies unsigned numbers by signed ones.
struct Bytes : Tiles {
    using Sum = __m512i;
    using X = uint8_t;
    static constexpr int TOGETHER = 4, ADJACENT = 4;
    static constexpr Grid INPUT = OFFSET, SHIFTED = OFFSET;

    static Sum load(const int8_t* w) { return _mm512_loadu_si512(w); }
    static Sum spread(const X* x) { return _mm512_set1_epi32(four_bytes(x)); }
    static void add(Sum& sum, const Sum& x, const Sum& w) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));  // the intrinsic copies sums
    }
#else
// There is no product of 8-bit numbers whose sums are exact: they are multiplied as 16-bit numbers.
struct Bytes : Tiles {
    using Sum = __m512i;
    using X = int16_t;
    static constexpr int TOGETHER = 2, ADJACENT = 2;
    static constexpr Grid INPUT = SIGNED, SHIFTED = NONE;

    static Sum load(const int8_t* w) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
    }
    static Sum spread(const X* x) { return _mm512_set1_epi32(four_bytes(x)); }
    // Of intrinsics, the compiler computes all products before it adds one, and keeps the sums in memory.
    static void add(Sum& sum, const Sum& x, const Sum& w) {
        Sum products;
        asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(x), "v"(w));
    }
#endif
    static Sum zero() { return _mm512_setzero_si512(); }
    static Sum sums(const int32_t* x) { return _mm512_loadu_si512(x); }
    static Vector numbers(const Sum& sum) { return _mm512_cvtepi32_ps(sum); }
};

#ifdef __AVX512VNNI__
using ShortSums = Bytes;
#else
struct ShortSums : Tiles {
    using Sum = __m512i;
    using X = uint8_t;
    static constexpr int TOGETHER = 8, ADJACENT = 4;
    static constexpr Grid SHIFTED = OFFSET;

    struct Eight {
        Sum first, second;
    };
    static Eight load(const int8_t* w) { return {_mm512_loadu_si512(w), _mm512_loadu_si512(w + 64)}; }
    static Eight spread(const X* x) { return {_mm512_set1_epi32(four_bytes(x)), _mm512_set1_epi32(four_bytes(x + 4))}; }
    static void add(Sum& sum, const Eight& x, const Eight& w) {
        Sum products, more;
        asm("vpmaddubsw %3, %5, %1\n\tvpmaddubsw %4, %6, %2\n\tvpaddw %2, %1, %1\n\t"
            "vpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sum), "=&v"(products), "=&v"(more)
            : "v"(w.first), "v"(w.second), "v"(x.first), "v"(x.second), "v"(_mm512_set1_epi16(1)));
    }
    static void add(Sum& sum, X x, const int32_t* amounts) {
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_set1_epi32(x), sums(amounts)));
    }
    static Sum zero() { return Bytes::zero(); }
    static Sum sums(const int32_t* x) { return Bytes::sums(x); }
};
#endif

}  // namespace
