// The numbers of a product in registers of AVX-512: sixteen sums in fp32, and of 8-bit numbers with VNNI.

#pragma once

#include "outputs.hpp"

namespace {

// The tiles of a product: 16 of the 32 registers are sums.
struct WideTiles {
    static constexpr int TILE = 8;  // rows at most
    static constexpr int most_rows(int panels) { return panels == 4 ? 4 : TILE; }
};

// Write sixteen results of a map, or as many as it has.
template <Finish FINISH>
void finished(const Outputs& outputs, __m512 y, float* out) {
    if (FINISH == RELU) y = _mm512_max_ps(_mm512_setzero_ps(), y);
    outputs.left == LANES ? put(y, out) : put(y, out, outputs.left);
}

struct Floats : WideTiles {
    using Sum = __m512;
    using X = float;
    static constexpr int64_t TOGETHER = 1, STEP = sizeof(Sum);  // numbers of x that meet STEP bytes of W in a panel

    static Sum start(const Map&, int64_t, bool) { return _mm512_setzero_ps(); }
    static Sum load(const char* w) { return _mm512_loadu_ps(w); }
    static Sum spread(const X* x) { return _mm512_set1_ps(*x); }
    static void add(Sum& sum, const Sum& x, const Sum& w) { sum = _mm512_fmadd_ps(x, w, sum); }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, Sum y, float, float* out) {
        finished<FINISH>(outputs, _mm512_add_ps(y, outputs.bias), out);
    }
};

#ifdef __AVX512VNNI__
// The instruction multiplies unsigned numbers by signed ones, four at once: panels are (d_in / 4, LANES, 4).
struct Bytes : WideTiles {
    using Sum = __m512i;
    using X = uint8_t;
    static constexpr int64_t TOGETHER = 4, STEP = sizeof(Sum);
    static constexpr Grid INPUT = OFFSET;  // what a pass before it writes

    static Sum start(const Map& map, int64_t at, bool is_offset) {
        return is_offset ? _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(map.sums + at))
                         : _mm512_setzero_si512();
    }
    static Sum load(const char* w) { return _mm512_loadu_si512(w); }
    static Sum spread(const X* x) {
        int32_t four;
        std::memcpy(&four, x, sizeof four);
        return _mm512_set1_epi32(four);
    }
    static void add(Sum& sum, const Sum& x, const Sum& w) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));  // the intrinsic copies sums
    }
    static const X* prepared(const void* x, int64_t, int) { return static_cast<const X*>(x); }

    template <Finish FINISH>
    static void finish(const Outputs& outputs, Sum sum, float scale, float* out) {
        const __m512 scales = _mm512_mul_ps(outputs.scales, _mm512_set1_ps(scale));
        finished<FINISH>(outputs, _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales), outputs.bias), out);
    }
};
#endif

}  // namespace
