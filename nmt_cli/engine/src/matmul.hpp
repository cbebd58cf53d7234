// Matrix products: rows (N, d_in) times the transpose of a packed weight (d_out, d_in), for any number of rows.
//
//   fp32   panels (d_out / LANES, d_in, LANES)          a sum adds its products one by one, each with one rounding
//   int8   panels (d_out / LANES, d_in / A, LANES, A)   sums are exact; then sum * (scale of x * scale of W) + bias in
//                                                       fp32
//
// Where no instruction adds products of bytes exactly, `ShortSums` multiplies twice as fast as `Bytes` those models
// whose weights are mostly small: it adds four products of rows in 16 bits. Weights are packed so small that this is
// exact, and what a few of them have more, the `Rest`, is multiplied one by one.
//
// `Floats` and `Bytes` are the numbers of a product. registers_X.hpp has Bytes and ShortSums, and the size of tiles:
//   TILE, most_rows(panels)   rows of a tile: at most; at most with so many panels
//   X, TOGETHER, ADJACENT     the type of x's numbers; T, how many are multiplied at once; A, of int8: how many of a
//   row
//                             of W lie side by side
//   Sum                       sums of LANES products: zero(), sums(x) from memory, numbers(sum) as a Vector
//   load(w), spread(x)        T * LANES numbers of a panel, and T numbers of x for all lanes
//   add(sum, x, w)            add T products to each lane
//   INPUT                     the grid of x that a pass before it writes, unless it is UNSIGNED
//   SHIFTED                   the grid whose numbers are multiplied as numbers that are 128 more (OFFSET) or 128 less
//                             (UNSIGNED); NONE
//
// d_out is rounded up to whole panels; weights, scales and biases have zeros there. A tile of rows and panels stays in
// registers while it runs over d_in. With AMX, bytes are multiplied in its registers (registers_amx.hpp). A result is
// the same sum in the same order whatever the tile is: it depends neither on the other rows nor on the processor.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "outputs.hpp"
#ifdef __AMX_INT8__
#include "registers_amx.hpp"
#endif
#include "threads.hpp"

namespace {

struct Floats : Tiles {
    using Sum = Vector;
    using X = float;
    static constexpr int TOGETHER = 1;
    static constexpr Grid SHIFTED = NONE;

    static Vector zero() { return broadcast(0.0f); }
    static Vector load(const float* w) { return vector(w); }
    static Vector spread(const float* x) { return broadcast(*x); }
    static void add(Vector& sum, const Vector& x, const Vector& w) { accumulate(sum, x, w); }
};

constexpr bool HAS_SHORT_SUMS = !std::is_same_v<ShortSums, Bytes>;

// The type of a product's weights.
template <class Numbers>
using Weight = std::conditional_t<std::is_same_v<Numbers, Floats>, float, int8_t>;

constexpr int64_t AT_ONCE = 256;  // rows that meet a panel before the next one is read
constexpr int64_t AHEAD = 1024;   // bytes of a panel that are prefetched
constexpr int64_t ENOUGH = 4;  // tiles of rows from which on the next panels are prefetched, a piece before each tile
constexpr int64_t TILES_FROM = 4;   // rows from which on tile registers multiply
constexpr int64_t WORTH = 1 << 20;  // multiplications that are worth a thread

// The sums of a tile start with these: if x is shifted, with what the shift adds to each product of rows.
template <class Numbers>
typename Numbers::Sum start(const Map& map, int64_t at, bool shifted) {
    if constexpr (Numbers::SHIFTED != NONE)
        if (shifted) return Numbers::sums(map.sums + at);
    return Numbers::zero();
}

// Write sixteen results of a map, or as many as it has; `scale` is that of the row of x.
template <class Numbers, Finish FINISH>
inline void finish(const Outputs& outputs, typename Numbers::Sum sum, float scale, float* out) {
    Vector y;
    if constexpr (std::is_same_v<Numbers, Floats>)
        y = sum + outputs.bias;
    else
        y = Bytes::numbers(sum) * (outputs.scales * broadcast(scale)) + outputs.bias;
    if (FINISH == RELU) y = larger(broadcast(0.0f), y);
    outputs.left == LANES ? put(y, out) : put(y, out, outputs.left);
}

// One tile: ROWS rows from `row` on, whose numbers are at x, times WIDE panels from output `at` on, whose weights are
// at `weight`. All sums stay in registers: loops over them are unrolled.
template <int ROWS, int WIDE, class Numbers, Finish FINISH>
void one_tile(const Map& map, bool shifted, const typename Numbers::X* x, const float* scales, const Weight<Numbers>* w,
              int64_t row, int64_t at, const Result& to) {
    constexpr int64_t T = Numbers::TOGETHER, STEP = T * LANES;
    const int64_t d_in = map.d_in, panel = d_in * LANES;
    typename Numbers::Sum sum[ROWS][WIDE];
#pragma GCC unroll 8
    for (int p = 0; p < WIDE; ++p) {
        const auto first = start<Numbers>(map, at + p * LANES, shifted);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) sum[r][p] = first;
        if constexpr (HAS_SHORT_SUMS && std::is_same_v<Numbers, ShortSums>)
            for (const Rest& rest : (*map.rests)[at / LANES + p])
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r) Numbers::add(sum[r][p], x[r * d_in + rest.input], rest.amounts);
    }
    for (int64_t i = 0; i < d_in; i += T, w += STEP) {
        decltype(Numbers::load(w)) weights[WIDE];
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; ++p) {
            __builtin_prefetch(reinterpret_cast<const char*>(w + p * panel) + AHEAD);
            weights[p] = Numbers::load(w + p * panel);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const auto numbers = Numbers::spread(x + r * d_in + i);
#pragma GCC unroll 8
            for (int p = 0; p < WIDE; ++p) Numbers::add(sum[r][p], numbers, weights[p]);
        }
    }
    float* const first = to.out + row * to.width + (at - to.first);
#pragma GCC unroll 8
    for (int p = 0; p < WIDE; ++p) {
        const Outputs outputs(map, at + p * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
            finish<Numbers, FINISH>(outputs, sum[r][p], scales ? scales[row + r] : 1.0f,
                                    first + r * to.width + p * LANES);
    }
}

// x (N, d_in) times panels. A tile may have fewer rows at the end of N, and fewer panels at their end.
template <class Numbers, Finish FINISH>
struct Product {
    using X = typename Numbers::X;
    using W = Weight<Numbers>;
    using Tile = void (*)(const Map&, bool, const X*, const float*, const W*, int64_t, int64_t, const Result&);

    template <int WIDE, size_t... ROWS>
    static Tile tile_of(int64_t rows, std::index_sequence<ROWS...>) {
        static constexpr Tile tiles[] = {one_tile<int(ROWS) + 1, WIDE, Numbers, FINISH>...};
        return tiles[rows - 1];
    }

    template <int WIDE>
    static Tile tile_of(int64_t rows) {
        return tile_of<WIDE>(rows, std::make_index_sequence<Numbers::most_rows(WIDE)>());
    }

    static Tile tile_of(int64_t rows, int wide) {
        return wide == 4 ? tile_of<4>(rows) : wide == 2 ? tile_of<2>(rows) : tile_of<1>(rows);
    }

    // The panels from `begin` to `panels`. While many rows meet some of them, the next ones are fetched.
    static void some(const Map& map, bool shifted, int64_t rows, const X* x, const float* scales, int64_t begin,
                     int64_t panels, const Result& to) {
        const int64_t size = map.d_in * LANES;
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t end = std::min(rows, first + AT_ONCE);
            const int64_t highest = std::min<int64_t>(Numbers::TILE, end - first);
            for (int64_t panel = begin, wide; panel < panels; panel += wide) {
                for (wide = 4; wide > 1 && (wide > panels - panel || highest > Numbers::most_rows(int(wide)));
                     wide /= 2) {}
                const W* const weight = static_cast<const W*>(map.weight) + panel * size;
                int64_t tiles = (end - first + Numbers::TILE - 1) / Numbers::TILE;
                const W* next = weight + wide * size;
                const W* const last = next + (tiles < ENOUGH ? 0 : std::min(wide, panels - panel - wide) * size);
                for (int64_t row = first, here, piece = (last - next + tiles - 1) / tiles; row < end;
                     row += here, --tiles) {
                    here = (end - row + tiles - 1) / tiles;  // as many in each: 8 rows are 4 and 4, not 6 and 2
                    for (const W* const until = std::min(last, next + piece); next < until; next += LINE / sizeof(W))
                        __builtin_prefetch(next);
                    tile_of(here, int(wide))(map, shifted, x + row * map.d_in, scales, weight, row, panel * LANES, to);
                }
            }
        }
    }
};

#ifdef __AMX_INT8__
// The same of bytes with AMX, for rows of whole registers. The last ones have HEIGHT rows too, if there are so many:
// some are computed twice.
template <Finish FINISH>
struct ProductOfTiles {
    static void some(const Map& map, bool shifted, int64_t rows, const uint8_t* x, const float* scales, int64_t begin,
                     int64_t panels, const Result& to) {
        const int64_t height = std::min(rows, amx::HEIGHT);
        const amx::Tiling tiling(height);
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t end = std::min(rows, first + AT_ONCE);
            for (int64_t panel = begin; panel < panels; panel += 2)
                for (int64_t row = first; row < end; row += 2 * amx::HEIGHT) {
                    const bool tall = end - row > amx::HEIGHT, wide = panels - panel > 1;
                    const auto run = tall ? (wide ? one_tile<true, true> : one_tile<true, false>)
                                          : (wide ? one_tile<false, true> : one_tile<false, false>);
                    run(map, shifted, height, x, scales, std::min(row, rows - height),
                        std::min(row + amx::HEIGHT, rows - height), panel * LANES, to);
                }
        }
    }

private:
    // `height` rows from `row` on, if TALL also those from `other` on, times one panel, or two if WIDE.
    template <bool TALL, bool WIDE>
    static void one_tile(const Map& map, bool shifted, int64_t height, const uint8_t* x, const float* scales,
                         int64_t row, int64_t other, int64_t at, const Result& to) {
        alignas(LINE) static constexpr int32_t ZEROS[2 * LANES] = {};
        alignas(LINE) int32_t sums[4][amx::HEIGHT][LANES];
        const int64_t d_in = map.d_in;
        amx::multiply<TALL, WIDE>(shifted ? map.sums + at : ZEROS, x + row * d_in, x + other * d_in, d_in,
                                  static_cast<const int8_t*>(map.weight) + at * d_in, AHEAD, sums);
        for (int p = 0; p <= WIDE; ++p) {
            const Outputs outputs(map, at + p * LANES);
            for (int t = 0; t <= TALL; ++t)
                for (int64_t r = 0, n = t ? other : row; r < height; ++r, ++n)
                    finish<Bytes, FINISH>(outputs, Bytes::sums(sums[2 * t + p][r]), scales[n],
                                          to.out + n * to.width + (at + p * LANES - to.first));
        }
    }
};

// Whether both ways of multiplying give the same results, for one product.
bool tiles_agree() {
    constexpr int64_t ROWS = 35, D_IN = 2 * amx::DEPTH, D_OUT = 3 * LANES;
    alignas(LINE) int8_t weight[D_IN * D_OUT];
    alignas(LINE) uint8_t x[ROWS * D_IN];
    alignas(LINE) int32_t sums[D_OUT];
    float scales[D_OUT], results[2][ROWS * D_OUT];
    for (int64_t i = 0; i < D_IN * D_OUT; ++i) weight[i] = int8_t(i * 37 % 255 - 127);
    for (int64_t i = 0; i < ROWS * D_IN; ++i) x[i] = uint8_t(i * 29 + i / 7);
    for (int64_t i = 0; i < D_OUT; ++i) sums[i] = int32_t(i) - 5, scales[i] = 1.0f;
    Map map;
    map.d_in = D_IN, map.d_out = D_OUT, map.weight = weight, map.sums = sums, map.scales = scales;
    Product<Bytes, PLAIN>::some(map, true, ROWS, x, scales, 0, D_OUT / LANES, {results[0], D_OUT, 0});
    ProductOfTiles<PLAIN>::some(map, true, ROWS, x, scales, 0, D_OUT / LANES, {results[1], D_OUT, 0});
    return std::equal(results[0], results[0] + ROWS * D_OUT, results[1]);
}

bool tiles_run() {
    static const bool run = amx::allowed() && tiles_agree();
    return run;
}
#endif

// The panels from `begin` to `end` for all rows.
template <class Numbers>
void some_panels(const Map& map, bool shifted, int64_t rows, const typename Numbers::X* x, const float* scales,
                 int64_t begin, int64_t end, const Result& to) {
    auto run = map.relu ? Product<Numbers, RELU>::some : Product<Numbers, PLAIN>::some;
#ifdef __AMX_INT8__
    if constexpr (std::is_same_v<Numbers, Bytes>)
        if (rows >= TILES_FROM && map.d_in % amx::DEPTH == 0 && tiles_run())
            run = map.relu ? ProductOfTiles<RELU>::some : ProductOfTiles<PLAIN>::some;
#endif
    run(map, shifted, rows, x, scales, begin, end, to);
}

int64_t panels_of(const Map& map) { return (map.d_out + LANES - 1) / LANES; }
int64_t tile_rows(const Map& map) {
#ifdef __AMX_INT8__
    if (map.scales && tiles_run()) return 2 * amx::HEIGHT;
#endif
    return map.rests ? ShortSums::TILE : map.scales ? Bytes::TILE : Floats::TILE;
}

// The kind of the rows that a map reads, and of those of a network's hidden layer after ReLU.
int input_of(const Map& map) {
    return map.rests ? int(ShortSums::SHIFTED) : map.scales ? int(Bytes::INPUT) : int(FP32);
}
int relu_input_of(const Map& map) { return map.scales ? int(UNSIGNED) : int(FP32); }

// Rows as products read them; they stay valid until the next call in this thread.
const void* prepared(const Map& map, int64_t rows, const RowsIn& x) {
    using X = Bytes::X;
    if (!map.scales || map.rests || std::is_same_v<X, uint8_t> || (std::is_same_v<X, int8_t> && x.kind == SIGNED))
        return x.data;
    static thread_local std::vector<X> converted;
    const int64_t count = rows * map.d_in;
    converted.resize(count);
    if (x.kind == SIGNED)
        std::copy_n(static_cast<const int8_t*>(x.data), count, converted.data());
    else
        std::transform(static_cast<const uint8_t*>(x.data), static_cast<const uint8_t*>(x.data) + count,
                       converted.data(), [](int y) { return X(sizeof(X) == 1 ? y - 128 : y); });
    return converted.data();
}

// The panels from `begin` to `end` alone, for `rows` rows of what `prepared` returned for x, from `first` on.
void multiply_panels(const Map& map, const RowsIn& x, const void* prepared, int64_t first, int64_t rows, int64_t begin,
                     int64_t end, const Result& to) {
    if (map.rests)
        some_panels<ShortSums>(map, x.kind == ShortSums::SHIFTED, rows,
                               static_cast<const ShortSums::X*>(prepared) + first * map.d_in, x.scales + first, begin,
                               end, to);
    else if (map.scales)
        some_panels<Bytes>(map, x.kind == Bytes::SHIFTED, rows,
                           static_cast<const Bytes::X*>(prepared) + first * map.d_in, x.scales + first, begin, end, to);
    else
        some_panels<Floats>(map, false, rows, static_cast<const float*>(prepared) + first * map.d_in, nullptr, begin,
                            end, to);
}

// x (N, d_in) times W: (N, d_out).
void multiply(const Map& map, int64_t rows, const RowsIn& x, float* out) {
    const int64_t panels = panels_of(map), worth = rows * map.d_in * map.d_out / WORTH;
    const int64_t parts = std::max<int64_t>(1, std::min({threads_here, panels, worth}));
    const int64_t share = (panels + parts - 1) / parts;
    const void* const from = prepared(map, rows, x);
    helpers().share(int(parts), [&](int part) {
        multiply_panels(map, x, from, 0, rows, part * share, std::min(panels, (part + 1) * share), {out, map.d_out, 0});
    });
}

// What the product of a row of W with numbers shifted like this lacks: 128 times its sum, with the sign of the shift.
int32_t shift_of(const int8_t* row, int64_t d_in, Grid shifted) {
    return (shifted == OFFSET ? -128 : 128) * std::accumulate(row, row + d_in, int32_t{0});
}

// A row of W as it was before it was packed.
template <class Number>
void unpack(const Map& map, int64_t output, Number* row) {
    const auto copy = [&](auto adjacent) {
        const Number* from = static_cast<const Number*>(map.weight) + output / LANES * LANES * map.d_in +
                             output % LANES * adjacent.value;
        for (int64_t i = 0; i < map.d_in; i += adjacent.value, from += LANES * adjacent.value)
            std::memcpy(row + i, from, adjacent.value * sizeof(Number));
    };
    if (!map.scales) return copy(std::integral_constant<int, 1>());
    if (!map.rests) return copy(std::integral_constant<int, Bytes::ADJACENT>());
    copy(std::integral_constant<int, ShortSums::ADJACENT>());
    for (const Rest& rest : (*map.rests)[output / LANES]) row[rest.input] += Number(rest.amounts[output % LANES]);
}

constexpr int64_t MOST_IN_16_BITS = 32767 / 255;  // the sum of weights of one sign, whose products are added in 16 bits

// Call found(four, excess) for each four numbers of a row of W that `ShortSums` adds in 16 bits, if the sum of those
// with one sign is too large.
template <class Found>
void each_large(int8_t* row, int64_t d_in, const Found& found) {
    for (int64_t i = 0; i < d_in; i += i % 8 == 2 ? 6 : 2) {
        int8_t* const four[] = {row + i, row + i + 1, row + i + 4, row + i + 5};
        for (const int sign : {1, -1}) {
            int64_t sum = 0;
            for (const int8_t* const one : four) sum += std::max(0, sign * *one);
            if (sum > MOST_IN_16_BITS) found(four, sign, sum - MOST_IN_16_BITS);
        }
    }
}

// Make the numbers of some rows of W, at most a panel, small enough for `ShortSums`, the largest ones first.
void shorten(int64_t outputs, int64_t d_in, int8_t* rows, std::vector<Rest>& rests) {
    const std::vector<int8_t> whole(rows, rows + outputs * d_in);
    for (int64_t o = 0; o < outputs; ++o)
        each_large(rows + o * d_in, d_in, [&](int8_t* const* four, int sign, int64_t excess) {
            while (excess > 0) {
                int8_t& largest = **std::max_element(
                    four, four + 4, [=](const int8_t* a, const int8_t* b) { return sign * *a < sign * *b; });
                const int64_t amount = std::min<int64_t>(excess, sign * largest);
                largest = int8_t(largest - sign * amount);
                excess -= amount;
            }
        });
    if (std::equal(whole.begin(), whole.end(), rows)) return;
    for (int64_t i = 0; i < d_in; ++i) {
        Rest rest{i, {}};
        bool any = false;
        for (int64_t o = 0, at = i; o < outputs; ++o, at += d_in) {
            rest.amounts[o] = whole[at] - rows[at];
            any |= rest.amounts[o] != 0;
        }
        if (any) rests.push_back(rest);
    }
}

// W (d_out, d_in) from row `first` to `last`, whole panels, as panels with A numbers of each row side by side; the last
// panel is filled up with zeros.
template <int64_t A, class Number>
void pack(int64_t d_out, int64_t d_in, int64_t first, int64_t last, const Number* weight, Number* packed) {
    for (; first < last; first += LANES) {
        Number* to = packed + first * d_in;
        const int64_t outputs = std::min<int64_t>(LANES, d_out - first);
        if (outputs < LANES) std::fill_n(to, LANES * d_in, Number{0});
        for (int64_t i = 0; i < d_in; i += A, to += LANES * A)
            for (int64_t o = 0; o < outputs; ++o)
                std::memcpy(to + o * A, weight + (first + o) * d_in + i, sizeof(Number) * A);
    }
}

}  // namespace
