// Residual sums, LayerNorm and RMSNorm.
//
//   norm(rows, size, residual, input, weight, bias, epsilon, post, out)

#pragma once

#include "vectors.hpp"

namespace {

// The sum of x (size,).
inline float sum_over(const float* x, int64_t size) {
    const auto plus = [](const Vector& a, const Vector& b) { return a + b; };
    return sum_of(fold(x, size, 0.0f, 0.0f, [](Vector& sum, const Vector& numbers) { sum = sum + numbers; }, plus));
}

// The sum of (x - mean)^2 over x (size,).
inline float sum_of_squares(const float* x, int64_t size, float mean) {
    const auto plus = [](const Vector& a, const Vector& b) { return a + b; };
    const auto step = [center = broadcast(mean)](Vector& sum, const Vector& numbers) {
        const Vector difference = numbers - center;
        sum = fused(difference, difference, sum);
    };
    return sum_of(fold(x, size, 0.0f, mean, step, plus));
}

inline void layer_norm(const float* x, int64_t size, const float* weight, const float* bias, float epsilon,
                       float* out) {
    const float mean = sum_over(x, size) / float(size);
    const float factor = 1.0f / std::sqrt(sum_of_squares(x, size, mean) / float(size) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = fused((x[i] - mean) * factor, weight[i], bias[i]);
}

inline void rms_norm(const float* x, int64_t size, const float* weight, float epsilon, float* out) {
    const float factor = 1.0f / std::sqrt(sum_of_squares(x, size, 0.0f) / float(size) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

// x (N, D) <- residual; post: residual <- Norm(residual + input), out <- residual; otherwise residual += input,
// out <- Norm(residual). input (N, D) may be null: nothing is added; weight null: no norm; bias null: RMSNorm instead
// of LayerNorm.
inline void norm(int64_t rows, int64_t size, float* residual, const float* input, const float* weight,
                 const float* bias, float epsilon, bool post, const RowsOut& out) {
    Aligned<float>& y = scratch.out;
    y.resize(size);
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = residual + n * size;
        if (input) add(x, input + n * size, size);
        float* const normed = post || !weight ? x : y.data();
        if (weight && bias) layer_norm(x, size, weight, bias, epsilon, normed);
        if (weight && !bias) rms_norm(x, size, weight, epsilon, normed);
        out.write(n, normed, size);
    }
}

}  // namespace
