// NEON of aarch64: a Vector is four registers of 32. Its fused multiply-add is exact in the same way.

#pragma once

#include <arm_neon.h>

namespace {

struct Vector {
    float32x4_t a, b, c, d;
};

// f of each register of the arguments.
template <class F, class... V>
inline auto each(const F& f, const V&... x) {
    return Vector{f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
}

inline Vector vector(const float* x) { return {vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)}; }

inline Vector vector(const bf16* x) {
    const auto four = [](const bf16* y) {
        return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(y)), 16));
    };
    return {four(x), four(x + 4), four(x + 8), four(x + 12)};
}

inline Vector broadcast(float x) {
    const float32x4_t four = vdupq_n_f32(x);
    return {four, four, four, four};
}

inline void put(const Vector& x, float* out) {
    vst1q_f32(out, x.a);
    vst1q_f32(out + 4, x.b);
    vst1q_f32(out + 8, x.c);
    vst1q_f32(out + 12, x.d);
}

inline Vector operator+(const Vector& x, const Vector& y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }

inline Vector operator-(const Vector& x, const Vector& y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }

inline Vector operator*(const Vector& x, const Vector& y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }

inline Vector operator/(const Vector& x, const Vector& y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }

inline Vector fused(const Vector& x, const Vector& y, const Vector& z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}

// z += x * y, as `fused`: the compiler keeps the parts of z in registers.
inline void accumulate(Vector& z, const Vector& x, const Vector& y) {
    z.a = vfmaq_f32(z.a, x.a, y.a);
    z.b = vfmaq_f32(z.b, x.b, y.b);
    z.c = vfmaq_f32(z.c, x.c, y.c);
    z.d = vfmaq_f32(z.d, x.d, y.d);
}

inline Vector larger(const Vector& x, const Vector& y) {
    return each([](auto x, auto y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }, x, y);
}

inline Vector minus_abs(const Vector& x) {
    return each([](auto x) { return vnegq_f32(vabsq_f32(x)); }, x);
}

inline Vector by_sign(const Vector& x, const Vector& negative, const Vector& other) {
    const auto chosen = [](auto x, auto negative, auto other) {
        return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), negative, other);
    };
    return each(chosen, x, negative, other);
}

inline Vector zero_below(float limit, const Vector& x, const Vector& y) {
    const auto kept = [=](auto x, auto y) {
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, vdupq_n_f32(limit))));
    };
    return each(kept, x, y);
}

inline Vector power(const Vector& sixteenths) {
    const uint8x16x4_t powers = vld1q_u8_x4(reinterpret_cast<const uint8_t*>(POWERS));
    const auto four = [&](auto sixteenths) {
        const uint32x4_t k = vreinterpretq_u32_f32(sixteenths);
        const uint32x4_t bytes = vmlaq_n_u32(vdupq_n_u32(0x03020100), vandq_u32(k, vdupq_n_u32(15)), 0x04040404);
        const uint32x4_t chosen = vreinterpretq_u32_u8(vqtbl4q_u8(powers, vreinterpretq_u8_u32(bytes)));
        return vreinterpretq_f32_u32(vaddq_u32(chosen, vshlq_n_u32(k, 19)));
    };
    return each(four, sixteenths);
}

inline void put_bytes(const Vector& x, const Vector& y, uint8_t flip, uint8_t* out) {
    const auto eight = [](float32x4_t low, float32x4_t high) {
        const int16x4_t first = vmovn_s32(vcvtnq_s32_f32(low));
        return vmovn_s16(vcombine_s16(first, vmovn_s32(vcvtnq_s32_f32(high))));
    };
    const auto sixteen = [&](const Vector& v) {
        const int8x16_t bytes = vcombine_s8(eight(v.a, v.b), eight(v.c, v.d));
        return veorq_u8(vreinterpretq_u8_s8(bytes), vdupq_n_u8(flip));
    };
    vst1q_u8(out, sixteen(x));
    vst1q_u8(out + LANES, sixteen(y));
}

inline Vector from_eight_away(const Vector& x) { return {x.c, x.d, x.a, x.b}; }

inline Vector from_four_away(const Vector& x) { return {x.b, x.a, x.d, x.c}; }

inline Four sums_of(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
    const auto halves = [](float32x4_t x, float32x4_t y) {  // (x0 + x2, x1 + x3, y0 + y2, y1 + y3)
        const float64x2_t from = vreinterpretq_f64_f32(x), other = vreinterpretq_f64_f32(y);
        return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(from, other)),
                         vreinterpretq_f32_f64(vzip2q_f64(from, other)));
    };
    const auto fours = [&](float32x4_t w, float32x4_t x, float32x4_t y, float32x4_t z) {
        return vpaddq_f32(halves(w, x), halves(y, z));
    };
    return (Four)vaddq_f32(fours(a.a + a.c, b.a + b.c, c.a + c.c, d.a + d.c),
                           fours(a.b + a.d, b.b + b.d, c.b + c.d, d.b + d.d));
}

// Twenty registers are sums.
struct Tiles {
    static constexpr int TILE = 5;
    static constexpr int most_rows(int panels) { return panels == 4 ? 1 : panels == 2 ? 2 : TILE; }
};

struct Bytes : Tiles {
    struct Sum {
        int32x4_t a, b, c, d;
    };

    // The instructions multiply signed numbers. Those from 0 to 255 become 128 less.
    using X = int8_t;
    static constexpr Grid INPUT = SIGNED, SHIFTED = UNSIGNED;

    struct Weights {
        int8x16_t a, b, c, d;
    };
    static Weights load(const int8_t* w) { return {vld1q_s8(w), vld1q_s8(w + 16), vld1q_s8(w + 32), vld1q_s8(w + 48)}; }

#ifdef __ARM_FEATURE_DOTPROD
    static constexpr int TOGETHER = 4, ADJACENT = 4;

    static int8x16_t spread(const X* x) { return vreinterpretq_s8_s32(vdupq_n_s32(four_bytes(x))); }
    static void add(Sum& sum, const int8x16_t& x, const Weights& w) {
        sum.a = vdotq_s32(sum.a, w.a, x);
        sum.b = vdotq_s32(sum.b, w.b, x);
        sum.c = vdotq_s32(sum.c, w.c, x);
        sum.d = vdotq_s32(sum.d, w.d, x);
    }
#else
    // Two products fit into 16 bits, because no weight is -128.
    static constexpr int TOGETHER = 4, ADJACENT = 2;

    static int8x16x2_t spread(const X* x) {
        const int16x8_t four = vreinterpretq_s16_s32(vdupq_n_s32(four_bytes(x)));
        return {{vreinterpretq_s8_s16(vtrn1q_s16(four, four)), vreinterpretq_s8_s16(vtrn2q_s16(four, four))}};
    }
    static void add(Sum& sum, const int8x16x2_t& x, const Weights& w) {
        const int8x8_t x0 = vget_low_s8(x.val[0]), x1 = vget_low_s8(x.val[1]);
        sum.a = vpadalq_s16(sum.a, vmlal_s8(vmull_s8(vget_low_s8(w.a), x0), vget_low_s8(w.c), x1));
        sum.b = vpadalq_s16(sum.b, vmlal_high_s8(vmull_high_s8(w.a, x.val[0]), w.c, x.val[1]));
        sum.c = vpadalq_s16(sum.c, vmlal_s8(vmull_s8(vget_low_s8(w.b), x0), vget_low_s8(w.d), x1));
        sum.d = vpadalq_s16(sum.d, vmlal_high_s8(vmull_high_s8(w.b, x.val[0]), w.d, x.val[1]));
    }
#endif
    static Sum zero() {
        const int32x4_t none = vdupq_n_s32(0);
        return {none, none, none, none};
    }
    static Sum sums(const int32_t* x) { return {vld1q_s32(x), vld1q_s32(x + 4), vld1q_s32(x + 8), vld1q_s32(x + 12)}; }
    static Vector numbers(const Sum& sum) {
        return {vcvtq_f32_s32(sum.a), vcvtq_f32_s32(sum.b), vcvtq_f32_s32(sum.c), vcvtq_f32_s32(sum.d)};
    }
};

using ShortSums = Bytes;

}  // namespace
