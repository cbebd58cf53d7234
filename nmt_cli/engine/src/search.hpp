// Plain beam search (section 6.1) as a whole. docs/search.md, "Length and repetition", has the rules for users;
// search/beam_search.py is the same with constraints, and explains them. tests/engine/test_search.py holds both to the
// same outputs.
//
//   W beam   C candidates of a sentence   K finished hypotheses that are kept   L longest output of a sentence

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <vector>

#include "decoder.hpp"

namespace {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();

// Hypotheses of a sentence, best first. log P of NOTHING: there is none.
struct Hypotheses {
    int64_t count, longest;
    std::vector<int64_t> tokens;                  // (count, L)
    std::vector<float> log_probs, scores, paths;  // (count,), (count,) of finished ones, (count, L) or empty
    std::vector<int64_t> lengths;                 // (count,) of finished ones

    Hypotheses(int64_t count, int64_t longest, bool paths)
        : count(count),
          longest(longest),
          tokens(count * longest),
          log_probs(count, NOTHING),
          scores(count, NOTHING),
          paths(paths ? count * longest : 0),
          lengths(count) {}

    void copy(int64_t to, const Hypotheses& others, int64_t from, int64_t length) {
        std::copy_n(others.tokens.data() + from * longest, length, tokens.data() + to * longest);
        if (!paths.empty()) std::copy_n(others.paths.data() + from * longest, length, paths.data() + to * longest);
    }

    // Insert a finished output, if it is among the best. An older one precedes an equal newer one.
    void finish(float score, float log_prob, const Hypotheses& open, int64_t from, int64_t length) {
        int64_t i = count - 1;
        if (!(score > scores[i])) return;
        for (; i > 0 && score > scores[i - 1]; --i) {
            scores[i] = scores[i - 1], log_probs[i] = log_probs[i - 1], lengths[i] = lengths[i - 1];
            copy(i, *this, i - 1, lengths[i]);
        }
        scores[i] = score, log_probs[i] = log_prob, lengths[i] = length;
        copy(i, open, from, length);
    }
};

struct Searched {
    int64_t id, most;    // longest output, without end symbol
    int64_t length = 1;  // of an output that ends in the next step, end symbol counted
    Hypotheses open, done;
    std::vector<int64_t> newest,
        missing;  // (W,): last tokens; tokens with text that an output still needs before it may end

    bool unfinished() const { return open.log_probs[0] != NOTHING; }
};

}  // namespace

struct nmt_search {
    const nmt_search_options options;
    const std::vector<int64_t> textless;
    nmt_decoder decoder;
    std::vector<Searched> sentences;

    nmt_search(const nmt_model& model, const nmt_search_options& given)
        : options(given),
          textless(given.textless, given.textless + counted("tokens without text", given.textless_count)),
          decoder(model, given.beam) {
        if (options.nbest < 1 || options.nbest > options.beam)
            fail("nbest is %lld, expected 1 to the beam of %lld", (long long)options.nbest, (long long)options.beam);
        if (options.lookahead < 0 || options.min_length < 0) fail("lookahead and min_length must not be negative");
        std::unordered_set<int64_t> seen;
        const auto ban = [&](int64_t token) {
            if (token < 0 || token >= model.config.target_vocab)
                fail("the token %lld is not in the vocabulary of %lld", (long long)token,
                     (long long)model.config.target_vocab);
            if (seen.insert(token).second) banned.push_back(token);
        };
        ban(options.bos), banned.clear(), seen.clear();  // only checked
        for (int64_t i = 0; i < counted("banned tokens", options.banned_count); ++i) ban(options.banned[i]);
        always = int64_t(banned.size());
        ban(options.eos);
        too_early = int64_t(banned.size());
        for (const int64_t token : textless) ban(token);
        if (int64_t(banned.size()) >= model.config.target_vocab)
            banned.resize(too_early = always);  // no token has text
        candidates = options.beam > 1 ? 2 * options.beam : 1;
    }

    void add(int64_t count, const int64_t* ids, const int64_t* lengths, const int64_t* tokens,
             const int64_t* max_lengths, int64_t penalty_count, const float* given, const float* given_of_words) {
        const int64_t beam = options.beam;
        double numbers = 0.0;
        for (int64_t s = 0; s < counted("sentences", count); ++s) {
            if (max_lengths[s] < 0 || max_lengths[s] >= decoder.model.config.max_positions ||
                max_lengths[s] + 2 > penalty_count)
                fail("the longest output has %lld tokens, expected at most %lld, with penalties for two more",
                     (long long)max_lengths[s], (long long)decoder.model.config.max_positions - 1);
            numbers += double(beam + options.nbest) * double(max_lengths[s]);
        }
        afford(numbers * (sizeof(int64_t) + (options.paths ? sizeof(float) : 0)));
        if (penalty_count > int64_t(word_penalties.size())) {  // those that are copied last
            penalties.assign(given, given + penalty_count);
            word_penalties.assign(given_of_words, given_of_words + penalty_count);
        }
        std::vector<Searched> more;
        for (int64_t s = 0; s < count; ++s) {
            const int64_t most = max_lengths[s];
            Searched one{ids[s],
                         most,
                         1,
                         {beam, most, options.paths != 0},
                         {options.nbest, most, options.paths != 0},
                         std::vector<int64_t>(beam, options.bos),
                         std::vector<int64_t>(beam, std::min(most, options.min_length))};
            one.open.log_probs[0] = 0.0f;
            more.push_back(std::move(one));
        }
        sentences.reserve(sentences.size() + more.size());
        decoder.add(count, lengths, tokens);  // what follows cannot fail: the decoder and the search agree
        for (Searched& one : more) sentences.push_back(std::move(one));
    }

    // See nmt_search_step.
    const nmt_results* step(int64_t steps, double stay) {
        if (!(stay >= 0.0)) fail("the share of sentences that stay is %g, expected at least 0", stay);
        int64_t count = unfinished();
        for (int64_t taken = 0; taken < steps && count; ++taken) {
            one_step();
            count = unfinished();
            if (leaves(count, stay)) break;
        }
        return leaves(count, stay) ? leave() : results(0);
    }

    void drop(int64_t count, const int64_t* ids) {
        const std::unordered_set<int64_t> unwanted(ids, ids + counted("sentences", count));
        keep([&](const Searched& s) { return !unwanted.count(s.id); });
    }

    int64_t open_hypotheses() const {
        int64_t open = 0;
        for (const Searched& s : sentences)
            for (const float log_prob : s.open.log_probs) open += log_prob != NOTHING;
        return open;
    }

private:
    std::vector<int64_t> banned;        // never generated; the end symbol; without text
    int64_t always = 0, too_early = 0;  // how many of them may not follow: any output, one that misses tokens
    int64_t candidates = 1;             // C
    std::vector<float> penalties, word_penalties;  // by length
    // The rows of a step, and what it finds.
    std::vector<int64_t> open, tokens, only, bans, numbers, parents;
    std::vector<float> so_far, values;
    Hypotheses before{0, 0, false};
    std::vector<int64_t> missing_before;
    // Sentences that left.
    nmt_results left{};
    std::vector<int64_t> left_ids, left_lengths, left_tokens;
    std::vector<float> left_log_probs, left_scores, left_paths;

    int64_t unfinished() const {
        return std::count_if(sentences.begin(), sentences.end(), [](const Searched& s) { return s.unfinished(); });
    }

    bool leaves(int64_t count, double stay) const {
        const int64_t all = int64_t(sentences.size());
        return count < all && double(count) <= stay * double(all);
    }

    // Gather the open hypotheses, and which tokens may follow them.
    void gather() {
        const int64_t beam = options.beam, batch = int64_t(sentences.size());
        open.clear(), tokens.clear(), only.clear(), bans.clear();
        so_far.resize(batch * beam);
        for (int64_t b = 0; b < batch; ++b) {
            const Searched& s = sentences[b];
            const int64_t remaining = s.most + 1 - s.length;
            for (int64_t w = 0; w < beam; ++w) {
                so_far[b * beam + w] = s.open.log_probs[w];
                if (s.open.log_probs[w] == NOTHING) continue;
                const int64_t missing = s.missing[w];
                open.push_back(b * beam + w);
                tokens.push_back(s.newest[w]);
                only.push_back(remaining <= 0 ? options.eos : -1);
                bans.push_back(missing <= 0 ? always : missing < remaining ? too_early : int64_t(banned.size()));
            }
        }
    }

    void one_step() {
        gather();
        const int64_t rows = int64_t(open.size()), batch = int64_t(sentences.size()),
                      vocabulary = decoder.model.config.target_vocab;
        const RowsOut hidden = decoder.step(rows, open.data(), tokens.data());
        values.resize(batch * candidates), numbers.resize(batch * candidates), parents.resize(batch * options.beam);
        const bool plain = options.beam == 1 && !options.paths && !options.scores;
        const Sums sums = plain ? NO_SUMS : LOG_SUMS;
        const Request request{options.beam, vocabulary,    candidates,  sums,        open.data(),   so_far.data(),
                              always,       banned.data(), bans.data(), only.data(), values.data(), numbers.data()};
        rank_outputs(decoder.model.output, read(hidden), request, batch, rows);
        for (float& value : values)
            if (plain && value > NOTHING) value = 0.0f;
        for (int64_t b = 0; b < batch; ++b) {
            int64_t* const parent = parents.data() + b * options.beam;
            if (sentences[b].unfinished())
                extend(sentences[b], values.data() + b * candidates, numbers.data() + b * candidates, parent);
            else
                std::fill_n(parent, options.beam, 0);  // it waits until it leaves
        }
        if (options.beam > 1) decoder.history.reorder(parents.data());
    }

    // Given the candidates of a sentence, best first: rank those that end among the finished hypotheses, and make the W
    // best others the open ones; `parents` (W,) are the hypotheses that they extend. A hypothesis is given up if its
    // output is complete, or if it cannot become one of the K best within `lookahead` tokens.
    void extend(Searched& s, const float* value, const int64_t* number, int64_t* parent) {
        const int64_t beam = options.beam, vocabulary = decoder.model.config.target_vocab, written = s.length - 1;
        before = s.open;
        missing_before = s.missing;
        int64_t w = 0;
        const auto extended = [&](int64_t from, int64_t token, float log_prob) {
            parent[w] = from;
            s.newest[w] = token;
            s.open.log_probs[w] = log_prob;
            s.open.copy(w, before, from, written);
            if (written < s.most) {
                s.open.tokens[w * s.most + written] = token;
                if (options.paths) s.open.paths[w * s.most + written] = log_prob;
            }
            const bool has_text = std::find(textless.begin(), textless.end(), token) == textless.end();
            s.missing[w++] = std::max<int64_t>(0, missing_before[from] - has_text);
        };
        for (int64_t c = 0; c < candidates; ++c) {
            if (value[c] == NOTHING) continue;
            const int64_t from = number[c] / vocabulary, token = number[c] % vocabulary;
            if (token == options.eos)
                s.done.finish(score(value[c], s.length), value[c], before, from, written);
            else if (w < beam)
                extended(from, token, value[c]);
        }
        while (w < beam) extended(0, options.bos, NOTHING);
        const bool complete = s.most < s.length;
        for (float& log_prob : s.open.log_probs)
            if (complete || (options.lookahead && hopeless(s, log_prob))) log_prob = NOTHING;
        ++s.length;
    }

    float score(float log_prob, int64_t length) const {
        return (log_prob - word_penalties[length]) / penalties[length];
    }

    // Whether a hypothesis cannot become one of the K best at any length. Without a word penalty, the longest output
    // has the highest score.
    bool hopeless(const Searched& s, float log_prob) const {
        const int64_t longest = s.length + std::min(options.lookahead, s.most + 1 - s.length);
        for (int64_t length = longest; length > s.length; --length)
            if (!(score(log_prob, length) <= s.done.scores.back())) return false;
        return true;
    }

    // Keep the sentences that `stays` accepts, here and in the decoder.
    template <class Stays>
    void keep(const Stays& stays) {
        std::vector<int64_t> kept;
        kept.reserve(sentences.size());  // what follows cannot fail
        for (int64_t b = 0; b < int64_t(sentences.size()); ++b) {
            if (!stays(sentences[b])) continue;
            if (int64_t(kept.size()) != b) sentences[kept.size()] = std::move(sentences[b]);
            kept.push_back(b);
        }
        sentences.erase(sentences.begin() + int64_t(kept.size()), sentences.end());
        decoder.history.keep(int64_t(kept.size()), kept.data());
    }

    // Let the finished sentences leave.
    const nmt_results* leave() {
        int64_t longest = 0;
        for (const Searched& s : sentences)
            if (!s.unfinished())
                longest = std::max(longest, *std::max_element(s.done.lengths.begin(), s.done.lengths.end()));
        results(longest);
        for (const Searched& s : sentences) {
            if (s.unfinished()) continue;
            left_ids.push_back(s.id);
            left_lengths.insert(left_lengths.end(), s.done.lengths.begin(), s.done.lengths.end());
            left_log_probs.insert(left_log_probs.end(), s.done.log_probs.begin(), s.done.log_probs.end());
            left_scores.insert(left_scores.end(), s.done.scores.begin(), s.done.scores.end());
            for (int64_t k = 0; k < options.nbest; ++k) {
                const auto spread = [&](const auto& from, auto& to) {
                    const auto begin = from.begin() + k * s.most;
                    to.insert(to.end(), begin, begin + s.done.lengths[k]);
                    to.resize(to.size() + size_t(longest - s.done.lengths[k]));
                };
                spread(s.done.tokens, left_tokens);
                if (options.paths) spread(s.done.paths, left_paths);
            }
        }
        keep([](const Searched& s) { return s.unfinished(); });
        left = {int64_t(left_ids.size()), options.nbest,       longest,
                left_ids.data(),          left_lengths.data(), left_tokens.data(),
                left_log_probs.data(),    left_scores.data(),  options.paths ? left_paths.data() : nullptr};
        return &left;
    }

    // No results.
    const nmt_results* results(int64_t longest) {
        left_ids.clear(), left_lengths.clear(), left_tokens.clear(), left_log_probs.clear(), left_scores.clear(),
            left_paths.clear();
        left = {0, options.nbest, longest, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
        return &left;
    }
};
