// The numbers of a product in registers of AVX-512: sixteen sums in fp32, and of 8-bit numbers with VNNI.

#pragma once

#include "outputs.hpp"

namespace {

// The tiles of a product: 16 of the 32 registers are sums.
struct WideTiles {
    static constexpr int TILE = 8;  // rows at most
    static constexpr int most_rows(int panels) { return panels == 4 ? 4 : TILE; }
};

void put(const Vector& y, int64_t left, char* out) {
    if (left == LANES)
        std::memcpy(out, &y, sizeof y);
    else
        _mm512_mask_storeu_ps(out, __mmask16((1u << left) - 1), (__m512)y);
}

struct Floats : WideTiles {
    using Sum = Vector;
    using X = float;
    static constexpr int64_t TOGETHER = 1, STEP = sizeof(Sum);  // numbers of x that meet STEP bytes of W in a panel

    static Sum start(const Map&, int64_t, bool) { return Sum{}; }
    static Sum load(const char* w) { return vector(reinterpret_cast<const float*>(w)); }
    static Sum spread(const X* x) { return (Sum)_mm512_set1_ps(*x); }
    static void add(Sum& sum, const Sum& x, const Sum& w) { sum += x * w; }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, Sum y, char* out, float) {
        y += outputs.bias;
        if (FINISH != PLAIN) y = y > 0.0f ? y : Sum{};
        put(y, outputs.left, out);
    }
};

#ifdef __AVX512VNNI__
// The instruction multiplies unsigned numbers by signed ones, four at once: panels are (d_in / 4, LANES, 4).
struct Bytes : WideTiles {
    using Sum = __m512i;
    using X = uint8_t;
    static constexpr int64_t TOGETHER = 4, STEP = sizeof(Sum);
    static constexpr int INPUT = OFFSET;  // what a pass before it writes best

    static Sum start(const Map& map, int64_t at, bool is_offset) { return is_offset ? _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(map.sums + at)) : _mm512_setzero_si512(); }
    static Sum load(const char* w) { return _mm512_loadu_si512(w); }
    static Sum spread(const X* x) {
        int32_t four;
        std::memcpy(&four, x, sizeof four);
        return _mm512_set1_epi32(four);
    }
    static void add(Sum& sum, const Sum& x, const Sum& w) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }  // the intrinsic copies sums

    // x (count,) of INT8, OFFSET or UINT8 as the instruction takes it: of INT8 as OFFSET.
    static const X* prepared(const void* x, int64_t count, int dtype) {
        const X* const from = static_cast<const X*>(x);
        if (dtype != INT8) return from;
        scratch.input.resize(count);
        X* const to = scratch.input.data();
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) to[i] = from[i] ^ 0x80;
        return to;
    }

    // The product is rounded before the bias is added, as in oneDNN: `mul_round` is never contracted with the sum.
    template <Finish FINISH>
    static void finish(const Outputs& outputs, Sum sum, char* out, float factor) {
        __m512 y = _mm512_mul_round_ps(_mm512_cvtepi32_ps(sum), (__m512)outputs.scales, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        y = _mm512_add_ps(y, (__m512)outputs.bias);
        if (FINISH != PLAIN) y = _mm512_max_ps(y, _mm512_setzero_ps());
        if (FINISH != RELU_IN_BYTES) return put((Vector)y, outputs.left, out);
        const __m128i bytes = _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(y, _mm512_set1_ps(factor))));
        if (outputs.left == LANES)
            std::memcpy(out, &bytes, sizeof bytes);
        else
            std::memcpy(out, &bytes, outputs.left);
    }
};
#endif

}  // namespace
