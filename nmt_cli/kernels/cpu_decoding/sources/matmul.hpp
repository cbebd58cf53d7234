// Matrix products: rows (N, d_in) times the transpose of a packed weight (d_out, d_in), for any number of rows.
//
//   fp32   panels (d_out / LANES, d_in, LANES)          a sum adds its products one by one
//   int8   panels (d_out / LANES, d_in / 4, LANES, 4)   sums are exact; they are scaled, and the bias is added, in fp32
//
// d_out is rounded up to whole panels; weights, scales and biases have zeros there. A tile of rows and panels stays in registers
// while it runs over d_in. A result is the same sum in the same order whatever the tile is: it does not depend on the other rows.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "dtypes.hpp"
#include "threads.hpp"

// A linear map: max(0, W x * scales + bias), the maximum where `relu`. It is of int8 if it has scales. Addresses are of packed numbers.
struct Map {
    int64_t d_in, d_out;
    const void* weight;
    const int32_t* sums;  // of int8: 128 times the sum of each row of W
    const float* scales;  // of int8: what one step of a sum is worth, by output
    const float* bias;    // may be null
    float input_scale;    // of int8: what one step of x is worth
    int32_t relu;

    int input() const { return scales ? INT8 : FP32; }
};

// Where the results go: (N, d_out) in fp32, or in uint8 after another factor.
struct Result {
    void* out;
    int in_bytes;
    float factor;
};

namespace {

constexpr int TILE = 8, PANELS = 2;  // rows and panels of a tile: 16 registers of sums
constexpr int FEW = 4;               // rows up to which a tile has twice as many panels, and reading them is all the work
constexpr int64_t AT_ONCE = 256;     // rows that meet a panel before the next one is read
constexpr int64_t AHEAD = 1024;      // bytes of a panel that are prefetched for few rows
constexpr int64_t WORTH = 1 << 20;   // multiplications that are worth a thread

#ifdef __AVX512F__
template <int ROWS, int WIDE>
inline void sum_up(const Map& map, const float* x, const float* weight, Vector (&sum)[ROWS][WIDE]) {
    for (auto& row : sum)
        for (auto& one : row) one = Vector{};
    const int64_t panel = map.d_in * LANES;
    for (int64_t i = 0; i < map.d_in; ++i) {
        Vector w[WIDE];
        for (int p = 0; p < WIDE; ++p) {
            if (ROWS <= FEW) __builtin_prefetch(reinterpret_cast<const char*>(weight + p * panel + i * LANES) + AHEAD);
            w[p] = vector(weight + p * panel + i * LANES);
        }
        for (int r = 0; r < ROWS; ++r)
            for (int p = 0; p < WIDE; ++p) sum[r][p] += x[r * map.d_in + i] * w[p];
    }
}

inline void finish(const Map& map, bool, Vector y, int64_t at, float* out, int64_t here, const Result&) {
    if (map.bias) y += vector(map.bias + at);
    if (map.relu) y = y > 0.0f ? y : Vector{};
    std::memcpy(out, &y, here * sizeof(float));
}
#endif

#ifdef __AVX512VNNI__
template <int ROWS, int WIDE>
inline void sum_up(const Map& map, const uint32_t* x, const int8_t* weight, __m512i (&sum)[ROWS][WIDE]) {
    for (auto& row : sum)
        for (auto& one : row) one = _mm512_setzero_si512();
    const int64_t fours = map.d_in / 4, panel = map.d_in * LANES;
    for (int64_t i = 0; i < fours; ++i) {
        __m512i w[WIDE];
        for (int p = 0; p < WIDE; ++p) {
            if (ROWS <= FEW) __builtin_prefetch(weight + p * panel + i * LANES * 4 + AHEAD);
            w[p] = _mm512_loadu_si512(weight + p * panel + i * LANES * 4);
        }
        for (int r = 0; r < ROWS; ++r) {
            const __m512i four = _mm512_set1_epi32(int(x[r * fours + i]));
            for (int p = 0; p < WIDE; ++p) sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], four, w[p]);
        }
    }
}

// The product is rounded before the bias is added, as in oneDNN: `mul_round` is never contracted with the sum.
inline void finish(const Map& map, bool is_signed, __m512i sum, int64_t at, float* out, int64_t left, const Result& to) {
    const __mmask16 here = __mmask16((1u << left) - 1);
    if (is_signed) sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(map.sums + at));
    __m512 y = _mm512_mul_round_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(map.scales + at), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (map.bias) y = _mm512_add_ps(y, _mm512_loadu_ps(map.bias + at));
    if (map.relu) y = _mm512_max_ps(y, _mm512_setzero_ps());
    if (to.in_bytes)
        _mm512_mask_cvtusepi32_storeu_epi8(out, here, _mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(y, _mm512_set1_ps(to.factor)), _mm512_setzero_ps())));
    else
        _mm512_mask_storeu_ps(out, here, y);
}
#endif

// One tile: ROWS rows from `row` on, times WIDE panels from output `at` on.
template <int ROWS, int WIDE, class Numbers>
void one_tile(const Map& map, bool is_signed, const typename Numbers::X* x, const typename Numbers::W* weight, int64_t row, int64_t at, const Result& to) {
    typename Numbers::Sum sum[ROWS][WIDE];
    sum_up<ROWS, WIDE>(map, x, weight, sum);
    for (int r = 0; r < ROWS; ++r)
        for (int p = 0; p < WIDE; ++p) {
            const int64_t output = at + p * LANES, number = (row + r) * map.d_out + output;
            char* const out = static_cast<char*>(to.out) + number * (to.in_bytes ? 1 : sizeof(float));
            finish(map, is_signed, sum[r][p], output, reinterpret_cast<float*>(out), std::min<int64_t>(LANES, map.d_out - output), to);
        }
}

#ifdef __AVX512F__
struct Floats {
    using Sum = Vector;
    using X = float;
    using W = float;
};
#endif

#ifdef __AVX512VNNI__
struct Bytes {
    using Sum = __m512i;
    using X = uint32_t;
    using W = int8_t;
};
#endif

// x (N, stride) times panels. A tile may have fewer rows at the end of N, and fewer panels at their end.
template <class Numbers>
struct Product {
    using X = typename Numbers::X;
    using W = typename Numbers::W;
    using Tile = void (*)(const Map&, bool, const X*, const W*, int64_t, int64_t, const Result&);

    template <int WIDE, size_t... ROWS>
    static Tile tile_of(int64_t rows, std::index_sequence<ROWS...>) {
        static constexpr Tile tiles[] = {one_tile<int(ROWS) + 1, WIDE, Numbers>...};
        return tiles[rows - 1];
    }

    static Tile tile_of(int64_t rows, int64_t wide) {
        if (wide == 1) return tile_of<1>(rows, std::make_index_sequence<TILE>());
        return wide == PANELS ? tile_of<PANELS>(rows, std::make_index_sequence<TILE>()) : tile_of<2 * PANELS>(rows, std::make_index_sequence<FEW>());
    }

    // The panels from `begin` to `panels`.
    static void run(const Map& map, bool is_signed, int64_t rows, const X* x, int64_t stride, int64_t begin, int64_t panels, const Result& to) {
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t end = std::min(rows, first + AT_ONCE), most = end - first <= FEW ? 2 * PANELS : PANELS;
            for (int64_t panel = begin, wide; panel < panels; panel += wide) {
                wide = panels - panel >= most ? most : panels - panel >= PANELS ? PANELS : 1;
                const W* const weight = static_cast<const W*>(map.weight) + panel * LANES * map.d_in;
                for (int64_t row = first, here; row < end; row += here) {
                    here = std::min<int64_t>(TILE, end - row);
                    tile_of(here, wide)(map, is_signed, x + row * stride, weight, row, panel * LANES, to);
                }
            }
        }
    }
};

// The same for all panels, divided among threads.
template <class Numbers>
void run(const Map& map, bool is_signed, int64_t rows, const typename Numbers::X* x, int64_t stride, int64_t threads, const Result& to) {
    const int64_t panels = (map.d_out + LANES - 1) / LANES, parts = std::max<int64_t>(1, std::min(threads, rows * map.d_in * map.d_out / WORTH));
    const int64_t share = (panels + parts - 1) / parts;
    if (parts == 1) return Product<Numbers>::run(map, is_signed, rows, x, stride, 0, panels, to);
    helpers().share(int(parts), [&](int part) { Product<Numbers>::run(map, is_signed, rows, x, stride, part * share, std::min(panels, (part + 1) * share), to); });
}

// x (N, d_in), fp32 or 8 bits, `is_signed` or not, times W.
void multiply(const Map& map, int64_t rows, const void* x, bool is_signed, int64_t threads, const Result& to) {
#ifdef __AVX512VNNI__
    if (map.scales) {
        std::vector<uint32_t>& input = scratch.input;
        input.resize(rows * (map.d_in / 4));
        std::memcpy(input.data(), x, rows * map.d_in);
        if (is_signed)
            for (uint32_t& four : input) four ^= 0x80808080u;  // + 128: the instruction takes unsigned bytes
        return run<Bytes>(map, is_signed, rows, input.data(), map.d_in / 4, threads, to);
    }
#endif
#ifdef __AVX512F__
    run<Floats>(map, is_signed, rows, static_cast<const float*>(x), map.d_in, threads, to);
#endif
}

}  // namespace

extern "C" {

// Whether this processor has products in a dtype (FP32 or INT8) here.
int nmt_multiplies(int dtype) {
#ifdef __AVX512VNNI__
    if (dtype == INT8) return 1;
#endif
#ifdef __AVX512F__
    if (dtype == FP32) return 1;
#endif
    return 0;
}

// W (d_out, d_in) as panels; of int8 also 128 times each row's sum. d_in is a multiple of 4 for int8.
void nmt_pack_fp32(int64_t d_out, int64_t d_in, const float* weight, float* packed) {
    for (int64_t o = 0; o < (d_out + LANES - 1) / LANES * LANES; ++o)
        for (int64_t i = 0; i < d_in; ++i) packed[o / LANES * LANES * d_in + i * LANES + o % LANES] = o < d_out ? weight[o * d_in + i] : 0.0f;
}

void nmt_pack_int8(int64_t d_out, int64_t d_in, const int8_t* weight, int8_t* packed, int32_t* sums) {
    for (int64_t o = 0; o < (d_out + LANES - 1) / LANES * LANES; ++o) {
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

// x (N, d_in) in fp32, int8 (`is_signed`) or uint8 -> (N, d_out) in fp32, or in uint8 after another factor.
void nmt_multiply(const Map* map, int64_t rows, const void* x, int is_signed, int64_t threads, void* out, int in_bytes, float factor) { multiply(*map, rows, x, is_signed, threads, {out, in_bytes, factor}); }

}  // extern "C"
