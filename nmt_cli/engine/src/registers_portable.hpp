// Any processor: the compiler makes of a Vector what there is. Slow, and the same bits.

#pragma once

#include <cfloat>

#pragma GCC diagnostic ignored "-Wpsabi"  // no function that takes a Vector leaves the library

#if FLT_EVAL_METHOD != 0
#error "the engine needs a processor that rounds each result of float to float"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the engine needs a little-endian processor"
#endif

namespace {

typedef float Vector __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));  // sixteen

inline Vector vector(const float* x) {
    Vector y;
    std::memcpy(&y, x, sizeof y);
    return y;
}

inline Vector vector(const bf16* x) {
    Integers y;
    for (int i = 0; i < LANES; ++i) y[i] = int32_t(uint32_t(x[i].bits) << 16);
    return Vector(y);
}

inline Vector broadcast(float x) { return Vector{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

inline void put(const Vector& x, float* out) { std::memcpy(out, &x, sizeof x); }

#ifdef NMT_FUSED_IN_SOFTWARE
// Only the middle between two floats, and numbers below the normal ones, may be rounded twice in a wrong way.
inline Vector fused(const Vector& x, const Vector& y, const Vector& z) {
    float out[LANES];
    uint32_t rare = 0;
#pragma omp simd reduction(| : rare)
    for (int i = 0; i < LANES; ++i) {
        const double sum = double(x[i]) * double(y[i]) + double(z[i]);
        out[i] = float(sum);
        uint64_t bits;
        std::memcpy(&bits, &sum, sizeof bits);
        rare |= uint32_t((uint32_t(bits) & 0x1fffffff) == 0x10000000);
        rare |= uint32_t((std::fabs(out[i]) < 2.4e-38f) & (sum != 0.0));
    }
    if (rare)
        for (int i = 0; i < LANES; ++i) out[i] = fused(x[i], y[i], z[i]);
    return vector(out);
}
#else
inline Vector fused(const Vector& x, const Vector& y, const Vector& z) {
    Vector out;
    for (int i = 0; i < LANES; ++i) out[i] = fused(x[i], y[i], z[i]);
    return out;
}
#endif

inline void accumulate(Vector& z, const Vector& x, const Vector& y) { z = fused(x, y, z); }

inline Vector larger(const Vector& x, const Vector& y) { return x > y ? x : y; }

inline Vector minus_abs(const Vector& x) { return Vector(Integers(x) | INT32_MIN); }

inline Vector by_sign(const Vector& x, const Vector& negative, const Vector& other) {
    return Integers(x) < 0 ? negative : other;
}

inline Vector zero_below(float limit, const Vector& x, const Vector& y) { return x < limit ? Vector{} : y; }

inline Vector power(const Vector& sixteenths) {
    const Integers k = Integers(sixteenths);
    Integers powers;
    for (int i = 0; i < LANES; ++i) powers[i] = int32_t(POWERS[k[i] & 15] + (uint32_t(k[i]) << 19));
    return Vector(powers);
}

inline void put_bytes(const Vector& x, const Vector& y, uint8_t flip, uint8_t* out) {
    constexpr float WHOLE = 12582912.0f;  // 1.5 * 2^23: the last bit of a number of this size is 1
    const Integers first = Integers(x + WHOLE), second = Integers(y + WHOLE);
    for (int i = 0; i < LANES; ++i) {
        out[i] = uint8_t(uint8_t(first[i]) ^ flip);
        out[LANES + i] = uint8_t(uint8_t(second[i]) ^ flip);
    }
}

inline Vector from_eight_away(const Vector& x) {
    return Vector{x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15], x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
}

inline Vector from_four_away(const Vector& x) {
    return Vector{x[4], x[5], x[6], x[7], x[0], x[1], x[2], x[3], x[12], x[13], x[14], x[15], x[8], x[9], x[10], x[11]};
}

inline Four sums_of(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
    const auto sum = [](const Vector& x) {
        const auto four = [&](int i) {
            return ((x[i] + x[i + 8]) + (x[i + 2] + x[i + 10])) + ((x[i + 1] + x[i + 9]) + (x[i + 3] + x[i + 11]));
        };
        return four(0) + four(4);
    };
    return Four{sum(a), sum(b), sum(c), sum(d)};
}

struct Tiles {
    static constexpr int TILE = 4;
    static constexpr int most_rows(int panels) { return panels == 1 ? TILE : 1; }
};

// A product of two numbers fits into 16 bits.
struct Bytes : Tiles {
    typedef int16_t Weights __attribute__((vector_size(32)));
    using Sum = Integers;
    using X = int16_t;
    static constexpr int TOGETHER = 1, ADJACENT = 1;
    static constexpr Grid INPUT = SIGNED, SHIFTED = NONE;

    static Weights load(const int8_t* w) {
        Weights y;
        for (int i = 0; i < LANES; ++i) y[i] = w[i];
        return y;
    }
    static Weights spread(const X* x) { return Weights{} + *x; }
    static void add(Sum& sum, const Weights& x, const Weights& w) { sum += __builtin_convertvector(x * w, Sum); }
    static Sum zero() { return Sum{}; }
    static Sum sums(const int32_t* x) {
        Sum y;
        std::memcpy(&y, x, sizeof y);
        return y;
    }
    static Vector numbers(const Sum& sum) { return __builtin_convertvector(sum, Vector); }
};

using ShortSums = Bytes;

}  // namespace
