// Residual sums with dropout, and LayerNorm or RMSNorm of them.
//
//   forward     sum = x + Dropout(y + bias), rounded, and out = Norm(sum)
//   backward    computes masks and normalised numbers again
//
// Each reads and writes a row in the memory once; between the loops it is in fp32 and in the caches. What a form does
// without is a row that changes nothing, and a gradient that nobody wants goes where nobody reads: so a loop over a row
// has one form.

#pragma once

#include "philox.hpp"
#include "training.hpp"

namespace {

constexpr int TOGETHER = 4;  // rows whose moments are computed together: a sum over a row has to be waited for

inline void round_to(float x, float& out) { out = x; }
inline void round_to(float x, bf16& out) { out = to_bf16(x); }

// Rows of one thread. Those in fp32 end with zeros, up to whole draws.
template <class T>
struct ResidualRows {
    Aligned<float> numbers;
    Aligned<T> others;
    float *bias, *weight, *shift, *factors, *normed[TOGETHER], *grad;
    const T* zeros;
    T* unread;

    // Those of a form, for a part of its rows.
    static ResidualRows& of(const nmt_residual& form) {
        static thread_local ResidualRows rows;
        const int64_t size = form.size, width = whole_draws(size);
        rows.numbers.assign((5 + TOGETHER) * width, 0.0f);
        rows.others.assign(2 * width, T{});
        float* next = rows.numbers.data();
        const auto take = [&](float*& row) {
            row = next;
            next += width;
        };
        take(rows.bias);
        take(rows.weight);
        take(rows.shift);
        take(rows.factors);
        take(rows.grad);
        for (float*& row : rows.normed) take(row);
        rows.zeros = rows.others.data();
        rows.unread = rows.others.data() + width;
        std::fill_n(rows.factors, width, 1.0f);
        if (form.bias) load(static_cast<const T*>(form.bias), size, rows.bias);
        if (form.weight) load(static_cast<const T*>(form.weight), size, rows.weight);
        if (form.shift) load(static_cast<const T*>(form.shift), size, rows.shift);
        return rows;
    }
};

// Row n of x, unless there is none.
template <class T>
inline const T* row_of(const void* x, int64_t n, int64_t size, const T* none) {
    return x ? static_cast<const T*>(x) + n * size : none;
}
template <class T>
inline T* row_of(void* x, int64_t n, int64_t size, T* none) {
    return x ? static_cast<T*>(x) + n * size : none;
}

template <class T>
void add_row(const T* x, const T* y, const float* bias, const float* factors, int64_t size, T* sum, float* numbers) {
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) round_to(number(x[i]) + (number(y[i]) + bias[i]) * factors[i], sum[i]);
    load(sum, size, numbers);
}

template <class T>
void norm_row(const float* x, float mean, float factor, const float* weight, const float* shift, int64_t size, T* out) {
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) round_to((x[i] - mean) * factor * weight[i] + shift[i], out[i]);
}

// Write the means of TOGETHER rows x (size,), or 0 of RMSNorm, and 1 / their deviations.
inline void measure(float* const (&x)[TOGETHER], int64_t size, bool centered, float epsilon,
                    float (&moments)[TOGETHER][2]) {
    const auto plus = [](const Vector& a, const Vector& b) { return a + b; };
    Vector sums[TOGETHER];
    const auto total = [&] { return sums_of(sums[0], sums[1], sums[2], sums[3]); };
    Four means{};
    if (centered) {
        for (int r = 0; r < TOGETHER; ++r)
            sums[r] = fold(x[r], size, 0.0f, 0.0f, [](Vector& sum, const Vector& y) { sum = sum + y; }, plus);
        means = total() / float(size);
    }
    for (int r = 0; r < TOGETHER; ++r) {
        const auto step = [mean = broadcast(means[r])](Vector& sum, const Vector& y) {
            const Vector difference = y - mean;
            sum = fused(difference, difference, sum);
        };
        sums[r] = fold(x[r], size, 0.0f, means[r], step, plus);
    }
    const Four variances = total() / float(size) + epsilon;
    for (int r = 0; r < TOGETHER; ++r) {
        moments[r][0] = means[r];
        moments[r][1] = 1.0f / std::sqrt(variances[r]);
    }
}

template <class T>
void residual_forward(const nmt_residual& form, int64_t first, int64_t last) {
    const ResidualRows<T>& rows = ResidualRows<T>::of(form);
    const int64_t size = form.size;
    for (int64_t n = first; n < last; n += TOGETHER) {
        const int64_t count = std::min<int64_t>(TOGETHER, last - n);
        for (int64_t r = 0; r < count; ++r) {
            const T* const x = row_of<T>(form.x, n + r, size, rows.zeros);
            if (form.dropout) dropout_factors(*form.dropout, n + r, size, rows.factors);
            if (form.y)
                add_row(x, row_of<T>(form.y, n + r, size, nullptr), rows.bias, rows.factors, size,
                        row_of<T>(form.sum, n + r, size, nullptr), rows.normed[r]);
            else
                load(x, size, rows.normed[r]);
        }
        if (!form.weight) continue;
        float moments[TOGETHER][2];
        measure(rows.normed, size, form.shift, float(form.epsilon), moments);
        for (int64_t r = 0; r < count; ++r) {
            std::copy_n(moments[r], 2, form.moments + 2 * (n + r));
            norm_row(rows.normed[r], moments[r][0], moments[r][1], rows.weight, rows.shift, size,
                     row_of<T>(form.out, n + r, size, nullptr));
        }
    }
}

// What a norm takes from a row's gradient in the normalised numbers: its mean, and that of its product with them.
struct Means {
    float grad, product;
};

// Normalise a row of sums again; `grad` becomes the gradient in the normalised numbers. Add to the gradients of weight
// and shift.
template <class T>
Means normed_row(const T* sum, const T* grad_out, const float* moments, const float* weight, int64_t size,
                 float* normed, float* grad, float* weight_grad, float* shift_grad) {
    const Vector mean = broadcast(moments[0]), factor = broadcast(moments[1]);
    Vector total = broadcast(0.0f), products = total;
    const auto step = [&](int64_t i, int64_t count, const Vector& x, const Vector& g) {
        const Vector y = (x - mean) * factor, given = g * vector(weight + i);
        put(y, normed + i);
        put(given, grad + i);
        put(fused(g, y, vector(weight_grad + i, count, 0.0f)), weight_grad + i, count);
        put(g + vector(shift_grad + i, count, 0.0f), shift_grad + i, count);
        total = total + given;
        products = fused(given, y, products);
    };
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) step(i, LANES, vector(sum + i), vector(grad_out + i));
    if (i < size) step(i, size - i, vector(sum + i, size - i, moments[0]), vector(grad_out + i, size - i, 0.0f));
    const Four sums = sums_of(total, products, total, products);
    return {sums[0] / float(size), sums[1] / float(size)};
}

template <bool FOR_Y, class T>
void sum_grad_row(const float* grad, const float* normed, const Means& means, float factor, const T* grad_sum,
                  const float* factors, int64_t size, T* grad_x, T* grad_y, float* bias_grad) {
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
        const float all = (grad[i] - means.grad - normed[i] * means.product) * factor + number(grad_sum[i]);
        const float kept = all * factors[i];
        round_to(all, grad_x[i]);
        if (FOR_Y) round_to(kept, grad_y[i]);
        bias_grad[i] += kept;
    }
}

struct ResidualGrads {
    const void *out, *sum;
    void *x, *y;
    PartSums bias, weight, shift;
};

template <class T>
void residual_backward(const nmt_residual& form, ResidualGrads& grads, int64_t part, int64_t first, int64_t last) {
    const ResidualRows<T>& rows = ResidualRows<T>::of(form);
    const int64_t size = form.size;
    float* const normed = rows.normed[0];
    for (int64_t n = first; n < last; ++n) {
        Means means{};
        float factor = 0.0f;
        if (grads.out) {
            const float* const moments = form.moments + 2 * n;
            means =
                normed_row(row_of<const T>(form.sum, n, size, nullptr), row_of<T>(grads.out, n, size, nullptr), moments,
                           rows.weight, size, normed, rows.grad, grads.weight.of(part), grads.shift.of(part));
            if (!form.shift) means.grad = 0.0f;
            factor = moments[1];
        }
        if (form.dropout) dropout_factors(*form.dropout, n, size, rows.factors);
        (grads.y ? sum_grad_row<true, T>
                 : sum_grad_row<false, T>)(rows.grad, normed, means, factor, row_of<T>(grads.sum, n, size, rows.zeros),
                                           rows.factors, size, row_of<T>(grads.x, n, size, rows.unread),
                                           row_of<T>(grads.y, n, size, rows.unread), grads.bias.of(part));
    }
}

inline void need(bool is, const char* what) {
    if (!is) fail("a residual sum has no %s", what);
}

inline void check(const nmt_residual& form) {
    check_rows(form.dtype, form.rows, form.size);
    check(form.dropout);
    need(form.weight || !form.shift, "weight");
    need(form.moments || !form.weight, "moments");
    if (!(form.epsilon >= 0.0 && form.epsilon <= 1.0)) fail("epsilon is %g, expected 0 to 1", form.epsilon);
}

inline void residual_forward(const nmt_residual& form) {
    check(form);
    need(form.y || (form.x && !form.bias && !form.dropout), "y");
    need(form.sum || !form.y, "sum");
    need(form.out || !form.weight, "out");
    with_dtype(form.dtype, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_rows(form.rows, [&](int64_t, int64_t first, int64_t last) { residual_forward<T>(form, first, last); });
    });
}

inline void residual_backward(const nmt_residual& form, const void* grad_out, const void* grad_sum, void* grad_x,
                              void* grad_y, float* grad_bias, float* grad_weight, float* grad_shift) {
    check(form);
    need(form.weight || !(grad_out || grad_weight || grad_shift), "norm");
    need(form.shift || !grad_shift, "shift");
    need(form.sum || !grad_out, "sum");
    const int64_t rows = form.rows, size = form.size;
    ResidualGrads grads{grad_out, grad_sum, grad_x, grad_y, {rows, size}, {rows, size}, {rows, size}};
    with_dtype(form.dtype, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_rows(rows, [&](int64_t part, int64_t first, int64_t last) {
            residual_backward<T>(form, grads, part, first, last);
        });
    });
    if (grad_bias) grads.bias.write(grad_bias);
    if (grad_weight) grads.weight.write(grad_weight);
    if (grad_shift) grads.shift.write(grad_shift);
}

}  // namespace
