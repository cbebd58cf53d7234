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
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) y[i] = to_bf16(x[i]);
    } else {
        int8_t* y = static_cast<int8_t*>(out);
        const int32_t offset = dtype == OFFSET ? 128 : 0;
        const float scale = 1.0f / int8_scale;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
            float v = x[i] * scale;
            v = v < -128.0f ? -128.0f : v;
            v = v > 127.0f ? 127.0f : v;
            y[i] = int8_t(int32_t(std::nearbyint(v)) + offset);
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
