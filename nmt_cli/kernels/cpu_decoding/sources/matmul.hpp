// Matrix products: rows (N, d_in) times the transpose of a packed weight (d_out, d_in), for any number of rows.
//
//   fp32   panels (d_out / LANES, d_in, LANES)          a sum adds its products one by one
//   int8   panels (d_out / LANES, d_in / T, LANES, T)   sums are exact; they are scaled, and the bias is added, in fp32
//
// T numbers of x are multiplied at once. numbers_avx512.hpp and numbers_avx2.hpp have what differs between processors: the registers
// of sums (`Floats`, and `Bytes` of int8), and the size of tiles.
//
// d_out is rounded up to whole panels; weights, scales and biases have zeros there. A tile of rows and panels stays in registers
// while it runs over d_in. A result is the same sum in the same order whatever the tile is: it does not depend on the other rows.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "outputs.hpp"
#include "threads.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#define NMT_PRODUCTS  // of both dtypes
#include "numbers_avx2.hpp"
#ifdef __AVX512F__
#include "numbers_avx512.hpp"
#endif
#endif

namespace {

constexpr int FEW = 4;              // rows up to which reading the weights is all the work
constexpr int64_t AT_ONCE = 256;    // rows that meet a panel before the next one is read
constexpr int64_t AHEAD = 1024;     // bytes of a panel that are prefetched for few rows
constexpr int64_t ENOUGH = 4;       // tiles of rows from which on the next panels are prefetched, a piece before each tile
constexpr int64_t WORTH = 1 << 20;  // multiplications that are worth a thread

#ifdef NMT_PRODUCTS
// One tile: ROWS rows from `row` on, whose numbers are at x, times WIDE panels from output `at` on, whose weights are at `weight`.
// All sums stay in registers: loops over them are unrolled.
template <int ROWS, int WIDE, class Numbers, Finish FINISH>
void one_tile(const Map& map, bool is_offset, const typename Numbers::X* x, const char* weight, int64_t row, int64_t at, const Result& to) {
    using Sum = typename Numbers::Sum;
    constexpr int64_t STEP = Numbers::STEP;
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
            const auto numbers = Numbers::spread(x + r * d_in + i * Numbers::TOGETHER);
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

    template <int WIDE>
    static Tile tile_of(int64_t rows) { return tile_of<WIDE>(rows, std::make_index_sequence<Numbers::most_rows(WIDE)>()); }

    static Tile tile_of(int64_t rows, int wide) { return wide == 4 ? tile_of<4>(rows) : wide == 2 ? tile_of<2>(rows) : tile_of<1>(rows); }

    // The panels from `begin` to `panels`. While many rows meet some of them, the next ones are fetched.
    static void some(const Map& map, bool is_offset, int64_t rows, const X* x, int64_t begin, int64_t panels, const Result& to) {
        const int64_t size = map.d_in / Numbers::TOGETHER * Numbers::STEP;
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t end = std::min(rows, first + AT_ONCE), highest = std::min<int64_t>(Numbers::TILE, end - first);
            for (int64_t panel = begin, wide; panel < panels; panel += wide) {
                for (wide = 4; wide > 1 && (wide > panels - panel || highest > Numbers::most_rows(int(wide))); wide /= 2) {}
                const char* const weight = static_cast<const char*>(map.weight) + panel * size;
                int64_t tiles = (end - first + Numbers::TILE - 1) / Numbers::TILE;
                const char *next = weight + wide * size, *const last = next + (tiles < ENOUGH ? 0 : std::min(wide, panels - panel - wide) * size);
                for (int64_t row = first, here, piece = (last - next + tiles - 1) / tiles; row < end; row += here, --tiles) {
                    here = (end - row + tiles - 1) / tiles;  // as many in each: 8 rows are 4 and 4, not 6 and 2
                    for (const char* const until = std::min(last, next + piece); next < until; next += LINE) __builtin_prefetch(next);
                    tile_of(here, int(wide))(map, is_offset, x + row * map.d_in, weight, row, panel * LANES, to);
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

// What an int8 map reads best, and how many rows a tile has at most.
#ifdef NMT_PRODUCTS
constexpr int INT8_INPUT = Bytes::INPUT;
int64_t tile_rows(const Map& map) { return map.scales ? Bytes::TILE : Floats::TILE; }
#else
constexpr int INT8_INPUT = INT8;
int64_t tile_rows(const Map&) { return 1; }
#endif

// The dtype in which a pass writes the rows that a map reads.
int input_of(const Map& map) { return map.scales ? INT8_INPUT : FP32; }

// x (N, d_in) in `dtype` times W: FP32, or of an int8 map INT8, `INT8_INPUT` or UINT8.
void multiply(const Map& map, int64_t rows, const void* x, int dtype, int64_t threads, void* out, bool in_bytes = false, float factor = 1.0f) {
#ifdef NMT_PRODUCTS
    const Result to{out, in_bytes, factor, map.d_out, 0};
    if (map.scales)
        run<Bytes>(map, dtype != UINT8, rows, Bytes::prepared(x, rows * map.d_in, dtype), threads, to);
    else
        run<Floats>(map, false, rows, static_cast<const float*>(x), threads, to);
#endif
}

// x (N, d_in), FP32 or INT8, as `multiply_panels` reads it; it stays valid until the next call.
const void* prepared(const Map& map, int64_t rows, const void* x) {
#ifdef NMT_PRODUCTS
    if (map.scales) return Bytes::prepared(x, rows * map.d_in, INT8);
#endif
    return x;
}

// The panels from `begin` to `end` alone, for `rows` rows of what `prepared` returned, from `first` on: out (rows, (end - begin) * LANES).
void multiply_panels(const Map& map, int64_t first, int64_t rows, const void* x, int64_t begin, int64_t end, float* out) {
#ifdef NMT_PRODUCTS
    const Result to{out, 0, 1.0f, (end - begin) * LANES, begin * LANES};
    if (map.scales)
        Product<Bytes, PLAIN>::some(map, true, rows, static_cast<const Bytes::X*>(x) + first * map.d_in, begin, end, to);
    else
        Product<Floats, PLAIN>::some(map, false, rows, static_cast<const float*>(x) + first * map.d_in, begin, end, to);
#endif
}

// W (d_out, d_in) -> panels of T numbers of each row together; the last panel is filled up with zeros.
template <int64_t T, class Number>
void pack(int64_t d_out, int64_t d_in, const Number* weight, Number* packed) {
    for (int64_t first = 0; first < d_out; first += LANES) {
        Number* to = packed + first * d_in;
        const int64_t outputs = std::min<int64_t>(LANES, d_out - first);
        if (outputs < LANES) std::fill_n(to, LANES * d_in, Number{0});
        for (int64_t i = 0; i < d_in; i += T, to += LANES * T)
            for (int64_t o = 0; o < outputs; ++o) std::memcpy(to + o * T, weight + (first + o) * d_in + i, sizeof(Number) * T);
    }
}

}  // namespace

extern "C" {

// Whether this processor has products here.
int nmt_multiplies() {
#ifdef NMT_PRODUCTS
    return 1;
#else
    return 0;
#endif
}

// W (d_out, d_in) as panels; of int8 also 128 times each row's sum. d_in is a multiple of 4 for int8.
void nmt_pack_fp32(int64_t d_out, int64_t d_in, const float* weight, float* packed) { pack<1>(d_out, d_in, weight, packed); }

void nmt_pack_int8(int64_t d_out, int64_t d_in, const int8_t* weight, int8_t* packed, int32_t* sums) {
#ifdef NMT_PRODUCTS
    pack<Bytes::TOGETHER>(d_out, d_in, weight, packed);
    for (int64_t o = 0; o < (d_out + LANES - 1) / LANES * LANES; ++o) sums[o] = o < d_out ? 128 * std::accumulate(weight + o * d_in, weight + (o + 1) * d_in, int32_t{0}) : 0;
#endif
}

// x (N, d_in) in `dtype` -> (N, d_out) in fp32, or in uint8 after another factor.
void nmt_multiply(const Map* map, int64_t rows, const void* x, int dtype, int64_t threads, void* out, int in_bytes, float factor) { multiply(*map, rows, x, dtype, threads, out, in_bytes, factor); }

}  // extern "C"
