// A step of beam search after its candidates were ranked: the plain one is decoding/beam_search.py.
//
//   B sentences   W beam   C candidates of each   K finished hypotheses that are kept   L longest output

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

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

extern "C" {

// Given the candidates of each sentence, best first, `values`, hypotheses `from` and tokens `to`, (B, C), rank those that end among the finished hypotheses
// done_… (B, K, …), and make the W best others the open ones: their `parents`, `newest` tokens, `log_probs` (B, W) and `tokens`
// (B, W, L), from those of the hypotheses before them, `outputs` (B, W, L). lengths (B,) are those of the extended outputs,
// max_lengths (B,) the largest without an end symbol; penalties[n] divides log P of an output of n tokens. A hypothesis is given up,
// and gets -inf, if its output is complete, or if it cannot become one of the K best within `lookahead` tokens; 0: that is not asked.
void nmt_extend_beam(int64_t batch, int64_t beam, int64_t count, int64_t kept, int64_t longest, int64_t eos, int64_t lookahead, const float* values, const int64_t* from, const int64_t* to, const float* penalties,
                     const int64_t* lengths, const int64_t* max_lengths, const int64_t* outputs, int64_t* done_tokens, int64_t* done_lengths, float* done_log_probs, float* done_scores, int64_t* parents, int64_t* newest,
                     float* log_probs, int64_t* tokens) {
    const float nothing = -std::numeric_limits<float>::infinity();
    for (int64_t b = 0; b < batch; ++b, values += count, from += count, to += count, outputs += beam * longest, parents += beam, newest += beam, log_probs += beam, tokens += beam * longest) {
        const int64_t length = lengths[b];
        const Finished finished{kept, longest, done_tokens + b * kept * longest, done_lengths + b * kept, done_log_probs + b * kept, done_scores + b * kept};
        const auto open = [&](int64_t w, int64_t c, float value) {
            parents[w] = from[c];
            newest[w] = to[c];
            log_probs[w] = value;
        };
        int64_t w = 0;
        for (int64_t c = 0; c < count; ++c) {
            if (values[c] == nothing) continue;
            if (to[c] == eos)
                finished.add(values[c] / penalties[length], values[c], outputs + from[c] * longest, length - 1);
            else if (w < beam)
                open(w++, c, values[c]);
        }
        for (; w < beam; ++w) open(w, 0, nothing);
        const bool complete = max_lengths[b] < length;
        const float penalty = penalties[length + std::min(lookahead, max_lengths[b] + 1 - length)];
        for (w = 0; w < beam; ++w) {
            if (complete || (lookahead && log_probs[w] / penalty <= finished.scores[kept - 1])) log_probs[w] = nothing;
            std::copy_n(outputs + parents[w] * longest, longest, tokens + w * longest);
            if (longest) tokens[w * longest + std::min(length, longest) - 1] = newest[w];
        }
    }
}

}  // extern "C"
