// Log-softmax and the best candidates of each sentence.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtypes.hpp"

// The logarithm of the sum of exp(x[v]), given the largest of them. Not inlined: everyone gets the same last bit.
[[gnu::noinline]] static float log_sum_exp(const float* x, int64_t size, float largest) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < size; ++v) sum += exponential(x[v] - largest);
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

// Find for each of B sentences the `count` largest of so_far[b, w] + log-softmax(logits)[v] over (W, V), largest first, equal
// ones in the order of w * V + v. Write the values and the numbers w * V + v, (B, count); if there are fewer: -inf and 0.
// logits (N, V) belong to the open hypotheses `open` (N,), ascending b * W + w. NaN comes first. The softmax is over all of V.
// `banned_ids` (banned_count,) are never candidates; with `banned`, the first banned[n] of them. If only[n] >= 0, that token
// is the one candidate of hypothesis n, also if it is banned. `banned` and `only` may be null. If `normalized`, the logits are
// log-probabilities, some of which may be -inf: no softmax is taken, and the first is NaN if any is.
void nmt_top_candidates(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t size, float* logits, int normalized, const float* so_far, int64_t banned_count, const int64_t* banned_ids,
              const int64_t* banned, const int64_t* only, int64_t count, float* values, int64_t* numbers) {
    constexpr int64_t CHUNK = 64;
    const float nothing = -std::numeric_limits<float>::infinity();
    const int64_t chunks = (size + CHUNK - 1) / CHUNK;
    std::vector<float>& highest = scratch.scores;
    highest.resize(chunks);
    std::fill(values, values + batch * count, nothing);
    std::fill(numbers, numbers + batch * count, 0);
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = logits + n * size;
        float* const value = values + open[n] / beam * count;
        int64_t* const number = numbers + open[n] / beam * count;
        const int64_t base = open[n] % beam * size;
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
        const float total = normalized ? (x[0] != x[0] ? x[0] : 0.0f) : log_sum_exp(x, size, largest), before = so_far[open[n]];
        if (total != total) {  // first and for good: nothing is larger
            value[0] = total;
            number[0] = base;
            continue;
        }
        if (only && only[n] >= 0) {
            const float one = before + (x[only[n]] - total);
            if (one > value[count - 1]) insert(one, base + only[n]);
            continue;
        }
        for (int64_t i = 0; i < (banned ? banned[n] : banned_count); ++i) {
            x[banned_ids[i]] = nothing;
            highest[banned_ids[i] / CHUNK] = largest_of(banned_ids[i] / CHUNK);
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
}

}  // extern "C"
