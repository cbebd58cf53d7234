// Numbers sixteen at once, and how rows of numbers are read and written.
//
// registers_X.hpp has what differs between processors:
//   Vector                          sixteen adjacent fp32 numbers; + - * / round each result once
//   vector(x)                       sixteen numbers of x, float or bf16
//   broadcast(x)                    sixteen times x
//   put(v, out)                     write sixteen numbers
//   fused(x, y, z)                  x * y + z, rounded once
//   larger(x, y)                    x > y ? x : y
//   minus_abs(x)                    -|x|
//   by_sign(x, negative, other)     `negative` where x has a minus sign, else `other`
//   zero_below(limit, x, y)         0 where x < limit, else y
//   power(sixteenths)               2^(k / 16); k is an integer in the last bits
//   put_bytes(x, y, flip, out)      the last eight bits of the nearest integers (of two, the even one), the bits of
//                                   `flip` flipped: those of x, then those of y
//   from_eight_away(x)              the number eight places away; from_four_away(x): four places, in its half
//   sums_of(a, b, c, d)             the sum over each vector x; with y[i] = x[i] + x[i + 8] it is
//                                   ((y[0] + y[2]) + (y[1] + y[3])) + ((y[4] + y[6]) + (y[5] + y[7]))
//   Tiles, Bytes                    the registers of matrix products, see matmul.hpp
//
// Made of them:
//   vector(x, count, pad)           the first `count` numbers; the others are `pad`
//   put(v, out, count)              write the first `count`
//   exponential(v)                  e^v for v <= 0 or NaN
//   logarithm(x)                    the natural logarithm of one number
//   fold(x, size, ...)              a sum or maximum over a row
//   store(x, count, out, dtype)     a row in fp32 or bf16
//   quantize(x, count, out, grid)   a row in 8 bits; returns its scale
//   RowsOut                         rows in fp32, bf16 or 8 bits, written one by one
//   Aligned<T>                      a std::vector at the begin of a line of the caches
//
// Each function gives the same bits on each processor:
// - A product that goes into a sum uses an explicit fused multiply-add. The compiler fuses nothing by itself.
// - A sum has partial sums in one defined order, and then one tree. Missing numbers at the end are neutral ones.
// - Loops in which numbers do not meet are plain C++: the compiler may use any registers.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace {

enum DType : int { FP32 = 0, BF16 = 1 };

// 8-bit numbers of a row with one scale: -127 … 127; the same plus 128; 0 … 255 for a row without negative numbers.
enum Grid : int { NONE = 0, SIGNED = 2, OFFSET = 3, UNSIGNED = 4 };

struct bf16 {
    uint16_t bits;
};

constexpr int LANES = 16;     // numbers in a Vector
constexpr int64_t LINE = 64;  // bytes of a line of the caches
constexpr float INFINITE = std::numeric_limits<float>::infinity();

typedef float Four __attribute__((vector_size(16), aligned(4)));

inline int64_t size_of(int dtype) { return dtype == FP32 ? 4 : dtype == BF16 ? 2 : 1; }

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float number_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline bf16 to_bf16(float x) {  // to nearest, to even
    const uint32_t bits = bits_of(x);
    return {uint16_t(x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0)};
}

// 2^(i / 16), less i / 16 in the exponent: the bits of 2^(k / 16) are those for i = k % 16, plus k << 19.
alignas(64) constexpr uint32_t POWERS[LANES] = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
                                                0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
                                                0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};

// x * y + z, rounded once.
inline float fused(float x, float y, float z) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(x, y, z);
#else
#define NMT_FUSED_IN_SOFTWARE
    // In double, the product is exact. The sum is rounded to odd: if it is not exact and its last bit is 0, to the
    // neighbour whose last bit is 1, in the direction of the error. Then rounding to float gives what one rounding of
    // the exact sum gives (Boldo and Melquiond 2008).
    const double product = double(x) * y, more = z, sum = product + more, rest = sum - product;
    const double error = (product - (sum - rest)) + (more - rest);
    uint64_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    if (!(bits & 1) && (error > 0.0 || error < 0.0)) bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    double odd;
    std::memcpy(&odd, &bits, sizeof odd);
    return float(odd);
#endif
}

// The four bytes at x.
inline int32_t four_bytes(const void* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof four);
    return four;
}

}  // namespace

#if defined(__AVX512F__)
#include "registers_avx512.hpp"
#elif defined(__AVX2__)
#include "registers_avx2.hpp"
#elif defined(__aarch64__)
#include "registers_neon.hpp"
#else
#include "registers_portable.hpp"
#endif

namespace {

// Combine each number with the one eight places away, and the results with those four places away.
template <class Combine>
inline Vector over_fours(const Vector& x, const Combine& combine) {
    const Vector two = combine(x, from_eight_away(x));
    return combine(two, from_four_away(two));
}

// The first `count` of sixteen numbers; the others are `pad`.
inline Vector vector(const float* x, int64_t count, float pad) {
    if (count >= LANES) return vector(x);
    float numbers[LANES];
    std::fill_n(numbers, LANES, pad);
    std::copy_n(x, count, numbers);
    return vector(numbers);
}

inline Vector vector(const bf16* x, int64_t count, float pad) {
    if (count >= LANES) return vector(x);
    bf16 numbers[LANES];
    std::fill_n(numbers, LANES, to_bf16(pad));
    std::copy_n(x, count, numbers);
    return vector(numbers);
}

// Write the first `count` of sixteen numbers.
inline void put(const Vector& x, float* out, int64_t count) {
    if (count >= LANES) return put(x, out);
    float numbers[LANES];
    put(x, numbers);
    std::copy_n(numbers, count, out);
}

// e^x for x <= 0 or NaN, within 2 units in the last place; 0 below -87.
// x = n ln 2 + r, where n is the multiple of 1 / 16 that makes |r| <= ln 2 / 32; e^x = 2^n * e^r.
inline Vector exponential(const Vector& x) {
    const Vector shift = broadcast(786432.0f);  // 1.5 * 2^19: the last bit of a number of this size is 1 / 16
    const Vector sixteenths = fused(x, broadcast(1.44269504f), shift), n = sixteenths - shift;
    const Vector r = fused(n, broadcast(1.90465421e-9f), fused(n, broadcast(-0.693147182f), x));  // -ln 2 in two parts
    const Vector p = fused(fused(broadcast(0.166666667f), r, broadcast(0.5f)), r, broadcast(1.0f)) * r;  // e^r - 1
    const Vector whole = power(sixteenths);
    return zero_below(-87.0f, x, fused(whole, p, whole));
}

// ln x, for x > 0 that is not subnormal; of infinity and NaN x itself.
// x = m * 2^e, 0.7 < m < 1.42; ln m = 2 artanh s, s = (m - 1) / (m + 1). It is rounded to fp32 once, at the end.
inline float logarithm(float x) {
    const int32_t e = (int32_t(bits_of(x)) - 0x3f330000) >> 23;
    const double m = number_of(bits_of(x) - (uint32_t(e) << 23)), s = (m - 1.0) / (m + 1.0), square = s * s;
    double p = 1.0 / 13.0;
#pragma GCC unroll 6
    for (int k = 11; k >= 1; k -= 2) p = std::fma(p, square, 1.0 / k);
    const float y = float(std::fma(double(e), 0.69314718055994531, 2.0 * s * p));
    return x < INFINITE ? y : x;
}

// Fold x (size,) into four times sixteen partial results: number i goes into the one of i % 64, by step(partial,
// numbers). `start` is the value of each before; `pad` stands for the numbers that are missing at the end. Return
// combine(combine(0, 1), combine(2, 3)) of the four.
template <class Step, class Combine>
inline Vector fold(const float* x, int64_t size, float start, float pad, const Step& step, const Combine& combine) {
    Vector a = broadcast(start), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) {
        step(a, vector(x + i));
        step(b, vector(x + i + LANES));
        step(c, vector(x + i + 2 * LANES));
        step(d, vector(x + i + 3 * LANES));
    }
    const auto rest = [&](Vector& part) {
        if (i < size) step(part, vector(x + i, size - i, pad));
        i += LANES;
    };
    if (i < size) {
        rest(a);
        rest(b);
        rest(c);
        rest(d);
    }
    return combine(combine(a, b), combine(c, d));
}

// The sum over one vector, in the same order.
inline float sum_of(const Vector& x) { return sums_of(x, x, x, x)[0]; }

// The largest number of a vector without NaN.
inline float largest_in(const Vector& x) {
    float four[LANES];
    put(over_fours(x, larger), four);
    return std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
}

// Write x (count,) in fp32 or bf16.
inline void store(const float* x, int64_t count, void* out, int dtype) {
    if (dtype == FP32) {
        std::memcpy(out, x, count * sizeof(float));
    } else {
        bf16* const y = static_cast<bf16*>(out);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) y[i] = to_bf16(x[i]);
    }
}

// The largest |x|, infinity included; NaN if there is one. Without their signs, the bits of larger numbers are larger,
// and those of NaN are the largest. So the order does not matter; there are many partial results to be fast.
inline float largest_abs(const float* x, int64_t count) {
    const auto without_sign = [](float y) { return bits_of(y) & 0x7fffffff; };
    uint32_t most[4 * LANES] = {};
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
#pragma omp simd
        for (int j = 0; j < 4 * LANES; ++j) most[j] = std::max(most[j], without_sign(x[i + j]));
    }
    uint32_t largest = 0;
    for (int j = 0; j < 4 * LANES; ++j) largest = std::max(largest, most[j]);
    for (; i < count; ++i) largest = std::max(largest, without_sign(x[i]));
    return number_of(largest);
}

// Write x (count,) in 8 bits, and return the scale: x is about the integer times the scale. The largest |x| becomes
// 127, or 255 of UNSIGNED. If no number reaches 1e-36, all become 0, and so does the scale. If one is infinite or NaN,
// the scale is NaN.
inline float quantize(const float* x, int64_t count, uint8_t* out, Grid grid) {
    const uint8_t zero = grid == OFFSET ? 128 : 0;
    const float largest = largest_abs(x, count);
    if (!(largest >= 1e-36f && largest < INFINITE)) {
        std::fill_n(out, count, zero);
        return largest < 1e-36f ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    }
    const float steps = grid == UNSIGNED ? 255.0f : 127.0f, inverse = steps / largest;
    const Vector factor = broadcast(inverse);
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        put_bytes(vector(x + i) * factor, vector(x + i + LANES) * factor, zero, out + i);
    if (i < count) {
        uint8_t rest[2 * LANES];
        const Vector first = vector(x + i, count - i, 0.0f), second = vector(x + i + LANES, count - i - LANES, 0.0f);
        put_bytes(first * factor, second * factor, zero, rest);
        std::copy_n(rest, count - i, out + i);
    }
    return largest / steps;
}

// Where rows of results go.
struct RowsOut {
    void* data;     // (N, size)
    float* scales;  // (N,), only of a Grid
    int kind;       // FP32, BF16 or a Grid

    void write(int64_t row, const float* x, int64_t size) const {
        void* const out = static_cast<char*>(data) + row * size * size_of(kind);
        if (kind <= BF16)
            store(x, size, out, kind);
        else
            scales[row] = quantize(x, size, static_cast<uint8_t*>(out), Grid(kind));
    }
};

// x (count,) += y
inline void add(float* x, const float* y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

// Memory that begins at a line of the caches: a Vector of AVX-512 then reads one line, not two.
template <class T>
struct LineAllocator {
    using value_type = T;
    T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(LINE))); }
    void deallocate(T* x, size_t) { ::operator delete(x, std::align_val_t(LINE)); }
    bool operator==(const LineAllocator&) const { return true; }
    bool operator!=(const LineAllocator&) const { return false; }
};

template <class T>
using Aligned = std::vector<T, LineAllocator<T>>;

struct Scratch {
    Aligned<float> query, scores, out;
};

thread_local Scratch scratch;  // buffers of a pass

}  // namespace
