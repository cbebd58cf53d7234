// A step of beam search after its candidates were ranked: the plain one is decoding/beam_search.py.
//
//   B sentences   W beam   C candidates of each   K finished hypotheses that are kept   L longest output

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

// The K best finished hypotheses of a sentence, best first.
struct Finished {
    int64_t count, longest;
    int64_t *tokens, *lengths;  // (K, L), (K,)
    float *log_probs, *scores;  // (K,)

    // Insert an output, if it is among the best. An older one precedes an equal newer one.
    void add(float score, float log_prob, const int64_t* output, int64_t length) const {
        int64_t i = count - 1;
        if (!(score > scores[i])) return;
        for (; i > 0 && score > scores[i - 1]; --i) {
            scores[i] = scores[i - 1];
            log_probs[i] = log_probs[i - 1];
            lengths[i] = lengths[i - 1];
            std::copy_n(tokens + (i - 1) * longest, longest, tokens + i * longest);
        }
        scores[i] = score;
        log_probs[i] = log_prob;
        lengths[i] = length;
        std::copy_n(output, longest, tokens + i * longest);
    }
};

}  // namespace

// What a plain beam search knows of its sentences; functions.py fills it in.
struct Beam {
    int64_t batch, beam, count, kept, longest;  // B, W, C, K, L
    int64_t eos, lookahead;                     // see `nmt_extend_beam`
    const float* penalties;                     // by length: they divide log P of an output
    int64_t* lengths;                           // (B,) of the outputs that this step extends
    const int64_t* max_lengths;                 // (B,) without an end symbol
    int64_t *newest, *tokens;                   // (B, W), (B, W, L): the open hypotheses
    float* log_probs;                           // (B, W); -inf: there is none
    int64_t *done_tokens, *done_lengths;        // (B, K, L), (B, K): the finished ones
    float *done_log_probs, *done_scores;        // (B, K)
    int64_t* missing;                           // (B, W) tokens with text that an output needs before it may end
    int64_t always_banned, banned_too_early, banned_count;  // how many of `banned` may not follow: an output that misses none, one that does, one that has no token to spare
    const int64_t* banned;                      // tokens that are never generated, the end symbol, tokens without text
    int64_t textless_count;
    const int64_t* textless;                    // those without text
};

namespace {

thread_local std::vector<int64_t> outputs_before, missing_before;  // of a sentence: (W, L), (W,)

// Count the tokens that the new open hypotheses of sentence b have.
void count_text(const Beam& state, int64_t b, const int64_t* parents) {
    int64_t* const missing = state.missing + b * state.beam;
    missing_before.assign(missing, missing + state.beam);
    for (int64_t w = 0; w < state.beam; ++w) {
        const bool has_text = std::find(state.textless, state.textless + state.textless_count, state.newest[b * state.beam + w]) == state.textless + state.textless_count;
        missing[w] = std::max<int64_t>(0, missing_before[parents[w]] - has_text);
    }
}

}  // namespace

extern "C" {

// Given the candidates of each sentence, best first, `values`, hypotheses `from` and tokens `to`, (B, C), rank those that end among the finished
// hypotheses, and make the W best others the open ones; `parents` (B, W) are the hypotheses that they extend. A hypothesis is given up,
// and gets -inf, if its output is complete, or if it cannot become one of the K best within `lookahead` tokens; 0: that is not asked.
void nmt_extend_beam(const Beam* state, const float* values, const int64_t* from, const int64_t* to, int64_t* parents) {
    const float nothing = -std::numeric_limits<float>::infinity();
    const int64_t beam = state->beam, longest = state->longest, kept = state->kept;
    for (int64_t b = 0; b < state->batch; ++b, values += state->count, from += state->count, to += state->count, parents += beam) {
        const int64_t length = state->lengths[b], most = state->max_lengths[b], written = std::min(length, longest);
        int64_t *const newest = state->newest + b * beam, *const tokens = state->tokens + b * beam * longest;
        float* const log_probs = state->log_probs + b * beam;
        const Finished finished{kept, longest, state->done_tokens + b * kept * longest, state->done_lengths + b * kept, state->done_log_probs + b * kept, state->done_scores + b * kept};
        const auto open = [&](int64_t w, int64_t c, float value) {
            parents[w] = from[c];
            newest[w] = to[c];
            log_probs[w] = value;
        };
        int64_t w = 0;
        for (int64_t c = 0; c < state->count; ++c) {
            if (values[c] == nothing) continue;
            if (to[c] == state->eos)
                finished.add(values[c] / state->penalties[length], values[c], tokens + from[c] * longest, length - 1);
            else if (w < beam)
                open(w++, c, values[c]);
        }
        for (; w < beam; ++w) open(w, 0, nothing);
        outputs_before.assign(tokens, tokens + beam * longest);
        const bool complete = most < length;
        const float penalty = state->penalties[length + std::min(state->lookahead, most + 1 - length)];
        for (w = 0; w < beam; ++w) {
            if (complete || (state->lookahead && log_probs[w] / penalty <= finished.scores[kept - 1])) log_probs[w] = nothing;
            std::copy_n(outputs_before.data() + parents[w] * longest, written, tokens + w * longest);
            if (longest) tokens[w * longest + written - 1] = newest[w];
        }
        count_text(*state, b, parents);
    }
}

}  // extern "C"
