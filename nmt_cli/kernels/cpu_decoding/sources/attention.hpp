// Equation (1) over keys and values in any rows.

#pragma once

#include <algorithm>
#include <limits>

#include "dtypes.hpp"

namespace {

struct Shape {
    int64_t heads, key, value;  // H, K, V
    float scale;
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

    int64_t operator()(int r, int64_t i) const { return lists[0] ? lists[r][i] : first + i; }
    bool shared(int64_t i) const { return !lists[0] || common[i]; }
    // The index of the i-th keys and values of the rows that attend next; these rows have `count`.
    int64_t upcoming(int64_t i, int64_t count) const { return !lists[0] ? first + count + i : i < next_count ? next[i] : lists[0][i]; }
};

// Equation (1) for `rows` rows, at most GROUP: queries q (rows, H * K) already scaled; the i-th keys and values of row r
// are at `at(r, i)`; out (rows, H * V).
template <class T>
void attend_plain(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride, const RowIndex& at, int64_t count, float* scores, float* out) {
    const int64_t key = shape.key, value = shape.value;
    for (int64_t n = 0; n < rows * shape.heads; ++n, q += key, out += value) {
        const int r = int(n / shape.heads);
        const int64_t h = n % shape.heads;
        float highest = -std::numeric_limits<float>::infinity(), total = 0.0f;
        for (int64_t i = 0; i < count; ++i) {
            const T* const k = keys + at(r, i) * stride + h * key;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < key; ++j) sum += q[j] * load(k[j]);
            scores[i] = sum;
            highest = sum > highest ? sum : highest;
        }
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < count; ++i) {
            scores[i] = exponential(scores[i] - highest);
            total += scores[i];
        }
        const float factor = count ? 1.0f / total : 0.0f;
        std::fill(out, out + value, 0.0f);
        for (int64_t i = 0; i < count; ++i) {
            const T* const v = values + at(r, i) * stride + h * value;
            const float weight = scores[i] * factor;
#pragma omp simd
            for (int64_t j = 0; j < value; ++j) out[j] += weight * load(v[j]);
        }
    }
}

// Let the processor fetch `count` numbers.
template <class T>
inline void fetch(const T* x, int64_t count) {
    for (int64_t at = 0; at < count; at += LINE / int64_t(sizeof(T))) __builtin_prefetch(x + at);
}

// Replace scores (count, GROUP) by their softmax, for each of the four rows. The numbers behind them, up to `whole`, a multiple of LANES, are padding.
inline void softmax_of_fours(float* scores, int64_t count, int64_t whole) {
    float largest[LANES], total[LANES] = {};
    for (int64_t i = count * GROUP; i < whole; ++i) scores[i] = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < LANES; ++j) largest[j] = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < whole; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; ++j) largest[j] = scores[i + j] > largest[j] ? scores[i + j] : largest[j];
    }
    const Vector highest = largest_of_fours(vector(largest));
    std::memcpy(largest, &highest, sizeof largest);
    for (int64_t i = 0; i < whole; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; ++j) {
            scores[i + j] = exponential(scores[i + j] - largest[j]);
            total[j] += scores[i + j];
        }
    }
    const Vector sums = sum_of_fours(vector(total));
    std::memcpy(total, &sums, sizeof total);
#pragma omp simd
    for (int j = 0; j < LANES; ++j) total[j] = 1.0f / total[j];
    for (int64_t i = 0; i < whole; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; ++j) scores[i + j] *= total[j];
    }
}

// `attend_plain` where K and V are SIZE, a multiple of LANES, for ROWS rows: `at` gives their index. Keys and values that rows share are
// read once. Scores of a head, (count, GROUP), lie in fours, one of each row; a row's do not depend on the others. A head's queries
// and sums stay in registers: loops over them are unrolled. Meanwhile the keys and values that the next rows need are fetched.
template <int SIZE, int ROWS, class T>
void attend_fast(const Shape& shape, const float* q, const T* keys, const T* values, int64_t stride, const RowIndex& at, int64_t count, float* scores, float* out) {
    constexpr int REGISTERS = SIZE / LANES;
    const int64_t heads = shape.heads, width = heads * SIZE, whole = (count * GROUP + LANES - 1) / LANES * LANES;
    for (int64_t h = 0; h < heads; ++h) {
        Vector query[ROWS][REGISTERS];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < REGISTERS; ++p) query[r][p] = vector(q + r * width + h * SIZE + p * LANES);
        for (int64_t i = 0; i < count; ++i) {
            const bool common = at.shared(i);
            const int64_t next = at.upcoming(i, count) * stride + h * SIZE;
            fetch(keys + next, SIZE);
            fetch(values + next, SIZE);
            Vector products[GROUP] = {}, k[REGISTERS] = {};
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || !common)
#pragma GCC unroll 4
                    for (int p = 0; p < REGISTERS; ++p) k[p] = vector(keys + at(r, i) * stride + h * SIZE + p * LANES);
#pragma GCC unroll 4
                for (int p = 0; p < REGISTERS; ++p) add_product(products[r], query[r][p], k[p]);
            }
            const Four sums = sums_of(products[0], products[1], products[2], products[3]);
            std::memcpy(scores + h * whole + i * GROUP, &sums, sizeof sums);
        }
    }
    for (int64_t h = 0; h < heads; ++h) softmax_of_fours(scores + h * whole, count, whole);
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
                    for (int p = 0; p < REGISTERS; ++p) v[p] = vector(values + at(r, i) * stride + h * SIZE + p * LANES);
#pragma GCC unroll 4
                for (int p = 0; p < REGISTERS; ++p) add_product(mixed[r][p], weights[i * GROUP + r], v[p]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < REGISTERS; ++p) std::memcpy(out + r * width + h * SIZE + p * LANES, &mixed[r][p], sizeof(Vector));
    }
}

template <class T>
void attend_rows(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride, const RowIndex& at, int64_t count, float* scores, float* out) {
#define SIZED(size)                                                                                              \
    if (shape.key == size && shape.value == size) {                                                              \
        const auto fast = rows == 1 ? attend_fast<size, 1, T> : rows == 2 ? attend_fast<size, 2, T> : attend_fast<size, GROUP, T>; \
        return fast(shape, q, keys, values, stride, at, count, scores, out);                                     \
    }
    SIZED(32)
    SIZED(64)
#undef SIZED
    attend_plain(shape, rows, q, keys, values, stride, at, count, scores, out);
}

// `attend_rows` for queries at q in `dtype`, query_stride apart; results to `out` in `out_dtype`.
template <class T>
void attend(const Shape& shape, int rows, const void* q, int dtype, int64_t query_stride, const void* keys, const void* values, int64_t stride, const RowIndex& at, int64_t count, void* out, int out_dtype,
            float int8_scale) {
    const int64_t width = shape.heads * shape.key, wide = shape.heads * shape.value;
    scratch.query.resize(GROUP * width);
    scratch.out.resize(GROUP * wide);
    scratch.scores.resize(shape.heads * GROUP * (count + LANES));
    for (int r = 0; r < rows; ++r) {
        if (dtype == FP32)
            load_scaled(static_cast<const float*>(q) + r * query_stride, width, shape.scale, scratch.query.data() + r * width);
        else
            load_scaled(static_cast<const bf16*>(q) + r * query_stride, width, shape.scale, scratch.query.data() + r * width);
    }
    attend_rows(shape, rows, scratch.query.data(), static_cast<const T*>(keys), static_cast<const T*>(values), stride, at, count, scratch.scores.data(), scratch.out.data());
    store(scratch.out.data(), rows * wide, out, out_dtype, int8_scale);
}

}  // namespace

extern "C" {

// Row n attends to rows first[n] .. first[n] + count[n] - 1 of keys and values; none: zeros.
void nmt_attend_range(int64_t rows, int64_t heads, int64_t key, int64_t value, float scale, const void* queries, const void* keys, const void* values, int dtype, int64_t query_stride, int64_t stride,
                      const int64_t* first, const int64_t* count, void* out, int out_dtype, float int8_scale) {
    const Shape shape{heads, key, value, scale};
    for (int64_t n = 0, group = 1; n < rows; n += group) {
        for (group = 1; group < GROUP && n + group < rows && first[n + group] == first[n] && count[n + group] == count[n]; ++group) {}
        const void* const q = static_cast<const char*>(queries) + n * query_stride * size_of(dtype);
        void* const y = static_cast<char*>(out) + n * heads * value * size_of(out_dtype);
        const RowIndex at{first[n], {}, nullptr, nullptr, 0};
        if (dtype == FP32)
            attend<float>(shape, int(group), q, dtype, query_stride, keys, values, stride, at, count[n], y, out_dtype, int8_scale);
        else
            attend<bf16>(shape, int(group), q, dtype, query_stride, keys, values, stride, at, count[n], y, out_dtype, int8_scale);
    }
}

}  // extern "C"
