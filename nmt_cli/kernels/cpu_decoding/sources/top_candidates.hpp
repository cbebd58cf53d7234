// Log-softmax and the best candidates of each sentence, from logits or straight from what the output map reads.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "matmul.hpp"

// The logarithm of the sum of exp(x[v]), given the largest of them. Not inlined: everyone gets the same last bit.
[[gnu::noinline]] static float log_sum_exp(const float* x, int64_t size, float largest) {
    float sum = 0.0f;
    int64_t v = 0;
#ifdef __AVX512F__
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const __m512 highest = _mm512_set1_ps(largest);
    for (; v + 2 * LANES <= size; v += 2 * LANES)
        for (int half = 0; half < 2; ++half) sums[half] = _mm512_add_ps(sums[half], exponential(_mm512_sub_ps(_mm512_loadu_ps(x + v + half * LANES), highest)));
    sum = _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
#endif
#pragma omp simd reduction(+ : sum)
    for (int64_t i = v; i < size; ++i) sum += exponential(x[i] - largest);
    return largest + std::log(sum);
}

extern "C" {

// Replace logits (N, V) by their log-softmax.
void nmt_log_softmax(int64_t rows, int64_t size, float* logits) {
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = logits + n * size;
        float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
        for (int64_t v = 0; v < size; ++v) largest = x[v] > largest ? x[v] : largest;
        const float total = log_sum_exp(x, size, largest);
#pragma omp simd
        for (int64_t v = 0; v < size; ++v) x[v] -= total;
    }
}

struct Request {
    int64_t beam, size, count;
    int normalized;
    const int64_t* open;
    const float* so_far;
    int64_t banned_count;
    const int64_t *banned_ids, *banned, *only;
    float* values;
    int64_t* numbers;
};

}  // extern "C"

namespace {

// Rank what may follow hypothesis n, whose logits are x (V,), among the candidates of its sentence.
void rank(const Request& to, int64_t n, float* x) {
    constexpr int64_t CHUNK = 64;
    const float nothing = -std::numeric_limits<float>::infinity();
    const int64_t size = to.size, count = to.count, chunks = (size + CHUNK - 1) / CHUNK, base = to.open[n] % to.beam * size;
    std::vector<float>& highest = scratch.scores;
    highest.resize(chunks);
    float* const value = to.values + to.open[n] / to.beam * count;
    int64_t* const number = to.numbers + to.open[n] / to.beam * count;
    const auto insert = [&](float one, int64_t which) {
        int64_t i = count - 1;
        for (; i > 0 && one > value[i - 1]; --i) {
            value[i] = value[i - 1];
            number[i] = number[i - 1];
        }
        value[i] = one;
        number[i] = which;
    };
    const auto largest_of = [&](int64_t chunk) {
        const int64_t end = std::min(size, (chunk + 1) * CHUNK);
        float one = nothing;
#pragma omp simd reduction(max : one)
        for (int64_t v = chunk * CHUNK; v < end; ++v) one = x[v] > one ? x[v] : one;
        return one;
    };
    float largest = nothing;
    for (int64_t c = 0; c < chunks; ++c) largest = std::max(largest, highest[c] = largest_of(c));
    const float total = to.normalized ? (x[0] != x[0] ? x[0] : 0.0f) : log_sum_exp(x, size, largest), before = to.so_far[to.open[n]];
    if (total != total) {  // first and for good: nothing is larger
        value[0] = total;
        number[0] = base;
        return;
    }
    if (to.only && to.only[n] >= 0) {
        const float one = before + (x[to.only[n]] - total);
        if (one > value[count - 1]) insert(one, base + to.only[n]);
        return;
    }
    for (int64_t i = 0; i < (to.banned ? to.banned[n] : to.banned_count); ++i) {
        x[to.banned_ids[i]] = nothing;
        highest[to.banned_ids[i] / CHUNK] = largest_of(to.banned_ids[i] / CHUNK);
    }
    for (int64_t c = 0; c < chunks; ++c) {
        if (!(before + (highest[c] - total) > value[count - 1])) continue;
        const int64_t end = std::min(size, (c + 1) * CHUNK);
        for (int64_t v = c * CHUNK; v < end; ++v) {
            const float one = before + (x[v] - total);
            if (one > value[count - 1]) insert(one, base + v);
        }
    }
}

void begin(const Request& to, int64_t batch) {
    std::fill(to.values, to.values + batch * to.count, -std::numeric_limits<float>::infinity());
    std::fill(to.numbers, to.numbers + batch * to.count, 0);
}

}  // namespace

extern "C" {

// Find for each of B sentences the `count` largest of so_far[b, w] + log-softmax(logits)[v] over (W, V), largest first, equal
// ones in the order of w * V + v. Write the values and the numbers w * V + v, (B, count); if there are fewer: -inf and 0.
// logits (N, V) belong to the open hypotheses `open` (N,), ascending b * W + w. NaN comes first. The softmax is over all of V.
// `banned_ids` (banned_count,) are never candidates; with `banned`, the first banned[n] of them. If only[n] >= 0, that token
// is the one candidate of hypothesis n, also if it is banned. `banned` and `only` may be null. If `normalized`, the logits are
// log-probabilities, some of which may be -inf: no softmax is taken, and the first is NaN if any is.
void nmt_top_candidates(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t size, float* logits, int normalized, const float* so_far, int64_t banned_count, const int64_t* banned_ids,
                        const int64_t* banned, const int64_t* only, int64_t count, float* values, int64_t* numbers) {
    const Request to{beam, size, count, normalized, open, so_far, banned_count, banned_ids, banned, only, values, numbers};
    begin(to, batch);
    for (int64_t n = 0; n < rows; ++n) rank(to, n, logits + n * size);
}

// The same for logits that are the output map's of h, rows as it reads them: computed for few hypotheses at a time, they stay
// in the processor's cache.
void nmt_best_outputs(const Map* output, const void* h, int64_t batch, int64_t beam, int64_t rows, const int64_t* open, const float* so_far, int64_t banned_count, const int64_t* banned_ids, const int64_t* banned,
                      const int64_t* only, int64_t count, int64_t threads, float* values, int64_t* numbers) {
    constexpr int64_t BLOCK = 2 * TILE;
    const Request to{beam, output->d_out, count, 0, open, so_far, banned_count, banned_ids, banned, only, values, numbers};
    begin(to, batch);
    std::vector<float>& logits = scratch.out;
    for (int64_t first = 0; first < rows; first += BLOCK) {
        const int64_t here = std::min(BLOCK, rows - first);
        logits.resize(here * to.size);
        multiply(*output, here, static_cast<const char*>(h) + first * output->d_in * size_of(output->input()), true, threads, {logits.data(), 0, 1.0f});
        for (int64_t n = 0; n < here; ++n) rank(to, first + n, logits.data() + n * to.size);
    }
}

}  // extern "C"
