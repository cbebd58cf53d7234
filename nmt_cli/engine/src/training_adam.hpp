// The norm of the gradient, and a step of Adam (Kingma and Ba 2015), over flat fp32 arrays.
//
// Both go once through memory, in parts of NUMBERS that threads share. Adam's formula is that of torch's fused one. It
// has no fused multiply-adds, so that the portable library, which has them in software only, is not slow.

#pragma once

#include "training.hpp"

namespace {

constexpr int64_t NUMBERS = 16384;  // of a part

// Call work(part, first, last) for each part of `count` numbers.
template <class Work>
void share_numbers(int64_t count, const Work& work) {
    share_training((count + NUMBERS - 1) / NUMBERS,
                   [&](int64_t part) { work(part, part * NUMBERS, std::min(count, (part + 1) * NUMBERS)); });
}

// The sum of squares of x (count,): number i goes into the partial sum i % 32. In double, none overflows.
inline double squares(const float* x, int64_t count) {
    constexpr int PARTIAL = 2 * LANES;
    double sums[PARTIAL] = {};
    int64_t i = 0;
    for (; i + PARTIAL <= count; i += PARTIAL) {
#pragma omp simd
        for (int j = 0; j < PARTIAL; ++j) sums[j] += double(x[i + j]) * x[i + j];
    }
    for (int j = 0; i < count; ++i, ++j) sums[j] += double(x[i]) * x[i];
    double all = 0.0;
    for (const double sum : sums) all += sum;
    return all;
}

inline void norm_of(int64_t count, const float* x, double* norm) {
    counted("numbers", count);
    if ((count && !x) || !norm) fail("x or its norm is NULL");
    std::vector<double> sums((count + NUMBERS - 1) / NUMBERS);
    share_numbers(count,
                  [&](int64_t part, int64_t first, int64_t last) { sums[part] = squares(x + first, last - first); });
    double all = 0.0;
    for (const double sum : sums) all += sum;
    *norm = std::sqrt(all);
}

inline void adam_step(const nmt_adam& form) {
    counted("parameters", form.count);
    if (form.step < 1) fail("the step is %lld, expected at least 1", (long long)form.step);
    if (form.count && !(form.params && form.first && form.second && form.grads))
        fail("the parameters, their gradients or their moments are NULL");
    const double correction1 = 1.0 - std::pow(form.beta1, double(form.step)),
                 correction2 = 1.0 - std::pow(form.beta2, double(form.step));
    const float scale = float(form.scale), rate = float(form.rate / correction1), epsilon = float(form.epsilon),
                fresh1 = float(1.0 - form.beta1), beta2 = float(form.beta2), fresh2 = float(1.0 - form.beta2),
                root = float(std::sqrt(correction2));
    share_numbers(form.count, [&](int64_t, int64_t begin, int64_t end) {
        float *const params = form.params, *const first = form.first, *const second = form.second;
        const float* const grads = form.grads;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            const float grad = grads[i] * scale;
            first[i] += fresh1 * (grad - first[i]);
            second[i] = beta2 * second[i] + fresh2 * grad * grad;
            params[i] -= rate * first[i] / (std::sqrt(second[i]) / root + epsilon);
        }
        if (form.rounded) store(params + begin, end - begin, static_cast<bf16*>(form.rounded) + begin);
    });
}

}  // namespace
