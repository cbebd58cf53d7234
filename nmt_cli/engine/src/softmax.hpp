// Sums of exponentials over rows of logits.

#pragma once

#include "vectors.hpp"

namespace {

// The largest of x (size,); NaN is ignored, and of nothing it is -infinity.
inline float largest_of(const float* x, int64_t size) {
    const auto step = [](Vector& largest, const Vector& numbers) { largest = larger(numbers, largest); };
    return largest_in(fold(x, size, -INFINITE, -INFINITE, step, larger));
}

// The sum of exp(x - largest) over x (size,). A logit of -infinity counts 0.
inline float sum_exp(const float* x, int64_t size, float largest) {
    const Vector highest = broadcast(std::max(largest, std::numeric_limits<float>::lowest()));
    const auto step = [&](Vector& sum, const Vector& logits) { sum = sum + exponential(logits - highest); };
    return sum_of(fold(x, size, 0.0f, -INFINITE, step, [](const Vector& a, const Vector& b) { return a + b; }));
}

// Whether the sum of exp(x - largest) over x (size,) is a number: the sum of 0 * x is, if all of them are finite.
inline bool is_number(const float* x, int64_t size, float largest) {
    const auto step = [zero = broadcast(0.0f)](Vector& sum, const Vector& numbers) { sum = fused(numbers, zero, sum); };
    const auto plus = [](const Vector& a, const Vector& b) { return a + b; };
    const float none = sum_of(fold(x, size, 0.0f, 0.0f, step, plus)),
                total = none == 0.0f ? 0.0f : sum_exp(x, size, largest);
    return total == total;
}

// Of a chunk of logits: the largest, and the sum of exp(x - largest).
struct Sum {
    float largest, total;

    static Sum of(const float* x, int64_t size) {
        const float largest = largest_of(x, size);
        return {largest, sum_exp(x, size, largest)};
    }
};

// The logarithm of the sum of exp(x) over all chunks.
inline float log_sum(const Sum* sums, int64_t chunks) {
    const auto sixteen = [=](float Sum::* number, int64_t first, float pad) {
        float numbers[LANES];
        std::fill_n(numbers, LANES, pad);
        for (int64_t c = 0; c < std::min<int64_t>(LANES, chunks - first); ++c) numbers[c] = sums[first + c].*number;
        return vector(numbers);
    };
    Vector largest = broadcast(-INFINITE), all = broadcast(0.0f);
    for (int64_t c = 0; c < chunks; c += LANES) largest = larger(sixteen(&Sum::largest, c, -INFINITE), largest);
    const float highest = largest_in(largest);
    for (int64_t c = 0; c < chunks; c += LANES) {
        const Vector share = exponential(sixteen(&Sum::largest, c, -INFINITE) - broadcast(highest));
        all = fused(sixteen(&Sum::total, c, 0.0f), share, all);
    }
    return highest + logarithm(sum_of(all));
}

}  // namespace
