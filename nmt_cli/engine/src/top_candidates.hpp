// Log-softmax and the best candidates of each sentence, from logits or straight from what the output map reads.

#pragma once

#include <algorithm>
#include <functional>
#include <limits>

#include "matmul.hpp"
#include "softmax.hpp"

namespace {

constexpr int64_t CHUNK = 256;  // tokens that are ranked together: their logits stay in the first cache

// Replace logits (N, V) by their log-softmax.
void log_softmax(int64_t rows, int64_t size, float* logits) {
    std::vector<Sum> sums;
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = logits + n * size;
        sums.clear();
        for (int64_t first = 0; first < size; first += CHUNK)
            sums.push_back(Sum::of(x + first, std::min(CHUNK, size - first)));
        const float total = log_sum(sums.data(), int64_t(sums.size()));
#pragma omp simd
        for (int64_t v = 0; v < size; ++v) x[v] -= total;
    }
}

// What is subtracted from logits: the logarithm of the sum of their exponentials, or nothing. Then either they are
// log-probabilities, or nobody asks for these.
enum Sums { LOG_SUMS, NORMALIZED, NO_SUMS };

// What is asked for, see nmt_rank.
struct Request {
    int64_t beam, size, count;
    Sums sums;
    const int64_t* open;
    const float* so_far;
    int64_t banned_count;
    const int64_t *banned_ids, *banned, *only;
    float* values;
    int64_t* numbers;
};

// The largest logits of a hypothesis and their tokens. Of equal ones, the older stays.
//
// Up to LANES of them are in order, largest first. More are a crowd in any order, twice as many at most: when it is
// full, the smaller half leaves, and `limit` is the least that stays. A number of a crowd has both, and is the larger
// the earlier it comes: the bits of the logit, in the order of logits, and behind them those of the token, flipped.
struct Largest {
    float* logits;  // (space,)
    int32_t* tokens;
    uint64_t* crowd;  // (crowd_space,)
    int64_t count;
    int64_t& filled;  // of a crowd
    float& limit;     // what a new one must exceed

    // Space that `count` need: whole registers, if they fit into one.
    static int64_t space(int64_t count) { return count <= LANES ? LANES : 0; }
    static int64_t crowd_space(int64_t count, int64_t size) { return count <= LANES ? 0 : std::min(2 * count, size); }

    int64_t found() const { return count <= LANES ? count : filled; }
    float logit(int64_t i) const {
        if (count <= LANES) return logits[i];
        const uint32_t bits = uint32_t(crowd[i] >> 32);
        return number_of(bits & 0x80000000 ? bits & 0x7fffffff : ~bits);
    }
    int64_t token(int64_t i) const { return count <= LANES ? tokens[i] : int64_t(~uint32_t(crowd[i])); }

    // Insert those of x (size,) that are among them; the first one is that of token `first`.
    void insert(const float* x, int64_t size, int32_t first) const {
        if (count > LANES) return insert_into_crowd(x, size, first);
#ifdef __AVX512F__
        insert_into_register(x, size, first);
#else
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
#endif
        limit = logits[count - 1];
    }

private:
    void insert_into_crowd(const float* x, int64_t size, int32_t first) const {
        for (int64_t begin = 0; begin < size; begin += LANES) {
            const int64_t end = std::min<int64_t>(size, begin + LANES);
            uint32_t larger = 0;
#pragma omp simd reduction(| : larger)
            for (int64_t v = begin; v < end; ++v) larger |= uint32_t(x[v] > limit);
            for (int64_t v = begin; larger && v < end; ++v) {
                if (!(x[v] > limit)) continue;
                const uint32_t bits = bits_of(x[v] + 0.0f), ordered = bits & 0x80000000 ? ~bits : bits | 0x80000000;
                crowd[filled] = uint64_t(ordered) << 32 | ~uint32_t(first + v);
                if (++filled == 2 * count) halve();
            }
        }
    }

    void halve() const {
        std::nth_element(crowd, crowd + (count - 1), crowd + filled, std::greater<uint64_t>());
        filled = count;
        limit = logit(count - 1);
    }

#ifdef __AVX512F__
    // Without branches: those behind the new one move up by a lane. Lanes from `count` on hold what was pushed out.
    void insert_into_register(const float* x, int64_t size, int32_t first) const {
        const __m512i last = _mm512_set1_epi32(int(count) - 1),
                      before = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
        __m512 found = _mm512_loadu_ps(logits), least = _mm512_permutexvar_ps(last, found);
        __m512i names = _mm512_loadu_si512(tokens);
        for (int64_t v = 0; v < size; v += LANES) {
            const __mmask16 here = size - v < LANES ? __mmask16((1u << (size - v)) - 1) : __mmask16(0xffff);
            for (uint32_t larger = _mm512_mask_cmp_ps_mask(here, _mm512_maskz_loadu_ps(here, x + v), least, _CMP_GT_OQ);
                 larger; larger &= larger - 1) {
                const int64_t one = v + __builtin_ctz(larger);
                const __m512 value = _mm512_set1_ps(x[one]);
                const __mmask16 stay = _mm512_cmp_ps_mask(found, value, _CMP_GE_OQ), place = __mmask16(stay + 1);
                found = _mm512_mask_mov_ps(_mm512_mask_permutexvar_ps(found, __mmask16(~stay), before, found), place,
                                           value);
                names = _mm512_mask_mov_epi32(_mm512_mask_permutexvar_epi32(names, __mmask16(~stay), before, names),
                                              place, _mm512_set1_epi32(first + int32_t(one)));
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
    Ranking(const Request& request, int64_t rows, int parts)
        : to(request),
          rows(rows),
          parts(parts),
          chunks((request.size + CHUNK - 1) / CHUNK),
          space(Largest::space(request.count)),
          crowd_space(Largest::crowd_space(request.count, request.size)) {
        sums.resize(to.sums == LOG_SUMS ? rows * chunks : 0);
        logits.assign(parts * rows * space, NOTHING);
        tokens.resize(parts * rows * space);
        crowds.resize(parts * rows * crowd_space);
        only.assign(rows, NOTHING);
        filled.assign(parts * rows, 0);
        limits.assign(parts * rows, NOTHING);
        not_a_number.assign(parts * rows, 0);
    }

    int64_t chunk_count() const { return chunks; }

    // Rank the tokens of chunk c for hypothesis n, whose logits are x. They may be written to.
    void take(int part, int64_t n, int64_t c, float* x) {
        const int64_t first = c * CHUNK, size = std::min(CHUNK, to.size - first);
        const Sum sum = to.sums == LOG_SUMS ? Sum::of(x, size) : Sum{largest_of(x, size), 0.0f};
        if (to.sums == LOG_SUMS)
            sums[n * chunks + c] = sum;
        else if (to.sums == NORMALIZED ? c == 0 && x[0] != x[0] : !is_number(x, size, sum.largest))
            not_a_number[part * rows + n] = 1;
        if (to.only && to.only[n] >= 0) {
            if (to.only[n] / CHUNK == c) only[n] = x[to.only[n] - first];
            return;
        }
        const Largest largest = of(part, n);
        if (!(sum.largest > largest.limit)) return;
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
                add(value, number, before + (only[n] - total), base + to.only[n]);
                continue;
            }
            for (int part = 0; part < parts; ++part) {
                const Largest largest = of(part, n);
                for (int64_t i = 0; i < largest.found() && largest.logit(i) > NOTHING; ++i)
                    add(value, number, before + (largest.logit(i) - total), base + largest.token(i));
            }
        }
    }

private:
    static constexpr float NOTHING = -std::numeric_limits<float>::infinity();

    const Request& to;
    const int64_t rows, parts, chunks, space, crowd_space;
    std::vector<Sum> sums;              // (N, chunks)
    std::vector<float> logits;          // (parts, N, space): the largest of each hypothesis
    std::vector<int32_t> tokens;        // (parts, N, space)
    std::vector<uint64_t> crowds;       // (parts, N, crowd_space)
    std::vector<float> only;            // (N,): the logits of the only candidates
    std::vector<int64_t> filled;        // (parts, N)
    std::vector<float> limits;          // (parts, N)
    std::vector<uint8_t> not_a_number;  // (parts, N): whether log-probabilities are NaN

    Largest of(int part, int64_t n) {
        const int64_t at = part * rows + n;
        return {logits.data() + at * space,
                tokens.data() + at * space,
                crowds.data() + at * crowd_space,
                to.count,
                filled[at],
                limits[at]};
    }

    // What is subtracted from the logits of hypothesis n.
    float total_of(int64_t n) const {
        if (to.sums == LOG_SUMS) return log_sum(sums.data() + n * chunks, chunks);
        for (int64_t at = n; at < parts * rows; at += rows)
            if (not_a_number[at]) return std::numeric_limits<float>::quiet_NaN();
        return 0.0f;
    }

    // Insert a candidate, if it is among the best: the larger value comes first, of equal ones the smaller number.
    void add(float* value, int64_t* number, float one, int64_t which) const {
        const auto comes_before = [&](int64_t i) {
            return one > value[i] || (one == value[i] && one > NOTHING && which < number[i]);
        };
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

// See nmt_rank.
void rank(const Request& to, int64_t batch, int64_t rows, float* logits) {
    begin(to, batch);
    Ranking ranking(to, rows, 1);
    for (int64_t n = 0; n < rows; ++n)
        for (int64_t c = 0; c < ranking.chunk_count(); ++c) ranking.take(0, n, c, logits + n * to.size + c * CHUNK);
    ranking.finish();
}

// The same for logits that are the output map's of h (N, D): computed for few hypotheses and one chunk at a time.
void rank_outputs(const Map& output, const RowsIn& h, const Request& to, int64_t batch, int64_t rows) {
    begin(to, batch);
    const int64_t chunks = (to.size + CHUNK - 1) / CHUNK, panels = panels_of(output), tile = tile_rows(output);
    const int64_t parts =
        std::max<int64_t>(1, std::min({threads_here, chunks, rows * output.d_in * output.d_out / WORTH}));
    const void* const x = prepared(output, rows, h);
    Ranking ranking(to, rows, int(parts));
    helpers().share(int(parts), [&](int part) {
        static thread_local Aligned<float> logits;
        logits.resize(tile * CHUNK);
        for (int64_t c = chunks * part / parts; c < chunks * (part + 1) / parts; ++c) {
            const int64_t begin = c * (CHUNK / LANES), end = std::min(panels, begin + CHUNK / LANES),
                          width = (end - begin) * LANES;
            for (int64_t first = 0; first < rows; first += tile) {
                const int64_t here = std::min(tile, rows - first);
                multiply_panels(output, h, x, first, here, begin, end, {logits.data(), width, begin * LANES});
                for (int64_t n = 0; n < here; ++n) ranking.take(part, first + n, c, logits.data() + n * width);
            }
        }
    });
    ranking.finish();
}

}  // namespace
