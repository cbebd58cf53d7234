// Products of small matrices in fp32 that stay in the caches, such as those of one head of one sentence.
//
//   block_of(number, rows, size)                    rows in a buffer of this thread
//   multiply(rows, columns, depth, a, b, c, more)   c = a b, or c += a b; `a` may be read by columns
//   transposed(number, rows, size, x)
//
// Rows have zeros or anything up to whole Vectors. A sum's products are added in their order, whatever the tiles are.

#pragma once

#include "vectors.hpp"

namespace {

// A matrix that is read number by number: (i, j) is at numbers[i * down + j * right].
struct Left {
    const float* numbers;
    int64_t down, right;
};

// Rows of whole Vectors, `width` numbers.
struct Block {
    float* numbers;
    int64_t width;

    float* row(int64_t n) const { return numbers + n * width; }
    Left left() const { return {numbers, width, 1}; }
    Left transposed() const { return {numbers, 1, width}; }
};

thread_local Aligned<float> block_buffers[10];  // they only grow

// The memory of this thread's buffer `number`: rows, and three more, of `size` numbers and padding.
inline Block block_of(int number, int64_t rows, int64_t size) {
    Aligned<float>& buffer = block_buffers[number];
    const int64_t width = (size + LANES - 1) / LANES * LANES;
    if (int64_t(buffer.size()) < (rows + 3) * width) buffer.resize((rows + 3) * width);
    return {buffer.data(), width};
}

// ROWS rows and WIDE Vectors of c = a b, or with `more` of c += a b. The sums stay in registers.
template <int ROWS, int WIDE>
void multiply_tile(int64_t depth, const Left& a, const float* b, int64_t b_width, const Block& c, bool more) {
    Vector sum[ROWS][WIDE];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; ++p) sum[r][p] = more ? vector(c.row(r) + p * LANES) : broadcast(0.0f);
    const float* x = a.numbers;
    for (int64_t i = 0; i < depth; ++i, x += a.right, b += b_width) {
        Vector numbers[WIDE];
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; ++p) numbers[p] = vector(b + p * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const Vector same = broadcast(x[r * a.down]);
#pragma GCC unroll 8
            for (int p = 0; p < WIDE; ++p) accumulate(sum[r][p], same, numbers[p]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; ++p) put(sum[r][p], c.row(r) + p * LANES);
}

template <int WIDE, int ROWS = Tiles::most_rows(WIDE), class... Arguments>
void multiply_tile_of(int64_t rows, const Arguments&... arguments) {
    if (rows == ROWS) return multiply_tile<ROWS, WIDE>(arguments...);
    if constexpr (ROWS > 1) multiply_tile_of<WIDE, ROWS - 1>(rows, arguments...);
}

// c (rows, columns) = a (rows, depth) b (depth, columns), or with `more` c += a b, up to whole Vectors.
inline void multiply(int64_t rows, int64_t columns, int64_t depth, const Left& a, const Block& b, const Block& c,
                     bool more = false) {
    const int64_t highest = std::min<int64_t>(Tiles::TILE, rows), panels = (columns + LANES - 1) / LANES;
    for (int64_t panel = 0, wide; panel < panels; panel += wide) {
        for (wide = 4; wide > 1 && (wide > panels - panel || highest > Tiles::most_rows(int(wide))); wide /= 2) {}
        int64_t tiles = (rows + Tiles::TILE - 1) / Tiles::TILE;
        for (int64_t row = 0, here; row < rows; row += here, --tiles) {
            here = (rows - row + tiles - 1) / tiles;  // as many in each
            const auto tile = [&](const auto&... x) {
                return wide == 4   ? multiply_tile_of<4>(x...)
                       : wide == 2 ? multiply_tile_of<2>(x...)
                                   : multiply_tile_of<1>(x...);
            };
            tile(here, depth, Left{a.numbers + row * a.down, a.down, a.right}, b.numbers + panel * LANES, b.width,
                 Block{c.row(row) + panel * LANES, c.width}, more);
        }
    }
}

// Of eight numbers, those of x and those of y, the four with these indices.
template <int A, int B, int C, int D>
inline Four pick(const Four& x, const Four& y) {
#ifdef __clang__
    return __builtin_shufflevector(x, y, A, B, C, D);
#else
    typedef int32_t Indices __attribute__((vector_size(16)));
    return __builtin_shuffle(x, y, Indices{A, B, C, D});
#endif
}

// Return the transpose of x (rows, size), with zeros up to whole Vectors, in a buffer. Up to three more rows of x are
// 0.
inline Block transposed(int number, int64_t rows, int64_t size, const Block& x) {
    const Block out = block_of(number, size, rows);
    const auto four = [](float* at) -> Four& { return *reinterpret_cast<Four*>(at); };
    for (int64_t i = 0; i < size; ++i) put(broadcast(0.0f), out.row(i) + out.width - LANES);
    for (int64_t n = 0; n < rows; n += 4) {
        for (int64_t i = 0; i < size; i += 4) {
            float *const in = x.row(n) + i, *const to = out.row(i) + n;
            const Four &a = four(in), &b = four(in + x.width), &c = four(in + 2 * x.width), &d = four(in + 3 * x.width);
            const Four ab = pick<0, 4, 1, 5>(a, b), cd = pick<0, 4, 1, 5>(c, d);
            const Four last_ab = pick<2, 6, 3, 7>(a, b), last_cd = pick<2, 6, 3, 7>(c, d);
            four(to) = pick<0, 1, 4, 5>(ab, cd);
            four(to + out.width) = pick<2, 3, 6, 7>(ab, cd);
            four(to + 2 * out.width) = pick<0, 1, 4, 5>(last_ab, last_cd);
            four(to + 3 * out.width) = pick<2, 3, 6, 7>(last_ab, last_cd);
        }
    }
    return out;
}

}  // namespace
