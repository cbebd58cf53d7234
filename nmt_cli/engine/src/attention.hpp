// Equation (1) over keys and values in any rows.
//
//   attend(shape, rows, q, query_stride, keys, values, stride, at, count, out, first, weights)
//   attend_range(shape, rows, queries, query_stride, keys, values, stride, first, count, out, weights)
//
// Queries are fp32, keys and values T: fp32 or bf16. `weights`, unless null, gets those of one row after another, each
// (H, count).

#pragma once

#include "vectors.hpp"

namespace {

struct Shape {
    int64_t heads, key, value;  // H, K, V
    float scale;                // of scores
};

constexpr int GROUP = 4;  // rows that attend together

// The index of the i-th keys and values of row r: consecutive from `first` on, or from a list of slots per row.
// `common[i]` says whether all rows have the same; without lists they do.
struct RowIndex {
    int64_t first;
    const int32_t* lists[GROUP];
    const uint8_t* common;
    const int32_t* next;  // the list of the first row that attends after these, or null
    int64_t next_count;
    int64_t next_at =
        0;  // without lists: how many numbers behind these keys those of the next rows are, if it is known

    int64_t operator()(int r, int64_t i) const { return lists[0] ? lists[r][i] : first + i; }
    bool shared(int64_t i) const { return !lists[0] || common[i]; }
    // Where the i-th keys and values of the rows that attend next are, in rows of `stride` numbers; these have `count`.
    int64_t upcoming(int64_t i, int64_t count, int64_t stride) const {
        if (!lists[0]) return next_at ? next_at + i * stride : (first + count + i) * stride;
        return (i < next_count ? next[i] : lists[0][i]) * stride;
    }
};

// Let the processor fetch `count` numbers.
template <class T>
inline void fetch(const T* x, int64_t count) {
    for (int64_t at = 0; at < count; at += LINE / int64_t(sizeof(T))) __builtin_prefetch(x + at);
}

// The size of the scores of one head, (count, GROUP) and padding: a multiple of LANES.
inline int64_t scores_size(int64_t count) { return (count * GROUP + LANES - 1) / LANES * LANES; }

// Replace scores (count, GROUP) of one head by their softmax, for each of the four rows. Padding follows them.
inline void softmax_of_fours(float* scores, int64_t count) {
    const int64_t whole = scores_size(count);
    std::fill(scores + count * GROUP, scores + whole, -INFINITE);
    Vector largest = broadcast(-INFINITE), total = broadcast(0.0f);
    for (int64_t i = 0; i < whole; i += LANES) largest = larger(vector(scores + i), largest);
    largest = over_fours(largest, larger);
    for (int64_t i = 0; i < whole; i += LANES) {
        const Vector e = exponential(vector(scores + i) - largest);
        total = total + e;
        put(e, scores + i);
    }
    const Vector factor = broadcast(1.0f) / over_fours(total, [](const Vector& x, const Vector& y) { return x + y; });
    for (int64_t i = 0; i < whole; i += LANES) put(vector(scores + i) * factor, scores + i);
}

// Equation (1) for `rows` rows, at most GROUP: queries q (rows, H * K) already scaled; the i-th keys and values of row
// r are at `at(r, i)`; out (rows, H * V). Weights stay in `scores`: of each head (count, GROUP), and padding.
template <class T>
void attend_plain(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride,
                  const RowIndex& at, int64_t count, float* scores, float* out) {
    const int64_t heads = shape.heads, key = shape.key, value = shape.value, whole = scores_size(count);
    std::fill(scores, scores + heads * whole, 0.0f);
    for (int64_t h = 0; h < heads; ++h) {
        float* const weights = scores + h * whole;
        for (int r = 0; r < rows; ++r) {
            const float* const query = q + (r * heads + h) * key;
            for (int64_t i = 0; i < count; ++i) {
                const T* const k = keys + at(r, i) * stride + h * key;
                Vector sum = broadcast(0.0f);
                for (int64_t j = 0; j < key; j += LANES)
                    sum = fused(vector(query + j, key - j, 0.0f), vector(k + j, key - j, 0.0f), sum);
                weights[i * GROUP + r] = sum_of(sum);
            }
        }
        softmax_of_fours(weights, count);
        for (int r = 0; r < rows; ++r) {
            for (int64_t j = 0; j < value; j += LANES) {
                Vector mixed = broadcast(0.0f);
                for (int64_t i = 0; i < count; ++i) {
                    const T* const v = values + at(r, i) * stride + h * value;
                    mixed = fused(broadcast(weights[i * GROUP + r]), vector(v + j, value - j, 0.0f), mixed);
                }
                put(mixed, out + (r * heads + h) * value + j, value - j);
            }
        }
    }
}

// `attend_plain`, with the same bits, where K and V are SIZE, a multiple of LANES, for ROWS rows: `at` gives their
// index. Keys and values that rows share are read once. Scores of a head, (count, GROUP), lie in fours, one of each
// row; a row's do not depend on the others. A head's queries and sums stay in registers: loops over them are unrolled.
// Meanwhile the keys and values that the next rows need are fetched.
template <int SIZE, int ROWS, class T>
void attend_fast(const Shape& shape, const float* q, const T* keys, const T* values, int64_t stride, const RowIndex& at,
                 int64_t count, float* scores, float* out) {
    constexpr int REGISTERS = SIZE / LANES;
    const int64_t heads = shape.heads, width = heads * SIZE, whole = scores_size(count);
    for (int64_t h = 0; h < heads; ++h) {
        Vector query[ROWS][REGISTERS];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < REGISTERS; ++p) query[r][p] = vector(q + r * width + h * SIZE + p * LANES);
        for (int64_t i = 0; i < count; ++i) {
            const bool common = at.shared(i);
            const int64_t next = at.upcoming(i, count, stride) + h * SIZE;
            fetch(keys + next, SIZE);
            fetch(values + next, SIZE);
            Vector products[GROUP] = {}, k[REGISTERS] = {};
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || !common)
#pragma GCC unroll 4
                    for (int p = 0; p < REGISTERS; ++p) k[p] = vector(keys + at(r, i) * stride + h * SIZE + p * LANES);
#pragma GCC unroll 4
                for (int p = 0; p < REGISTERS; ++p) products[r] = fused(query[r][p], k[p], products[r]);
            }
            const Four sums = sums_of(products[0], products[1], products[2], products[3]);
            std::memcpy(scores + h * whole + i * GROUP, &sums, sizeof sums);
        }
    }
    for (int64_t h = 0; h < heads; ++h) softmax_of_fours(scores + h * whole, count);
    for (int64_t h = 0; h < heads; ++h) {
        const float* const weights = scores + h * whole;
        Vector mixed[ROWS][REGISTERS] = {};
        for (int64_t i = 0; i < count; ++i) {
            const bool common = at.shared(i);
            Vector v[REGISTERS] = {};
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || !common)
#pragma GCC unroll 4
                    for (int p = 0; p < REGISTERS; ++p)
                        v[p] = vector(values + at(r, i) * stride + h * SIZE + p * LANES);
                const Vector weight = broadcast(weights[i * GROUP + r]);
#pragma GCC unroll 4
                for (int p = 0; p < REGISTERS; ++p) mixed[r][p] = fused(weight, v[p], mixed[r][p]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < REGISTERS; ++p) put(mixed[r][p], out + r * width + h * SIZE + p * LANES);
    }
}

template <class T>
void attend_rows(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride,
                 const RowIndex& at, int64_t count, float* scores, float* out) {
    const auto sized = [&](auto one, auto two, auto all) {
        (rows == 1 ? one : rows == 2 ? two : all)(shape, q, keys, values, stride, at, count, scores, out);
    };
    if (shape.key == 32 && shape.value == 32)
        sized(attend_fast<32, 1, T>, attend_fast<32, 2, T>, attend_fast<32, GROUP, T>);
    else if (shape.key == 64 && shape.value == 64)
        sized(attend_fast<64, 1, T>, attend_fast<64, 2, T>, attend_fast<64, GROUP, T>);
    else
        attend_plain(shape, rows, q, keys, values, stride, at, count, scores, out);
}

// Equation (1) for `rows` rows, at most GROUP, over `count` keys and values each. Queries at q, H * K numbers each, are
// fp32 and `query_stride` numbers apart. Keys and values are in rows `stride` numbers apart, at the indices `at`.
// Results, H * V numbers each, zeros if count is 0, become the rows of `out` from row `first` on. Weights
// (rows, H, count) are written unless they are null.
template <class T>
void attend(const Shape& shape, int rows, const float* q, int64_t query_stride, const T* keys, const T* values,
            int64_t stride, const RowIndex& at, int64_t count, const RowsOut& out, int64_t first,
            float* weights = nullptr) {
    const int64_t heads = shape.heads, keys_width = heads * shape.key, width = heads * shape.value;
    const int64_t whole = scores_size(count);
    scratch.query.resize(GROUP * keys_width);
    scratch.out.resize(GROUP * width);
    scratch.scores.resize(heads * whole);
    for (int r = 0; r < rows; ++r) {
        float* const scaled = scratch.query.data() + r * keys_width;
#pragma omp simd
        for (int64_t i = 0; i < keys_width; ++i) scaled[i] = q[r * query_stride + i] * shape.scale;
    }
    const float* const scores = scratch.scores.data();
    attend_rows(shape, rows, scratch.query.data(), keys, values, stride, at, count, scratch.scores.data(),
                scratch.out.data());
    for (int r = 0; r < rows; ++r) {
        out.write(first + r, scratch.out.data() + r * width, width);
        if (!weights) continue;
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t i = 0; i < count; ++i) *weights++ = scores[h * whole + i * GROUP + r];
    }
}

// Row n attends to rows first[n] .. first[n] + count[n] - 1 of keys and values; none: zeros. Weights (H, count[n]) of
// one row after another are written unless they are null.
template <class T>
void attend_range(const Shape& shape, int64_t rows, const float* queries, int64_t query_stride, const T* keys,
                  const T* values, int64_t stride, const int64_t* first, const int64_t* count, const RowsOut& out,
                  float* weights = nullptr) {
    for (int64_t n = 0, group = 1; n < rows; n += group) {
        const auto same = [&](int64_t m) { return m < rows && first[m] == first[n] && count[m] == count[n]; };
        for (group = 1; group < GROUP && same(n + group); ++group) {}
        const RowIndex at{first[n], {}, nullptr, nullptr, 0};
        attend(shape, int(group), queries + n * query_stride, query_stride, keys, values, stride, at, count[n], out, n,
               weights);
        if (weights) weights += group * shape.heads * count[n];
    }
}

}  // namespace
