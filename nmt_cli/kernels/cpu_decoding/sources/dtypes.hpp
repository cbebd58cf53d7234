// Dtypes: vectors of numbers, and how they are read and written.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

enum DType : int { FP32 = 0, BF16 = 1, INT8 = 2, UINT8 = 3, OFFSET = 4 };  // OFFSET: int8, plus 128

struct bf16 {
    uint16_t bits;
};

inline float load(float x) { return x; }

inline float load(bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}

inline bf16 to_bf16(float x) {  // to nearest, to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return {uint16_t(x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0)};
}

inline void put(float& y, float x) { y = x; }

inline void put(bf16& y, float x) { y = to_bf16(x); }

inline float exponential(float x) {  // of x <= 0, or NaN; within 2 units in the last place, at least 1e-38
    x = x < -87.0f ? -87.0f : x;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const uint32_t bits = uint32_t(int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

constexpr int LANES = 16;
constexpr int PARTS = 4 * LANES;  // partial sums, so that an addition does not wait for the one before
constexpr int64_t LINE = 64;      // bytes of a line of the caches
typedef float Four __attribute__((vector_size(16), aligned(4)));

#if defined(__AVX2__) && !defined(__AVX512F__)

// Sixteen adjacent numbers in two registers. The compiler keeps vectors that are longer than a register in memory.
struct Vector {
    __m256 low, high;

    Vector& operator*=(float y) {
        low = _mm256_mul_ps(low, _mm256_set1_ps(y));
        high = _mm256_mul_ps(high, _mm256_set1_ps(y));
        return *this;
    }
};

inline Vector vector(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }

inline __m256 eight(const bf16* x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))), 16)); }

inline Vector vector(const bf16* x) { return {eight(x), eight(x + 8)}; }

// sum <- sum + x * y
inline void add_product(Vector& sum, const Vector& x, const Vector& y) {
    sum.low = _mm256_fmadd_ps(x.low, y.low, sum.low);
    sum.high = _mm256_fmadd_ps(x.high, y.high, sum.high);
}

inline void add_product(Vector& sum, float x, const Vector& y) { add_product(sum, Vector{_mm256_set1_ps(x), _mm256_set1_ps(x)}, y); }

// The sums over four vectors, each in the same order as the others.
inline Four sums_of(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
    const auto both = [](const Vector& x) { return _mm256_add_ps(x.low, x.high); };
    const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(both(a), both(b)), _mm256_hadd_ps(both(c), both(d)));
    return (Four)_mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

// Each number's place gets the largest of the numbers that are a multiple of four places away.
inline Vector largest_of_fours(const Vector& x) {
    const __m256 two = _mm256_max_ps(x.low, x.high), all = _mm256_max_ps(two, _mm256_permute2f128_ps(two, two, 1));
    return {all, all};
}

// The same with their sum.
inline Vector sum_of_fours(const Vector& x) {
    const __m256 two = _mm256_add_ps(x.low, x.high), all = _mm256_add_ps(two, _mm256_permute2f128_ps(two, two, 1));
    return {all, all};
}

#else

// Sixteen adjacent numbers: one register if the processor has such, else several.
typedef float Vector __attribute__((vector_size(64), aligned(4)));
typedef uint32_t Bits __attribute__((vector_size(64), aligned(4)));
typedef uint16_t Halves __attribute__((vector_size(32), aligned(2)));

inline Vector vector(const float* x) {
    Vector y;
    std::memcpy(&y, x, sizeof y);
    return y;
}

inline Vector vector(const bf16* x) {
#ifdef __AVX512F__
    return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))), 16);
#endif
    Halves half;
    std::memcpy(&half, x, sizeof half);
    const Bits bits = __builtin_convertvector(half, Bits) << 16;
    Vector y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

// sum <- sum + x * y
inline void add_product(Vector& sum, const Vector& x, const Vector& y) { sum += x * y; }

inline void add_product(Vector& sum, float x, const Vector& y) { sum += x * y; }

// The sums over four vectors, each in the same order as the others.
inline Four sums_of(Vector a, Vector b, Vector c, Vector d) {
#define LOWER(x, y, k) x + k, y + k, x + k + 1, y + k + 1
#define PAIRS(k) LOWER(0, 16, k), LOWER(0, 16, k + 4), LOWER(0, 16, k + 8), LOWER(0, 16, k + 12)
    const Vector ab = __builtin_shufflevector(a, b, PAIRS(0)) + __builtin_shufflevector(a, b, PAIRS(2));
    const Vector cd = __builtin_shufflevector(c, d, PAIRS(0)) + __builtin_shufflevector(c, d, PAIRS(2));
#undef PAIRS
#undef LOWER
#define QUAD(k) k, k + 1, k + 16, k + 17
    const Vector all = __builtin_shufflevector(ab, cd, QUAD(0), QUAD(4), QUAD(8), QUAD(12)) + __builtin_shufflevector(ab, cd, QUAD(2), QUAD(6), QUAD(10), QUAD(14));
#undef QUAD
    Four part[4];
    std::memcpy(part, &all, sizeof all);
    return (part[0] + part[2]) + (part[1] + part[3]);
}

// The numbers that are eight, or four, places away.
inline Vector eight_away(const Vector& x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7); }

inline Vector four_away(const Vector& x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11); }

// Each number's place gets the largest of the numbers that are a multiple of four places away.
inline Vector largest_of_fours(const Vector& x) {
    const Vector two = x > eight_away(x) ? x : eight_away(x);
    return two > four_away(two) ? two : four_away(two);
}

// The same with their sum.
inline Vector sum_of_fours(const Vector& x) {
    const Vector two = x + eight_away(x);
    return two + four_away(two);
}

#endif

#ifdef __AVX512F__
// The same for sixteen numbers at once, about a third faster: 2^t = 2^(n / 16) * 2^r, n / 16 nearest to t, |r| <= 1 / 32.
inline __m512 exponential(__m512 x) {
    const __m512 powers = _mm512_setr_ps(1.0f, 1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f, 1.29683955f, 1.35425555f,
                                         1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f, 1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f);
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), n = _mm512_roundscale_ps(t, 4 << 4), r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0555041087f), r, _mm512_set1_ps(0.240226507f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147181f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    const __m512i sixteenths = _mm512_castps_si512(_mm512_add_ps(n, _mm512_set1_ps(786432.0f)));  // 1.5 * 2^19: the last bit is 1 / 16
    return _mm512_scalef_ps(_mm512_mul_ps(p, _mm512_permutexvar_ps(sixteenths, powers)), n);
}
#endif

void store(const float* x, int64_t count, void* out, int dtype, float int8_scale) {
    if (dtype == FP32) {
        std::memcpy(out, x, count * sizeof(float));
    } else if (dtype == BF16) {
        bf16* y = static_cast<bf16*>(out);
        int64_t i = 0;
#ifdef __AVX512BF16__
        for (; i + LANES <= count; i += LANES) {
            const __m256bh halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
            std::memcpy(y + i, &halves, sizeof halves);
        }
#endif
#pragma omp simd
        for (int64_t j = i; j < count; ++j) y[j] = to_bf16(x[j]);
    } else {
        int8_t* y = static_cast<int8_t*>(out);
        const int32_t offset = dtype == OFFSET ? 128 : 0;
        const float scale = 1.0f / int8_scale;
        int64_t i = 0;
#if defined(__AVX512F__)
        for (; i + LANES <= count; i += LANES) {
            const __m512i whole = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(scale)), _mm512_set1_ps(127.0f)));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), _mm_xor_si128(_mm512_cvtsepi32_epi8(whole), _mm_set1_epi8(int8_t(offset))));
        }
#elif defined(__AVX2__)
        const auto whole = [&](int64_t at) { return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_mul_ps(_mm256_loadu_ps(x + at), _mm256_set1_ps(scale)), _mm256_set1_ps(127.0f))); };
        for (; i + 2 * LANES <= count; i += 2 * LANES) {
            const __m256i low = _mm256_packs_epi32(whole(i), whole(i + 8)), high = _mm256_packs_epi32(whole(i + 16), whole(i + 24));
            const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), _mm256_xor_si256(bytes, _mm256_set1_epi8(int8_t(offset))));
        }
#endif
#pragma omp simd
        for (int64_t j = i; j < count; ++j) {
            float v = x[j] * scale;
            v = v < -128.0f ? -128.0f : v;
            v = v > 127.0f ? 127.0f : v;
            y[j] = int8_t(int32_t(std::nearbyint(v)) + offset);
        }
    }
}

int64_t size_of(int dtype) { return dtype == FP32 ? 4 : dtype == BF16 ? 2 : 1; }

template <class T>
void add(float* x, const T* y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) x[i] += load(y[i]);
}

template <class T>
void load_scaled(const T* x, int64_t count, float factor, float* out) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = load(x[i]) * factor;
}

struct Scratch {
    std::vector<float> query, scores, out;
    std::vector<uint8_t> input;
};

thread_local Scratch scratch;  // buffers of a pass

}  // namespace
