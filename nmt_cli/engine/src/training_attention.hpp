// Attention over packed rows (equation 1) and its gradients: sentence by sentence and head by head.
//
//   q  k  v ──read: + bias, rotated──▶ fp32 in the caches
//   forward    scores = q k' / sqrt(K)    weights = exp(scores - largest)     out = weights v / total
//   backward   scores = q k' / sqrt(K)    P = exp(scores - normalizer)        G = grad_out v'
//              S = P * (G - sum of P * G over the row) / sqrt(K)
//              grad_q = S k               grad_k = S' q                       grad_v = P' grad_out
//
// x' is the transpose of x. A block of queries meets all keys of its sentence, or with `causal` those up to the block's
// end: its scores stay in the caches and never become rows. The last block comes first: it meets all keys. All products
// are `multiply`. Dropout gives weights factors: of a row's weight in `out` and `grad_v`, and of its G.

#pragma once

#include "philox.hpp"
#include "small_products.hpp"
#include "training.hpp"

namespace {

constexpr int64_t QUERIES = 32, CAUSAL_QUERIES = 16;  // of a block
constexpr int64_t MOST_HEADS = 1 << 16, WIDEST_HEAD = 512;
constexpr int64_t HEAD_BLOCKS = 1 << 13, MOST_KEYS = 8 * HEAD_BLOCKS;  // of dropout: head h has blocks of its own

// Added to scores: sixteen times 0, and sixteen times what hides a key.
constexpr float HIDE = -INFINITE;
alignas(LINE) constexpr float HIDDEN_KEYS[2 * LANES] = {
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
    HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE, HIDE};

// One head of one sentence, with rows in T.
template <class T>
struct AttentionHead {
    const nmt_attention& form;
    const int64_t h, b;
    const int64_t start = form.starts[b], queries = form.starts[b + 1] - start;
    const int64_t key_start = form.key_starts[b], keys = form.key_starts[b + 1] - key_start;
    const Vector scale = broadcast(1.0f / std::sqrt(float(form.key)));

    // Return rows of x, `size` numbers of this head each, in a buffer, plus the bias, unless it is null.
    Block read(int number, const void* x, int64_t first, int64_t rows, int64_t stride, int64_t size,
               const void* bias) const {
        const Block out = block_of(number, rows, size);
        for (int64_t i = 0; i < size; i += LANES) {
            const T* in = static_cast<const T*>(x) + first * stride + h * size + i;
            float* to = out.numbers + i;
            const int64_t left = size - i;
            const Vector more = bias ? vector(static_cast<const T*>(bias) + h * size + i, left, 0.0f) : broadcast(0.0f);
            for (int64_t n = 0; n < rows; ++n, in += stride, to += out.width) {
                __builtin_prefetch(in + rows * stride);  // the next sentence's
                put(vector(in, left, 0.0f) + more, to);
            }
            for (int64_t n = rows; n % 4 != 0; ++n, to += out.width) put(broadcast(0.0f), to);
        }
        return out;
    }

    // Write rows of x, and add them to this head's part of `sums`, unless it is null.
    void write(const Block& x, int64_t first, int64_t rows, int64_t stride, int64_t size, void* out,
               float* sums) const {
        T* to = static_cast<T*>(out) + first * stride + h * size;
        for (int64_t n = 0; n < rows; ++n, to += stride) store(x.row(n), size, to);
        for (int64_t i = 0; sums && i < size; i += LANES) {
            float* const own = sums + h * size + i;
            Vector sum = vector(own, size - i, 0.0f);
            for (int64_t n = 0; n < rows; ++n) sum = sum + vector(x.row(n) + i);
            put(sum, own, size - i);
        }
    }

    // Rotate queries or keys, whose positions are from `first` on, or with -1 back. Return them.
    const Block& rotate(const Block& x, int64_t first, int64_t rows, float direction = 1.0f) const {
        for (int64_t n = 0; form.rotation && n < rows; ++n) {
            const float* const turns = form.rotation + (first + n) * form.key;
            float* const y = x.row(n);
#pragma omp simd
            for (int64_t i = 0; i < form.key; i += 2) {
                const float even = y[i], odd = y[i + 1], cosine = turns[i], sine = turns[i + 1] * direction;
                y[i] = fused(even, cosine, -(odd * sine));
                y[i + 1] = fused(odd, cosine, even * sine);
            }
        }
        return x;
    }

    Block read_queries(int64_t first, int64_t count) const {
        return rotate(read(0, form.q, start + first, count, form.q_stride, form.key, form.q_bias), first, count);
    }
    Block read_keys() const {
        return rotate(read(1, form.k, key_start, keys, form.k_stride, form.key, form.k_bias), 0, keys);
    }
    Block read_values() const { return read(2, form.v, key_start, keys, form.v_stride, form.value, form.v_bias); }

    // Call work(first, count, limit) for each block of queries, the last one first; it meets `limit` keys.
    template <class Work>
    void each_block(const Work& work) const {
        const int64_t step = form.causal ? CAUSAL_QUERIES : QUERIES;
        for (int64_t end = queries, first; end > 0; end = first) {
            first = (end - 1) / step * step;
            work(first, end - first, form.causal ? end : keys);
        }
    }

    // Sixteen scores of a query that meets `met` keys, from key i on; those of other keys are -infinity.
    Vector scores_at(const float* products, int64_t i, int64_t met) const {
        return fused(vector(products + i), scale, vector(HIDDEN_KEYS + LANES - std::min<int64_t>(LANES, met - i)));
    }
    int64_t met_by(int64_t query) const { return form.causal ? query + 1 : keys; }

    // The factors of the weights of a block's queries; without dropout null.
    Block factors(int64_t first, int64_t count, int64_t limit) const {
        if (!form.dropout) return {nullptr, 0};
        const Block all = block_of(3, count, whole_draws(limit));
        for (int64_t n = 0; n < count; ++n)
            dropout_factors(*form.dropout, start + first + n, limit, all.row(n), uint32_t(h * HEAD_BLOCKS));
        return all;
    }

    float& normalizer(int64_t query) const { return form.normalizers[(start + query) * form.heads + h]; }

    // The sum over each of the Vectors; there is room for up to three more.
    static void sums_over(Vector* x, int64_t count, float* out) {
        for (int64_t n = count; n % 4 != 0; ++n) x[n] = broadcast(0.0f);
        for (int64_t n = 0; n < count; n += 4) {
            const Four sums = sums_of(x[n], x[n + 1], x[n + 2], x[n + 3]);
            std::memcpy(out + n, &sums, sizeof sums);
        }
    }

    void forward() const {
        const Block across_keys = transposed(4, keys, form.key, read_keys()), v = read_values();
        each_block([&](int64_t first, int64_t count, int64_t limit) {
            const Block weights = block_of(5, count, keys), out = block_of(6, count, form.value);
            multiply(count, limit, form.key, read_queries(first, count).left(), across_keys, weights);
            float normalizers[QUERIES], totals[QUERIES];
            exponentials(first, count, limit, weights, normalizers, totals);
            multiply(count, form.value, limit, weights.left(), v, out);
            for (int64_t n = 0; n < count; ++n) {
                normalizer(first + n) = normalizers[n];
                const Vector inverse = broadcast(1.0f / totals[n]);
                for (int64_t i = 0; i < out.width; i += LANES) put(vector(out.row(n) + i) * inverse, out.row(n) + i);
            }
            write(out, start + first, count, form.heads * form.value, form.value, form.out, nullptr);
        });
    }

    // Replace products by the exponentials of scores less the largest, times factors. Write the normalizers, and the
    // sums without factors.
    void exponentials(int64_t first, int64_t count, int64_t limit, const Block& weights, float* normalizers,
                      float* totals) const {
        Vector sums[QUERIES];
        const Block kept = factors(first, count, limit);
        for (int64_t n = 0; n < count; ++n) {
            float* const row = weights.row(n);
            const int64_t met = met_by(first + n);
            Vector most = broadcast(-INFINITE), sum = broadcast(0.0f);
            for (int64_t i = 0; i < limit; i += LANES) most = larger(scores_at(row, i, met), most);
            normalizers[n] = largest_in(most);
            const Vector largest = broadcast(normalizers[n]);
            for (int64_t i = 0; i < limit; i += LANES) {
                const Vector e = exponential(scores_at(row, i, met) - largest);
                sum = sum + e;
                put(kept.numbers ? e * vector(kept.row(n) + i) : e, row + i);
            }
            sums[n] = sum;
        }
        sums_over(sums, count, totals);
#pragma omp simd
        for (int64_t n = 0; n < count; ++n) normalizers[n] += logarithm(totals[n]);
    }

    // Gradients of all heads' biases are added to sums (2 * H * K + H * V).
    void backward(const void* grad_out, void* grad_q, void* grad_k, void* grad_v, float* sums) const {
        const Block k = read_keys(), across_keys = transposed(4, keys, form.key, k);
        const Block across_values = transposed(7, keys, form.value, read_values());
        const Block dk = block_of(8, keys, form.key), dv = block_of(2, keys, form.value);
        each_block([&](int64_t first, int64_t count, int64_t limit) {
            const bool more = first + count < queries;
            const Block weights = block_of(5, count, keys), grads = block_of(6, count, keys);
            const Block q = read_queries(first, count);
            const Block own = read(9, grad_out, start + first, count, form.heads * form.value, form.value, nullptr);
            multiply(count, limit, form.key, q.left(), across_keys, weights);
            multiply(count, limit, form.value, own.left(), across_values, grads);
            score_gradients(first, count, limit, weights, grads);
            multiply(limit, form.key, count, grads.transposed(), q, dk, more);
            multiply(limit, form.value, count, weights.transposed(), own, dv, more);
            multiply(count, form.key, limit, grads.left(), k, q);
            rotate(q, first, count, -1.0f);
            write(q, start + first, count, form.q_stride, form.key, grad_q, sums);
        });
        rotate(dk, 0, keys, -1.0f);
        write(dk, key_start, keys, form.grad_stride, form.key, grad_k, sums + form.heads * form.key);
        write(dv, key_start, keys, form.grad_stride, form.value, grad_v, sums + 2 * form.heads * form.key);
    }

    // Replace products by weights, times factors, and gradients of these by gradients of products.
    void score_gradients(int64_t first, int64_t count, int64_t limit, const Block& weights, const Block& grads) const {
        Vector sums[QUERIES];
        float means[QUERIES];
        const Block kept = factors(first, count, limit);
        for (int64_t n = 0; n < count; ++n) {
            float *const row = weights.row(n), *const grad = grads.row(n);
            const int64_t met = met_by(first + n);
            const Vector largest = broadcast(normalizer(first + n));
            Vector sum = broadcast(0.0f);
            for (int64_t i = 0; i < limit; i += LANES) {
                const Vector weight = exponential(scores_at(row, i, met) - largest);
                put(weight, row + i);
                if (kept.numbers) put(vector(grad + i) * vector(kept.row(n) + i), grad + i);
                sum = fused(weight, vector(grad + i), sum);
            }
            sums[n] = sum;
        }
        sums_over(sums, count, means);
        for (int64_t n = 0; n < count; ++n) {
            float *const row = weights.row(n), *const grad = grads.row(n);
            const Vector mean = broadcast(means[n]);
            for (int64_t i = 0; i < limit; i += LANES) {
                const Vector weight = vector(row + i);
                put(weight * scale * (vector(grad + i) - mean), grad + i);
                if (kept.numbers) put(weight * vector(kept.row(n) + i), row + i);
            }
        }
    }
};

// The first sentence of each group, and B. Groups have at least PART rows, of queries and keys in the middle.
inline std::vector<int64_t> groups_of(const nmt_attention& form) {
    std::vector<int64_t> firsts{0};
    const auto rows = [&](int64_t b) { return form.starts[b] + form.key_starts[b]; };
    for (int64_t b = 1; b < form.sentences; ++b)
        if (rows(b) - rows(firsts.back()) >= 2 * PART) firsts.push_back(b);
    if (form.sentences) firsts.push_back(form.sentences);
    return firsts;
}

// Call work(head, group) for each head of each sentence, group by group and head by head, which are parts.
template <class T, class Work>
void share_heads(const nmt_attention& form, const std::vector<int64_t>& groups, const Work& work) {
    share_training(int64_t(groups.size() - 1) * form.heads, [&](int64_t part) {
        const int64_t group = part / form.heads, h = part % form.heads;
        for (int64_t b = groups[group]; b < groups[group + 1]; ++b) work(AttentionHead<T>{form, h, b}, group);
    });
}

// Rows (N, stride) from `first` on: the first `size` numbers become 0.
template <class T>
void clear_rows(void* x, int64_t first, int64_t rows, int64_t stride, int64_t size) {
    for (int64_t n = first; n < rows; ++n) std::memset(static_cast<T*>(x) + n * stride, 0, size * sizeof(T));
}

inline void check(const nmt_attention& form) {
    const auto within = [](const char* what, int64_t number, int64_t most) {
        if (number < 1 || number > most)
            fail("attention has %s %lld, expected 1 to %lld", what, (long long)number, (long long)most);
    };
    within("the number of heads", form.heads, MOST_HEADS);
    within("the key size", form.key, WIDEST_HEAD);
    within("the value size", form.value, WIDEST_HEAD);
    const int64_t keys_width = form.heads * form.key, width = form.heads * form.value;
    check_rows(form.dtype, form.rows, form.q_stride);
    for (const int64_t stride : {form.k_stride, form.v_stride, form.grad_stride})
        check_rows(form.dtype, form.key_rows, stride);
    counted("sentences", form.sentences);
    if (std::min({form.q_stride, form.k_stride, form.grad_stride}) < keys_width ||
        std::min(form.v_stride, form.grad_stride) < width)
        fail("attention's rows are less than its heads apart");
    const std::pair<const char*, const void*> needed[] = {{"starts", form.starts}, {"key_starts", form.key_starts},
                                                          {"q", form.q},           {"k", form.k},
                                                          {"v", form.v},           {"normalizers", form.normalizers}};
    for (const auto& [name, given] : needed)
        if (!given) fail("attention needs %s", name);
    if (form.starts[0] || form.key_starts[0] || form.starts[form.sentences] > form.rows ||
        form.key_starts[form.sentences] > form.key_rows)
        fail("attention's sentences begin before or after row 0, or end after the last row");
    if (form.rotation && form.key % 2) fail("attention rotates pairs of numbers, but K is %lld", (long long)form.key);
    check(form.dropout);
    for (int64_t b = 0; b < form.sentences; ++b) {
        const auto length = [b](const int64_t* starts) {  // 0 if the next sentence does not begin later
            return std::max(starts[b + 1], starts[b]) - starts[b];
        };
        const int64_t queries = length(form.starts), keys = length(form.key_starts);
        if (queries < 1 || keys < 1 || (form.causal && queries != keys))
            fail("sentence %lld has %lld queries and %lld keys", (long long)b, (long long)queries, (long long)keys);
        const int64_t longest = std::max(queries, keys);
        const int64_t most = std::min(form.rotation ? form.positions : longest, form.dropout ? MOST_KEYS : longest);
        if (longest > most)
            fail("sentence %lld has %lld positions, expected up to %lld", (long long)b, (long long)longest,
                 (long long)most);
    }
}

inline void attention_forward(const nmt_attention& form) {
    check(form);
    if (!form.out) fail("attention needs out");
    with_dtype(form.dtype, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_heads<T>(form, groups_of(form), [](const AttentionHead<T>& head, int64_t) { head.forward(); });
        const int64_t width = form.heads * form.value, end = form.starts[form.sentences];
        clear_rows<T>(form.out, end, form.rows, width, width);
        clear_rows<float>(form.normalizers, end, form.rows, form.heads, form.heads);
    });
}

inline void attention_backward(const nmt_attention& form, const void* grad_out, void* grad_q, void* grad_k,
                               void* grad_v, float* grad_q_bias, float* grad_k_bias, float* grad_v_bias) {
    check(form);
    if (!grad_out || !grad_q || !grad_k || !grad_v) fail("attention needs grad_out, grad_q, grad_k and grad_v");
    const int64_t key_width = form.heads * form.key, width = form.heads * form.value;
    const std::vector<int64_t> groups = groups_of(form);
    PartSums sums(int64_t(groups.size() - 1) * PART, 2 * key_width + width);
    with_dtype(form.dtype, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        share_heads<T>(form, groups, [&](const AttentionHead<T>& head, int64_t group) {
            head.backward(grad_out, grad_q, grad_k, grad_v, sums.of(group));
        });
        const int64_t end = form.starts[form.sentences], key_end = form.key_starts[form.sentences];
        clear_rows<T>(grad_q, end, form.rows, form.q_stride, key_width);
        clear_rows<T>(grad_k, key_end, form.key_rows, form.grad_stride, key_width);
        clear_rows<T>(grad_v, key_end, form.key_rows, form.grad_stride, width);
    });
    Aligned<float> all(2 * key_width + width);
    sums.write(all.data());
    if (grad_q_bias) std::copy_n(all.data(), key_width, grad_q_bias);
    if (grad_k_bias) std::copy_n(all.data() + key_width, key_width, grad_k_bias);
    if (grad_v_bias) std::copy_n(all.data() + 2 * key_width, width, grad_v_bias);
}

}  // namespace
