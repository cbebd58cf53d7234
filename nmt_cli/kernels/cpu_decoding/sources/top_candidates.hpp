// Log-softmax and the best candidates of each sentence, from logits or straight from what the output map reads.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "matmul.hpp"

// The sum of exp(x[v] - largest). Not inlined: everyone gets the same last bit.
[[gnu::noinline]] static float sum_exp(const float* x, int64_t size, float largest) {
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
    return sum;
}

inline float largest_of(const float* x, int64_t size) {
    float one = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : one)
    for (int64_t v = 0; v < size; ++v) one = x[v] > one ? x[v] : one;
    return one;
}

namespace {

constexpr int64_t CHUNK = 256;  // tokens that are ranked together: their logits stay in the first cache

// Of a chunk of logits: the largest, and the sum of exp(x - largest).
struct Sum {
    float largest, total;

    static Sum of(const float* x, int64_t size) {
        const float largest = largest_of(x, size);
        return {largest, sum_exp(x, size, largest)};
    }
};

// The logarithm of the sum of exp(x) over all chunks, in order.
float log_sum(const Sum* sums, int64_t chunks) {
    float largest = -std::numeric_limits<float>::infinity(), total = 0.0f;
    for (int64_t c = 0; c < chunks; ++c) largest = std::max(largest, sums[c].largest);
    for (int64_t c = 0; c < chunks; ++c) total += sums[c].total * exponential(sums[c].largest - largest);
    return largest + std::log(total);
}

}  // namespace

extern "C" {

// Replace logits (N, V) by their log-softmax.
void nmt_log_softmax(int64_t rows, int64_t size, float* logits) {
    std::vector<Sum> sums;
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = logits + n * size;
        sums.clear();
        for (int64_t first = 0; first < size; first += CHUNK) sums.push_back(Sum::of(x + first, std::min(CHUNK, size - first)));
        const float total = log_sum(sums.data(), int64_t(sums.size()));
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

// The largest logits of a hypothesis and their tokens, largest first, of equal ones the older first.
struct Largest {
    float* logits;  // (space,)
    int32_t* tokens;
    int64_t count;

    // Space that `count` of them need: whole registers, if they fit into one.
    static int64_t space(int64_t count) { return count <= LANES ? LANES : count; }

    // Insert those of x (size,) that are among them; the first one is that of token `first`.
    void insert(const float* x, int64_t size, int32_t first) const {
#ifdef __AVX512F__
        if (count <= LANES) return insert_into_register(x, size, first);
#endif
        for (int64_t v = 0; v < size; ++v) {
            if (!(x[v] > logits[count - 1])) continue;
            int64_t i = count - 1;
            for (; i > 0 && x[v] > logits[i - 1]; --i) {
                logits[i] = logits[i - 1];
                tokens[i] = tokens[i - 1];
            }
            logits[i] = x[v];
            tokens[i] = first + int32_t(v);
        }
    }

private:
#ifdef __AVX512F__
    // Without branches: those behind the new one move up by a lane. Lanes from `count` on hold what was pushed out.
    void insert_into_register(const float* x, int64_t size, int32_t first) const {
        const __m512i last = _mm512_set1_epi32(int(count) - 1), before = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
        __m512 found = _mm512_loadu_ps(logits), least = _mm512_permutexvar_ps(last, found);
        __m512i names = _mm512_loadu_si512(tokens);
        for (int64_t v = 0; v < size; v += LANES) {
            const __mmask16 here = size - v < LANES ? __mmask16((1u << (size - v)) - 1) : __mmask16(0xffff);
            for (uint32_t larger = _mm512_mask_cmp_ps_mask(here, _mm512_maskz_loadu_ps(here, x + v), least, _CMP_GT_OQ); larger; larger &= larger - 1) {
                const int64_t one = v + __builtin_ctz(larger);
                const __m512 value = _mm512_set1_ps(x[one]);
                const __mmask16 stay = _mm512_cmp_ps_mask(found, value, _CMP_GE_OQ), place = __mmask16(stay + 1);
                found = _mm512_mask_mov_ps(_mm512_mask_permutexvar_ps(found, __mmask16(~stay), before, found), place, value);
                names = _mm512_mask_mov_epi32(_mm512_mask_permutexvar_epi32(names, __mmask16(~stay), before, names), place, _mm512_set1_epi32(first + int32_t(one)));
            }
            least = _mm512_permutexvar_ps(last, found);
        }
        _mm512_storeu_ps(logits, found);
        _mm512_storeu_si512(tokens, names);
    }
#endif
};

// What may follow each hypothesis: its logits x (V,) come in chunks, in any order, from several threads.
class Ranking {
public:
    // Each of `parts` threads ranks whole chunks.
    Ranking(const Request& request, int64_t rows, int parts) : to(request), rows(rows), parts(parts), chunks((request.size + CHUNK - 1) / CHUNK), space(Largest::space(request.count)) {
        sums.resize(to.normalized ? 0 : rows * chunks);
        logits.assign(parts * rows * space, NOTHING);
        tokens.resize(parts * rows * space);
        not_a_number.assign(rows, 0);
    }

    int64_t chunk_count() const { return chunks; }

    // Rank the tokens of chunk c for hypothesis n, whose logits are x. They may be written to.
    void take(int part, int64_t n, int64_t c, float* x) {
        const int64_t first = c * CHUNK, size = std::min(CHUNK, to.size - first);
        const Sum sum = to.normalized ? Sum{largest_of(x, size), 0.0f} : Sum::of(x, size);
        if (!to.normalized)
            sums[n * chunks + c] = sum;
        else if (c == 0)
            not_a_number[n] = x[0] != x[0];
        if (to.only && to.only[n] >= 0) {
            if (to.only[n] / CHUNK == c) logits[n * space] = x[to.only[n] - first];
            return;
        }
        const Largest largest = of(part, n);
        if (!(sum.largest > largest.logits[to.count - 1])) return;
        for (int64_t i = 0; i < (to.banned ? to.banned[n] : to.banned_count); ++i)
            if (to.banned_ids[i] / CHUNK == c) x[to.banned_ids[i] - first] = NOTHING;
        largest.insert(x, size, int32_t(first));
    }

    // Write the best of each sentence, when all chunks were taken.
    void finish() {
        for (int64_t n = 0; n < rows; ++n) {
            const int64_t sentence = to.open[n] / to.beam, base = to.open[n] % to.beam * to.size;
            float* const value = to.values + sentence * to.count;
            int64_t* const number = to.numbers + sentence * to.count;
            const float total = total_of(n), before = to.so_far[to.open[n]];
            if (total != total) {  // first and for good: nothing is larger
                value[0] = total;
                number[0] = base;
                continue;
            }
            if (to.only && to.only[n] >= 0) {
                add(value, number, before + (logits[n * space] - total), base + to.only[n]);
                continue;
            }
            for (int part = 0; part < parts; ++part) {
                const Largest largest = of(part, n);
                for (int64_t i = 0; i < to.count && largest.logits[i] > NOTHING; ++i) add(value, number, before + (largest.logits[i] - total), base + largest.tokens[i]);
            }
        }
    }

private:
    static constexpr float NOTHING = -std::numeric_limits<float>::infinity();

    const Request& to;
    const int64_t rows, parts, chunks, space;
    std::vector<Sum> sums;              // (N, chunks)
    std::vector<float> logits;          // (parts, N, space): the largest of each hypothesis
    std::vector<int32_t> tokens;        // (parts, N, space)
    std::vector<uint8_t> not_a_number;  // (N,): whether log-probabilities are NaN

    Largest of(int part, int64_t n) { return {logits.data() + (part * rows + n) * space, tokens.data() + (part * rows + n) * space, to.count}; }

    // What is subtracted from the logits of hypothesis n.
    float total_of(int64_t n) const {
        if (!to.normalized) return log_sum(sums.data() + n * chunks, chunks);
        return not_a_number[n] ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    }

    // Insert a candidate, if it is among the best: the larger value comes first, of equal ones the smaller number.
    void add(float* value, int64_t* number, float one, int64_t which) const {
        const auto comes_before = [&](int64_t i) { return one > value[i] || (one == value[i] && one > NOTHING && which < number[i]); };
        int64_t i = to.count - 1;
        if (!comes_before(i)) return;
        for (; i > 0 && comes_before(i - 1); --i) {
            value[i] = value[i - 1];
            number[i] = number[i - 1];
        }
        value[i] = one;
        number[i] = which;
    }
};

void begin(const Request& to, int64_t batch) {
    std::fill(to.values, to.values + batch * to.count, -std::numeric_limits<float>::infinity());
    std::fill(to.numbers, to.numbers + batch * to.count, 0);
}

}  // namespace

extern "C" {

// Find for each of B sentences the `count` largest of so_far[b, w] + log-softmax(logits)[v] over (W, V), largest first, equal
// ones in the order of w * V + v. Write the values and the numbers w * V + v, (B, count); if there are fewer: -inf and 0.
// Of a hypothesis the `count` largest logits are candidates, also where rounding makes the next one's value equal.
// logits (N, V) belong to the open hypotheses `open` (N,), ascending b * W + w. NaN comes first. The softmax is over all of V.
// `banned_ids` (banned_count,) are never candidates; with `banned`, the first banned[n] of them. If only[n] >= 0, that token
// is the one candidate of hypothesis n, also if it is banned. `banned` and `only` may be null. If `normalized`, the logits are
// log-probabilities, some of which may be -inf: no softmax is taken, and the first is NaN if any is.
void nmt_top_candidates(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t size, float* logits, int normalized, const float* so_far, int64_t banned_count, const int64_t* banned_ids,
                        const int64_t* banned, const int64_t* only, int64_t count, float* values, int64_t* numbers) {
    const Request to{beam, size, count, normalized, open, so_far, banned_count, banned_ids, banned, only, values, numbers};
    begin(to, batch);
    Ranking ranking(to, rows, 1);
    for (int64_t n = 0; n < rows; ++n)
        for (int64_t c = 0; c < ranking.chunk_count(); ++c) ranking.take(0, n, c, logits + n * size + c * CHUNK);
    ranking.finish();
}

// The same for logits that are the output map's of h (N, D), fp32 or int8: computed for few hypotheses and one chunk at a time.
void nmt_best_outputs(const Map* output, const void* h, int64_t batch, int64_t beam, int64_t rows, const int64_t* open, const float* so_far, int64_t banned_count, const int64_t* banned_ids, const int64_t* banned,
                      const int64_t* only, int64_t count, int64_t threads, float* values, int64_t* numbers) {
    const Request to{beam, output->d_out, count, 0, open, so_far, banned_count, banned_ids, banned, only, values, numbers};
    begin(to, batch);
    const int64_t chunks = (to.size + CHUNK - 1) / CHUNK, parts = std::max<int64_t>(1, std::min({threads, chunks, rows * output->d_in * output->d_out / WORTH}));
    const int64_t panels = (to.size + LANES - 1) / LANES, tile = tile_rows(*output);
    const void* const x = prepared(*output, rows, h);
    Ranking ranking(to, rows, int(parts));
    helpers().share(int(parts), [&](int part) {
        std::vector<float>& logits = scratch.out;
        logits.resize(tile * CHUNK);
        for (int64_t c = chunks * part / parts; c < chunks * (part + 1) / parts; ++c) {
            const int64_t begin = c * (CHUNK / LANES), end = std::min(panels, begin + CHUNK / LANES);
            for (int64_t first = 0; first < rows; first += tile) {
                const int64_t here = std::min(tile, rows - first);
                multiply_panels(*output, first, here, x, begin, end, logits.data());
                for (int64_t n = 0; n < here; ++n) ranking.take(part, first + n, c, logits.data() + n * (end - begin) * LANES);
            }
        }
    });
    ranking.finish();
}

}  // extern "C"
