// Label-smoothed cross-entropy over rows of scores, which become its gradient in the same memory; and R-Drop's
// divergence.
//
// With scores z of a row, normalizer Z = log sum exp(z) and c = smoothing / (V - 1), see training/loss.py:
//
//   NLL       Z - z[target]
//   loss      Z - c * sum(z) - peak * z[target], peak = 1 - smoothing - c
//   gradient  softmax(z) - c - peak [target]
//
// R-Drop has two rows of a token, P1 and P2. Let D = log P1 - log P2, a the weight and c1 = KL(P1 || P2). The
// divergence a / 2 * (c1 + c2) has the gradient a / 2 * (P1 (D - c1 + 1) - P2) in the scores of the first row, and the
// same with 1 and 2 exchanged and -D in those of the second.
//
// A row is read twice and written once: the largest score and the sum; the exponentials, which a thread keeps in fp32;
// the gradient.

#pragma once

#include "softmax.hpp"
#include "training.hpp"

namespace {

constexpr int64_t TOKENS = 8;  // that a thread takes at once

// Call step(i, j, count) for each sixteen of `size` numbers; `count` of them are there, and j = i / 16 % 4.
template <class Step>
inline void by_sixty_four(int64_t size, const Step& step) {
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int j = 0; j < 4; ++j) step(i + j * LANES, j, int64_t(LANES));
    for (int j = 0; i < size; i += LANES, ++j) step(i, j, std::min<int64_t>(LANES, size - i));
}

// Four times sixteen partial sums.
struct FourSums {
    Vector parts[4] = {broadcast(0.0f), broadcast(0.0f), broadcast(0.0f), broadcast(0.0f)};

    float all() const { return sum_of((parts[0] + parts[1]) + (parts[2] + parts[3])); }
};

// A row of scores z (V,), in T, and exp(z - largest) (V,).
template <class T>
struct ScoreRow {
    T* z;
    float* exponentials;
    float largest, sum, total;  // of z; of z; of the exponentials

    ScoreRow(T* z, float* exponentials, int64_t size) : z(z), exponentials(exponentials) {
        const Vector lowest = broadcast(-INFINITE);
        Vector most[4] = {lowest, lowest, lowest, lowest};
        FourSums sums, totals;
        by_sixty_four(size, [&](int64_t i, int j, int64_t count) {
            most[j] = larger(vector(z + i, count, -INFINITE), most[j]);
            sums.parts[j] = sums.parts[j] + vector(z + i, count, 0.0f);
        });
        largest = largest_in(larger(larger(most[0], most[1]), larger(most[2], most[3])));
        sum = sums.all();
        const Vector highest = broadcast(largest);
        by_sixty_four(size, [&](int64_t i, int j, int64_t count) {
            const Vector power = exponential(vector(z + i, count, -INFINITE) - highest);
            put(power, exponentials + i, count);
            totals.parts[j] = totals.parts[j] + power;
        });
        total = totals.all();
    }

    double normalizer() const { return double(largest) + double(logarithm(total)); }
    float score(int64_t token) const { return number(z[token]); }
};

inline void check(const nmt_loss& form, const void* scores, const double* sums) {
    check_rows(form.dtype, form.rows, form.size);
    if (form.size < 2) fail("the vocabulary has %lld tokens, expected at least 2", (long long)form.size);
    if (!(form.smoothing >= 0.0 && form.smoothing < 1.0))
        fail("the smoothing is %g, expected at least 0 and less than 1", form.smoothing);
    if (!(form.divergence >= 0.0)) fail("the divergence's weight is %g, expected at least 0", form.divergence);
    if (form.divergence > 0.0 && form.rows % 2) fail("two passes have %lld rows, which is odd", (long long)form.rows);
    if (!sums) fail("sums is NULL");
    if (form.rows && !scores) fail("scores is NULL");
    if (form.rows && !form.targets) fail("targets is NULL");
    for (int64_t n = 0; n < form.rows; ++n)
        if (form.targets[n] < 0 || form.targets[n] >= form.size)
            fail("a target is %lld, expected 0 to %lld", (long long)form.targets[n], (long long)form.size - 1);
}

struct LossSums {
    double loss = 0.0, nll = 0.0;
};

template <class T>
class LossRows {
public:
    LossRows(const nmt_loss& form, T* scores)
        : form(form),
          scores(scores),
          uniform(form.smoothing / double(form.size - 1)),
          peak(1.0 - form.smoothing - uniform) {}

    // One token of one pass.
    void one(int64_t n, LossSums& sums) const {
        const ScoreRow<T> row(scores + n * form.size, memory(1), form.size);
        float* const grad = row.exponentials;
        const float share = 1.0f / row.total, each = float(uniform);
#pragma omp simd
        for (int64_t i = 0; i < form.size; ++i) grad[i] = grad[i] * share - each;
        finish(n, row, sums);
    }

    // One token of two passes.
    void two(int64_t n, LossSums& sums) const {
        const int64_t size = form.size, other = form.rows / 2 + n;
        float *const p1 = memory(2), *const p2 = p1 + size;
        const ScoreRow<T> first(scores + n * size, p1, size), second(scores + other * size, p2, size);
        const Vector apart = broadcast(float(first.normalizer() - second.normalizer()));
        const Vector share1 = broadcast(1.0f / first.total), share2 = broadcast(1.0f / second.total);
        const auto difference = [&](int64_t i, int64_t count) {  // D
            return (vector(first.z + i, count, 0.0f) - vector(second.z + i, count, 0.0f)) - apart;
        };
        FourSums kl1, kl2;
        by_sixty_four(size, [&](int64_t i, int j, int64_t count) {
            const Vector d = difference(i, count);
            kl1.parts[j] = fused(vector(p1 + i, count, 0.0f) * share1, d, kl1.parts[j]);
            kl2.parts[j] = fused(vector(p2 + i, count, 0.0f) * share2, d, kl2.parts[j]);
        });
        const float c1 = kl1.all(), c2 = -kl2.all(), half = float(form.divergence / 2);
        const Vector more1 = broadcast(1.0f - c1), more2 = broadcast(1.0f - c2), weight = broadcast(half);
        const Vector each = broadcast(float(uniform));
        by_sixty_four(size, [&](int64_t i, int, int64_t count) {
            const Vector d = difference(i, count), x = vector(p1 + i, count, 0.0f) * share1,
                         y = vector(p2 + i, count, 0.0f) * share2;
            put(fused(weight, x * (more1 + d) - y, x - each), p1 + i, count);
            put(fused(weight, y * (more2 - d) - x, y - each), p2 + i, count);
        });
        sums.loss += form.divergence / 2 * (double(c1) + double(c2));
        finish(n, first, sums);
        finish(other, second, sums);
    }

private:
    const nmt_loss& form;
    T* const scores;
    const double uniform, peak;  // c, and what the target has more

    float* memory(int64_t rows) const {
        thread_local Aligned<float> memory;
        if (int64_t(memory.size()) < rows * form.size) memory.resize(rows * form.size);
        return memory.data();
    }

    // Add the row's loss and NLL, and write the gradient, which `row` has but for the target's part.
    void finish(int64_t n, const ScoreRow<T>& row, LossSums& sums) const {
        const int64_t target = form.targets[n];
        const double normalizer = row.normalizer(), score = row.score(target);
        sums.nll += normalizer - score;
        sums.loss += normalizer - uniform * row.sum - peak * score;
        row.exponentials[target] -= float(peak);
        store(row.exponentials, form.size, row.z);
    }
};

inline void loss_rows(const nmt_loss& form, void* scores, double* sums) {
    check(form, scores, sums);
    const bool paired = form.divergence > 0.0;
    const int64_t tokens = paired ? form.rows / 2 : form.rows, parts = (tokens + TOKENS - 1) / TOKENS;
    std::vector<LossSums> each(parts);
    with_dtype(form.dtype, [&](auto* type) {
        const LossRows<std::remove_pointer_t<decltype(type)>> rows(form, static_cast<decltype(type)>(scores));
        share_training(parts, [&](int64_t part) {
            for (int64_t n = part * TOKENS; n < std::min(tokens, (part + 1) * TOKENS); ++n)
                paired ? rows.two(n, each[part]) : rows.one(n, each[part]);
        });
    });
    for (const LossSums& part : each) sums[0] += part.loss, sums[1] += part.nll;
}

}  // namespace
