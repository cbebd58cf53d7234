// AVX2 with FMA: a Vector is two registers of 16.

#pragma once

#include <immintrin.h>

namespace {

struct Vector {
    __m256 low, high;
};

inline __m256 eight(const bf16* x) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

inline Vector vector(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }

inline Vector vector(const bf16* x) { return {eight(x), eight(x + 8)}; }

inline Vector broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

inline void put(const Vector& x, float* out) {
    _mm256_storeu_ps(out, x.low);
    _mm256_storeu_ps(out + 8, x.high);
}

inline Vector operator+(const Vector& x, const Vector& y) { return {x.low + y.low, x.high + y.high}; }

inline Vector operator-(const Vector& x, const Vector& y) { return {x.low - y.low, x.high - y.high}; }

inline Vector operator*(const Vector& x, const Vector& y) { return {x.low * y.low, x.high * y.high}; }

inline Vector operator/(const Vector& x, const Vector& y) { return {x.low / y.low, x.high / y.high}; }

inline Vector fused(const Vector& x, const Vector& y, const Vector& z) {
    return {_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)};
}

inline void accumulate(Vector& z, const Vector& x, const Vector& y) { z = fused(x, y, z); }

inline Vector larger(const Vector& x, const Vector& y) {
    return {_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)};
}

inline Vector minus_abs(const Vector& x) {
    return {_mm256_or_ps(x.low, _mm256_set1_ps(-0.0f)), _mm256_or_ps(x.high, _mm256_set1_ps(-0.0f))};
}

inline Vector by_sign(const Vector& x, const Vector& negative, const Vector& other) {
    return {_mm256_blendv_ps(other.low, negative.low, x.low), _mm256_blendv_ps(other.high, negative.high, x.high)};
}

inline Vector zero_below(float limit, const Vector& x, const Vector& y) {
    const __m256 least = _mm256_set1_ps(limit);
    return {_mm256_and_ps(_mm256_cmp_ps(x.low, least, _CMP_NLT_UQ), y.low),
            _mm256_and_ps(_mm256_cmp_ps(x.high, least, _CMP_NLT_UQ), y.high)};
}

inline __m256 power(__m256 sixteenths) {
    const __m256i* const powers = reinterpret_cast<const __m256i*>(POWERS);
    const __m256i k = _mm256_castps_si256(sixteenths);
    const __m256 first = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(_mm256_load_si256(powers), k));
    const __m256 second = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(_mm256_load_si256(powers + 1), k));
    const __m256 chosen = _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(k, 28)));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(chosen), _mm256_slli_epi32(k, 19)));
}

inline Vector power(const Vector& sixteenths) { return {power(sixteenths.low), power(sixteenths.high)}; }

inline void put_bytes(const Vector& x, const Vector& y, uint8_t flip, uint8_t* out) {
    const auto whole = [](__m256 eight) { return _mm256_and_si256(_mm256_cvtps_epi32(eight), _mm256_set1_epi32(255)); };
    const __m256i first = _mm256_packs_epi32(whole(x.low), whole(x.high));
    const __m256i second = _mm256_packs_epi32(whole(y.low), whole(y.high));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_xor_si256(bytes, _mm256_set1_epi8(char(flip))));
}

inline Vector from_eight_away(const Vector& x) { return {x.high, x.low}; }

inline Vector from_four_away(const Vector& x) {
    return {_mm256_permute2f128_ps(x.low, x.low, 1), _mm256_permute2f128_ps(x.high, x.high, 1)};
}

inline Four sums_of(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
    const auto both = [](const Vector& x) { return x.low + x.high; };
    const auto halves = [](__m256 x, __m256 y) {  // of each four: (x0 + x2, x1 + x3, y0 + y2, y1 + y3)
        return _mm256_blend_ps(x, y, 0xcc) + _mm256_shuffle_ps(x, y, 0x4e);
    };
    const __m256 ab = halves(both(a), both(b)), cd = halves(both(c), both(d));
    const __m256 four = _mm256_shuffle_ps(ab, cd, 0x88) + _mm256_shuffle_ps(ab, cd, 0xdd);
    return (Four)(_mm256_castps256_ps128(four) + _mm256_extractf128_ps(four, 1));
}

// Twelve registers are sums.
struct Tiles {
    static constexpr int TILE = 6;
    static constexpr int most_rows(int panels) { return panels == 4 ? 1 : panels == 2 ? 3 : TILE; }
};

// The sums of sixteen 32-bit numbers.
struct TwoSums {
    __m256i low, high;
};

struct Bytes : Tiles {
    using Sum = TwoSums;

#ifdef __AVXVNNI__
    // The instruction multiplies unsigned numbers by signed ones.
    using X = uint8_t;
    static constexpr int TOGETHER = 4, ADJACENT = 4;
    static constexpr Grid INPUT = OFFSET, SHIFTED = OFFSET;

    static Sum load(const int8_t* w) {
        const __m256i* const bytes = reinterpret_cast<const __m256i*>(w);
        return {_mm256_loadu_si256(bytes), _mm256_loadu_si256(bytes + 1)};
    }
    static void add(__m256i& sum, const __m256i& x, const __m256i& w) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));  // the intrinsic copies sums
    }
#else
    // There is no product of 8-bit numbers whose sums are exact: they are multiplied as 16-bit numbers.
    using X = int16_t;
    static constexpr int TOGETHER = 2, ADJACENT = 2;
    static constexpr Grid INPUT = SIGNED, SHIFTED = NONE;

    static Sum load(const int8_t* w) {
        const __m128i* const bytes = reinterpret_cast<const __m128i*>(w);
        return {_mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)), _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1))};
    }
    // Of intrinsics, the compiler computes all products before it adds one, and keeps the sums in memory.
    static void add(__m256i& sum, const __m256i& x, const __m256i& w) {
        __m256i products;
        asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(x), "x"(w));
    }
#endif
    static __m256i spread(const X* x) { return _mm256_set1_epi32(four_bytes(x)); }
    static void add(Sum& sum, const __m256i& x, const Sum& w) {
        add(sum.low, x, w.low);
        add(sum.high, x, w.high);
    }
    static Sum zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static Sum sums(const int32_t* x) {
        const __m256i* const eights = reinterpret_cast<const __m256i*>(x);
        return {_mm256_loadu_si256(eights), _mm256_loadu_si256(eights + 1)};
    }
    static Vector numbers(const Sum& sum) { return {_mm256_cvtepi32_ps(sum.low), _mm256_cvtepi32_ps(sum.high)}; }
};

#ifdef __AVXVNNI__
using ShortSums = Bytes;
#else
struct ShortSums {
    using Sum = TwoSums;
    using X = uint8_t;
    static constexpr int TOGETHER = 8, ADJACENT = 4, TILE = 5;  // ten registers are sums
    static constexpr Grid SHIFTED = OFFSET;
    static constexpr int most_rows(int panels) { return panels == 4 ? 1 : panels == 2 ? 2 : TILE; }

    struct Eight {
        __m256i first, second;
    };
    static const int8_t* load(const int8_t* w) { return w; }
    static Eight spread(const X* x) { return {_mm256_set1_epi32(four_bytes(x)), _mm256_set1_epi32(four_bytes(x + 4))}; }
    static void add(__m256i& sum, const Eight& x, const int8_t* w) {
        const __m256i* const bytes = reinterpret_cast<const __m256i*>(w);
        __m256i products, more;
        asm("vpmaddubsw %3, %5, %1\n\tvpmaddubsw %4, %6, %2\n\tvpaddw %2, %1, %1\n\t"
            "vpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products), "=&x"(more)
            : "m"(bytes[0]), "m"(bytes[2]), "x"(x.first), "x"(x.second), "x"(_mm256_set1_epi16(1)));
    }
    static void add(Sum& sum, const Eight& x, const int8_t* w) {
        add(sum.low, x, w);
        add(sum.high, x, w + 32);
    }
    static void add(Sum& sum, X x, const int32_t* amounts) {
        const Sum more = sums(amounts);
        sum.low = _mm256_add_epi32(sum.low, _mm256_madd_epi16(_mm256_set1_epi32(x), more.low));
        sum.high = _mm256_add_epi32(sum.high, _mm256_madd_epi16(_mm256_set1_epi32(x), more.high));
    }
    static Sum zero() { return Bytes::zero(); }
    static Sum sums(const int32_t* x) { return Bytes::sums(x); }
};
#endif

}  // namespace
