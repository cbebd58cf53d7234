// The one matrix product here: int8 for so few rows that reading the weights is all the work.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.hpp"

#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512VNNI__
constexpr int AHEAD = 1024;  // bytes of the weights that are prefetched

// The products of ROWS rows x (ROWS, groups) of four bytes each with LANES outputs.
template <int ROWS>
void dot_products(int64_t groups, const uint32_t* x, const int8_t* weight, __m512i* out) {
    __m512i sum[2][ROWS];  // two, so that no instruction waits for the one before it
    for (auto& half : sum)
        for (auto& one : half) one = _mm512_setzero_si512();
    for (int64_t i = 0; i < groups; i += 2) {
        const int last = i + 1 < groups;
        for (int line = 0; line < 2; ++line) __builtin_prefetch(weight + (i + line) * LANES * 4 + AHEAD);
        const __m512i w[2] = {_mm512_loadu_si512(weight + i * LANES * 4), last ? _mm512_loadu_si512(weight + (i + 1) * LANES * 4) : _mm512_setzero_si512()};
        for (int half = 0; half < 2; ++half)
            for (int r = 0; r < ROWS; ++r) sum[half][r] = _mm512_dpbusd_epi32(sum[half][r], _mm512_set1_epi32(int(x[r * groups + i + half * last])), w[half]);
    }
    for (int r = 0; r < ROWS; ++r) out[r] = _mm512_add_epi32(sum[0][r], sum[1][r]);
}

// LANES outputs of a row, at most `left` of them: the product is rounded before the bias is added.
__attribute__((noinline, optimize("fp-contract=off"))) void finish(__m512i sum, int64_t left, const float* scales, const float* bias, int relu, void* out, int in_bytes, float factor) {
    const __mmask16 here = left >= LANES ? 0xffff : __mmask16((1u << left) - 1);
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(here, scales));
    if (bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(here, bias));
    if (relu) y = _mm512_max_ps(y, _mm512_setzero_ps());
    if (in_bytes)
        _mm512_mask_cvtusepi32_storeu_epi8(out, here, _mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(y, _mm512_set1_ps(factor)), _mm512_setzero_ps())));
    else
        _mm512_mask_storeu_ps(out, here, y);
}
#endif

}  // namespace

extern "C" {

// Whether there is `nmt_int8_matmul` for this processor.
int nmt_has_int8_matmul() {
#ifdef __AVX512VNNI__
    return 1;
#else
    return 0;
#endif
}

// W (d_out, d_in) in int8 as `nmt_int8_matmul` reads it, (blocks of 16 outputs, d_in / 4, 16, 4), and 128 times each row's sum,
// (blocks * 16,); d_in is a multiple of 4.
void nmt_int8_pack(int64_t d_out, int64_t d_in, const int8_t* weight, int8_t* packed, int32_t* sums) {
    const int64_t blocks = (d_out + LANES - 1) / LANES;
    for (int64_t o = 0; o < blocks * LANES; ++o) {
        int8_t* const to = packed + o / LANES * LANES * d_in + o % LANES * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < d_in; ++i) {
            const int8_t w = o < d_out ? weight[o * d_in + i] : 0;
            to[i / 4 * LANES * 4 + i % 4] = w;
            sum += w;
        }
        sums[o] = 128 * sum;
    }
}

#ifdef __AVX512VNNI__
// rows (N, d_in) of int8, or of uint8, times W: (W x) * scales + bias, max(0, .) where asked; (N, d_out) in fp32, or in uint8
// after another factor. Bit for bit what oneDNN gives.
void nmt_int8_matmul(int64_t rows, int64_t d_in, int64_t d_out, const uint8_t* x, int is_signed, const int8_t* packed, const int32_t* sums, const float* scales, const float* bias, int relu, void* out,
                 int in_bytes, float factor) {
    std::vector<uint32_t> input(rows * (d_in / 4));
    std::memcpy(input.data(), x, rows * d_in);
    if (is_signed)
        for (uint32_t& four : input) four ^= 0x80808080u;  // + 128: the instruction takes unsigned bytes
    for (int64_t o = 0; o < d_out; o += LANES) {
        for (int64_t n = 0; n < rows; n += GROUP) {
            __m512i sum[GROUP];
            const int64_t here = std::min<int64_t>(GROUP, rows - n);
            const auto summed = here == 1 ? dot_products<1> : here == 2 ? dot_products<2> : here == 3 ? dot_products<3> : dot_products<GROUP>;
            summed(d_in / 4, input.data() + n * (d_in / 4), packed + o * d_in, sum);
            for (int64_t r = 0; r < here; ++r) {
                if (is_signed) sum[r] = _mm512_sub_epi32(sum[r], _mm512_loadu_si512(sums + o));
                finish(sum[r], d_out - o, scales + o, bias ? bias + o : nullptr, relu, static_cast<char*>(out) + ((n + r) * d_out + o) * (in_bytes ? 1 : 4), in_bytes, factor);
            }
        }
    }
}
#endif

}  // extern "C"
