// Log-softmax and the best continuations of each sentence.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "numbers.hpp"

extern "C" {

// The `count` best of so_far[b, w] + log-softmax(logits)[v] over (W, V) for each of B sentences, best first, equals in the
// order of w * V + v: values and those numbers, (B, count); where there are fewer: -inf and 0. logits (N, V) are those of
// the open hypotheses `rows` (N,), ascending b * W + w. What is not a number comes first. The softmax is over all of V;
// `never` (nevers,) are no continuations, or, where `banned` is given, the first banned[n] of them; where `only` is given and
// only[n] >= 0 nothing else is a continuation, and that one always.
void nmt_best(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t size, float* logits, const float* so_far, int64_t nevers, const int64_t* never, const int64_t* banned,
              const int64_t* only, int64_t count, float* values, int64_t* numbers) {
    constexpr int64_t CHUNK = 64;
    const float nothing = -std::numeric_limits<float>::infinity();
    const int64_t chunks = (size + CHUNK - 1) / CHUNK;
    std::vector<float>& most = room.scores;
    most.resize(chunks);
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
        float largest = nothing, sum = 0.0f;
        for (int64_t c = 0; c < chunks; ++c) largest = std::max(largest, most[c] = largest_of(c));
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < size; ++v) sum += exponential(x[v] - largest);
        const float total = largest + std::log(sum), before = so_far[open[n]];
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
        for (int64_t i = 0; i < (banned ? banned[n] : nevers); ++i) {
            x[never[i]] = nothing;
            most[never[i] / CHUNK] = largest_of(never[i] / CHUNK);
        }
        for (int64_t c = 0; c < chunks; ++c) {
            if (!(before + (most[c] - total) > value[count - 1])) continue;
            const int64_t end = std::min(size, (c + 1) * CHUNK);
            for (int64_t v = c * CHUNK; v < end; ++v) {
                const float one = before + (x[v] - total);
                if (one > value[count - 1]) insert(one, base + v);
            }
        }
    }
}

}  // extern "C"
