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

    int input() const { return scales ? OFFSET : FP32; }
};

// Where the results go: (N, width) in fp32, or in uint8 after another factor, of the outputs from `first` on.
struct Result {
    void* out;
    int in_bytes;
    float factor;
    int64_t width, first;
};

namespace {

constexpr int TILE = 8, PANELS = 2;  // rows and panels of a tile: 16 registers of sums
constexpr int FEW = 4;               // rows up to which a tile has twice as many panels, and reading them is all the work
constexpr int64_t AT_ONCE = 256;     // rows that meet a panel before the next one is read
constexpr int64_t AHEAD = 1024;      // bytes of a panel that are prefetched for few rows
constexpr int64_t WORTH = 1 << 20;   // multiplications that are worth a thread

#ifdef __AVX512F__
// What happens to a sum: `Result::in_bytes` and the bias, scales and maximum of a map, known when this is compiled.
enum Finish { PLAIN, RELU, RELU_IN_BYTES };

// Sixteen outputs of a map, from `at` on.
struct Outputs {
    int64_t left;  // that there are, at most LANES
    Vector bias, scales;

    Outputs(const Map& map, int64_t at) : left(std::min<int64_t>(LANES, map.d_out - at)), bias(map.bias ? vector(map.bias + at) : Vector{}), scales(map.scales ? vector(map.scales + at) : Vector{}) {}
};

void put(const Vector& y, int64_t left, char* out) {
    if (left == LANES)
        std::memcpy(out, &y, sizeof y);
    else
        _mm512_mask_storeu_ps(out, __mmask16((1u << left) - 1), (__m512)y);
}

struct Floats {
    using Sum = Vector;
    using X = float;
    static constexpr int64_t TOGETHER = 1;  // numbers of x that meet a vector of W

    static Sum start(const Map&, int64_t, bool) { return Sum{}; }
    static Sum load(const void* w) { return vector(static_cast<const float*>(w)); }
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
struct Bytes {
    using Sum = __m512i;
    using X = uint8_t;
    static constexpr int64_t TOGETHER = 4;

    static Sum start(const Map& map, int64_t at, bool is_offset) { return is_offset ? _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(map.sums + at)) : _mm512_setzero_si512(); }
    static Sum load(const void* w) { return _mm512_loadu_si512(w); }
    static Sum spread(const X* x) {
        int32_t four;
        std::memcpy(&four, x, sizeof four);
        return _mm512_set1_epi32(four);
    }
    static void add(Sum& sum, const Sum& x, const Sum& w) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w)); }  // the intrinsic copies sums

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

// One tile: ROWS rows from `row` on, whose numbers are at x, times WIDE panels from output `at` on, whose weights are at `weight`.
// All sums stay in registers: loops over them are unrolled.
template <int ROWS, int WIDE, class Numbers, Finish FINISH>
void one_tile(const Map& map, bool is_offset, const typename Numbers::X* x, const char* weight, int64_t row, int64_t at, const Result& to) {
    using Sum = typename Numbers::Sum;
    constexpr int64_t STEP = sizeof(Sum);  // bytes of W that meet the same numbers of x, in each panel
    const int64_t d_in = map.d_in, steps = d_in / Numbers::TOGETHER, panel = steps * STEP;
    Sum sum[ROWS][WIDE];
#pragma GCC unroll 8
    for (int p = 0; p < WIDE; ++p) {
        const Sum start = Numbers::start(map, at + p * LANES, is_offset);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) sum[r][p] = start;
    }
    for (int64_t i = 0; i < steps; ++i) {
        Sum w[WIDE];
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; ++p) {
            if (ROWS <= FEW) __builtin_prefetch(weight + p * panel + i * STEP + AHEAD);
            w[p] = Numbers::load(weight + p * panel + i * STEP);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const Sum numbers = Numbers::spread(x + r * d_in + i * Numbers::TOGETHER);
#pragma GCC unroll 8
            for (int p = 0; p < WIDE; ++p) Numbers::add(sum[r][p], numbers, w[p]);
        }
    }
    const int64_t size = FINISH == RELU_IN_BYTES ? 1 : sizeof(float), stride = to.width * size;
    char* const first = static_cast<char*>(to.out) + row * stride + (at - to.first) * size;
#pragma GCC unroll 8
    for (int p = 0; p < WIDE; ++p) {
        const Outputs outputs(map, at + p * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) Numbers::template finish<FINISH>(outputs, sum[r][p], first + r * stride + p * LANES * size, to.factor);
    }
}

// x (N, d_in) times panels. A tile may have fewer rows at the end of N, and fewer panels at their end.
template <class Numbers, Finish FINISH>
struct Product {
    using X = typename Numbers::X;
    using Tile = void (*)(const Map&, bool, const X*, const char*, int64_t, int64_t, const Result&);

    template <int WIDE, size_t... ROWS>
    static Tile tile_of(int64_t rows, std::index_sequence<ROWS...>) {
        static constexpr Tile tiles[] = {one_tile<int(ROWS) + 1, WIDE, Numbers, FINISH>...};
        return tiles[rows - 1];
    }

    static Tile tile_of(int64_t rows, int64_t wide) {
        if (wide == 1) return tile_of<1>(rows, std::make_index_sequence<TILE>());
        return wide == PANELS ? tile_of<PANELS>(rows, std::make_index_sequence<TILE>()) : tile_of<2 * PANELS>(rows, std::make_index_sequence<FEW>());
    }

    // The panels from `begin` to `panels`.
    static void some(const Map& map, bool is_offset, int64_t rows, const X* x, int64_t begin, int64_t panels, const Result& to) {
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t end = std::min(rows, first + AT_ONCE), most = end - first <= FEW ? 2 * PANELS : PANELS;
            for (int64_t panel = begin, wide; panel < panels; panel += wide) {
                wide = panels - panel >= most ? most : panels - panel >= PANELS ? PANELS : 1;
                const char* const weight = static_cast<const char*>(map.weight) + panel * LANES * map.d_in * sizeof(X);
                for (int64_t row = first, here; row < end; row += here) {
                    here = std::min<int64_t>(TILE, end - row);
                    tile_of(here, wide)(map, is_offset, x + row * map.d_in, weight, row, panel * LANES, to);
                }
            }
        }
    }

    // The same for all panels, divided among threads.
    static void run(const Map& map, bool is_offset, int64_t rows, const X* x, int64_t threads, const Result& to) {
        const int64_t panels = (map.d_out + LANES - 1) / LANES, parts = std::max<int64_t>(1, std::min(threads, rows * map.d_in * map.d_out / WORTH));
        const int64_t share = (panels + parts - 1) / parts;
        if (parts == 1) return some(map, is_offset, rows, x, 0, panels, to);
        helpers().share(int(parts), [&](int part) { some(map, is_offset, rows, x, part * share, std::min(panels, (part + 1) * share), to); });
    }
};

template <class Numbers>
void run(const Map& map, bool is_offset, int64_t rows, const typename Numbers::X* x, int64_t threads, const Result& to) {
    const auto run = to.in_bytes ? Product<Numbers, RELU_IN_BYTES>::run : map.relu ? Product<Numbers, RELU>::run : Product<Numbers, PLAIN>::run;
    run(map, is_offset, rows, x, threads, to);
}
#endif

// The bytes that the instruction takes, which are unsigned: x (count,) of INT8 as OFFSET.
const uint8_t* offset(const void* x, int64_t count) {
    scratch.input.resize(count);
    const uint8_t* const from = static_cast<const uint8_t*>(x);
    uint8_t* const to = scratch.input.data();
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] ^ 0x80;
    return to;
}

// x (N, d_in) in `dtype` times W: FP32, or of an int8 map INT8, OFFSET or UINT8.
void multiply(const Map& map, int64_t rows, const void* x, int dtype, int64_t threads, void* out, bool in_bytes = false, float factor = 1.0f) {
    const Result to{out, in_bytes, factor, map.d_out, 0};
#ifdef __AVX512VNNI__
    if (map.scales) return run<Bytes>(map, dtype != UINT8, rows, dtype == INT8 ? offset(x, rows * map.d_in) : static_cast<const uint8_t*>(x), threads, to);
#endif
#ifdef __AVX512F__
    run<Floats>(map, false, rows, static_cast<const float*>(x), threads, to);
#endif
}

// The panels from `begin` to `end` alone, for x in `map.input()`: out (N, (end - begin) * LANES).
void multiply_panels(const Map& map, int64_t rows, const void* x, int64_t begin, int64_t end, float* out) {
    const Result to{out, 0, 1.0f, (end - begin) * LANES, begin * LANES};
#ifdef __AVX512VNNI__
    if (map.scales) return Product<Bytes, PLAIN>::some(map, true, rows, static_cast<const uint8_t*>(x), begin, end, to);
#endif
#ifdef __AVX512F__
    Product<Floats, PLAIN>::some(map, false, rows, static_cast<const float*>(x), begin, end, to);
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

// x (N, d_in) in `dtype` -> (N, d_out) in fp32, or in uint8 after another factor.
void nmt_multiply(const Map* map, int64_t rows, const void* x, int dtype, int64_t threads, void* out, int in_bytes, float factor) { multiply(*map, rows, x, dtype, threads, out, in_bytes, factor); }

}  // extern "C"
