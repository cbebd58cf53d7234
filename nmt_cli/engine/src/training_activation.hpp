// Dropout(f(x + bias)) of the feed-forward network, and its gradient.
//
//   row of x ──▶ + bias ──▶ f ──▶ · factors of dropout ──▶ row of out          sixteen units at a time, in registers
//   row of grad_out ──▶ · factors ──▶ · f'(x + bias) ──▶ row of grad_x ──▶ + grad_bias
//
// The backward pass computes x + bias, f and the factors again: nothing is kept but x. ReLU keeps its output instead,
// which the next product keeps anyway: where it is above 0, the unit was neither negative nor dropped. A gate's row has
// the gate before what it lets through, see model/activations.py.

#pragma once

#include "activations.hpp"
#include "philox.hpp"
#include "training.hpp"

namespace {

// f has `of`, its value, and `back`, which multiplies the gradient by its derivative; both for sixteen units.
struct ReluOfRows {
    static constexpr int INPUTS = 1;
    static Vector of(const Vector& x) { return larger(broadcast(0.0f), x); }  // of NaN, NaN
    static Vector back(const Vector& x, const Vector& grad) {
        return zero_below(std::numeric_limits<float>::min(), x, grad);
    }
};

struct GeluOfRows {
    static constexpr int INPUTS = 1;
    static Vector of(const Vector& x) { return x * normal(x); }
    static Vector back(const Vector& x, const Vector& grad) {
        const Vector z = minus_abs(x) * broadcast(0.70710678f);
        const Vector density = broadcast(0.39894228f) * exponential(minus_abs(z * z));
        return grad * fused(x, density, normal(x));
    }
};

struct SiluOfRows {
    static constexpr int INPUTS = 1;
    static Vector of(const Vector& x) { return x * sigmoid(x); }
    static Vector back(const Vector& x, const Vector& grad) {
        const Vector share = sigmoid(x);
        return grad * share * fused(x, broadcast(1.0f) - share, broadcast(1.0f));
    }
};

struct SwigluOfRows {
    static constexpr int INPUTS = 2;
};

inline int64_t columns_of(const nmt_activation& form) { return form.size * (form.activation == NMT_SWIGLU ? 2 : 1); }

inline void check(const nmt_activation& form) {
    check_rows(form.dtype, form.rows, form.size);
    if (form.activation < NMT_RELU || form.activation > NMT_SWIGLU)
        fail("the activation is %lld, expected %d to %d", (long long)form.activation, NMT_RELU, NMT_SWIGLU);
    if (form.rows && !form.x) fail("x is NULL");
    if (form.rows) check(form.dropout);
}

// What a thread needs for a row, in its own memory.
template <class T>
class ActivationRow {
public:
    // `outputs`: the rows are those of ReLU's output.
    ActivationRow(const nmt_activation& form, bool outputs)
        : form(form), columns(columns_of(form)), draws(form.dropout && !outputs) {
        thread_local Aligned<float> memory;
        const size_t numbers = size_t(2 * columns + whole_draws(form.size));
        if (memory.size() < numbers) memory.resize(numbers);
        bias = memory.data(), result = bias + columns, factors = result + columns;
        if (form.bias && !outputs)
            load(static_cast<const T*>(form.bias), columns, bias);
        else
            std::fill_n(bias, columns, 0.0f);
        const float kept = form.dropout ? 65536.0f / float(65536 - form.dropout->dropped) : 1.0f;
        if (!draws) std::fill_n(factors, form.size, kept);
    }

    void begin(int64_t n) {
        x = static_cast<const T*>(form.x) + n * columns;
        if (draws) dropout_factors(*form.dropout, n, form.size, factors);
    }

    // Sixteen inputs x + bias from number i on, of which `count` are wanted.
    Vector input(int64_t i, int64_t count) const { return vector(x + i, count, 0.0f) + vector(bias + i, count, 0.0f); }
    Vector factor(int64_t i, int64_t count) const { return vector(factors + i, count, 0.0f); }

    float* result;  // (columns,)

private:
    const nmt_activation& form;
    const int64_t columns;
    const bool draws;
    const T* x = nullptr;
    float *bias, *factors;
};

// Call step(i, count) for each sixteen of `size` numbers; the last may be fewer.
template <class Step>
inline void by_sixteen(int64_t size, const Step& step) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) step(i, int64_t(LANES));
    if (i < size) step(i, size - i);
}

// out (size,) <- f of a row.
template <class Function, class T>
inline void activate_row(const ActivationRow<T>& row, int64_t size) {
    by_sixteen(size, [&](int64_t i, int64_t count) {
        Vector y;
        if constexpr (Function::INPUTS == 2)
            y = SiluOfRows::of(row.input(i, count)) * row.input(size + i, count);
        else
            y = Function::of(row.input(i, count));
        put(y * row.factor(i, count), row.result + i, count);
    });
}

// The gradient in a row of inputs, from that in the row of outputs.
template <class Function, class T>
inline void activate_row_back(const ActivationRow<T>& row, int64_t size, const T* grad_out) {
    by_sixteen(size, [&](int64_t i, int64_t count) {
        const Vector grad = vector(grad_out + i, count, 0.0f) * row.factor(i, count), x = row.input(i, count);
        if constexpr (Function::INPUTS == 2) {
            put(SiluOfRows::back(x, grad * row.input(size + i, count)), row.result + i, count);
            put(grad * SiluOfRows::of(x), row.result + size + i, count);
        } else {
            put(Function::back(x, grad), row.result + i, count);
        }
    });
}

// Call work(f, a null pointer of the rows' type).
template <class Work>
void with_activation(const nmt_activation& form, const Work& work) {
    with_dtype(form.dtype, [&](auto* type) {
        switch (form.activation) {
            case NMT_RELU:
                return work(ReluOfRows(), type);
            case NMT_GELU:
                return work(GeluOfRows(), type);
            case NMT_SILU:
                return work(SiluOfRows(), type);
            default:
                return work(SwigluOfRows(), type);
        }
    });
}

inline void activation_forward(const nmt_activation& form, void* out) {
    check(form);
    if (form.rows && !out) fail("out is NULL");
    with_activation(form, [&](auto function, auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_rows(form.rows, [&](int64_t, int64_t first, int64_t last) {
            ActivationRow<T> row(form, false);
            for (int64_t n = first; n < last; ++n) {
                row.begin(n);
                activate_row<decltype(function)>(row, form.size);
                store(row.result, form.size, static_cast<T*>(out) + n * form.size);
            }
        });
    });
}

inline void activation_backward(const nmt_activation& form, const void* grad_out, void* grad_x, float* grad_bias) {
    check(form);
    if (form.rows && !grad_out) fail("grad_out is NULL");
    if (form.rows && !grad_x) fail("grad_x is NULL");
    const int64_t columns = columns_of(form);
    PartSums bias(grad_bias ? form.rows : 0, columns);
    with_activation(form, [&](auto function, auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_rows(form.rows, [&](int64_t part, int64_t first, int64_t last) {
            ActivationRow<T> row(form, form.activation == NMT_RELU);
            for (int64_t n = first; n < last; ++n) {
                row.begin(n);
                activate_row_back<decltype(function)>(row, form.size, static_cast<const T*>(grad_out) + n * form.size);
                store(row.result, columns, static_cast<T*>(grad_x) + n * columns);
                if (grad_bias) add(bias.of(part), row.result, columns);
            }
        });
    });
    if (grad_bias) bias.write(grad_bias);
}

}  // namespace
