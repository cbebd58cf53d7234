// Steps of plain beam search as one function: a small model takes more time between the functions of a step than in them.

#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "beam.hpp"
#include "stack.hpp"
#include "top_candidates.hpp"

namespace {

// The buffers of a step of N rows.
struct Step {
    std::vector<int64_t> rows, ids, positions, only, banned;  // (N,); the last two are empty where all are the same
    std::vector<float> hidden;                                // (N, D) fp32 or int8, what the output map reads
    std::vector<float> values;                                // (B, C)
    std::vector<int64_t> numbers, from, parents;              // (B, C), (B, C), (B, W)

    // Begin with the open hypotheses.
    void open(const Beam& state) {
        rows.clear();
        ids.clear();
        only.clear();
        banned.clear();
        bool any_complete = false, any_short = false;
        for (int64_t n = 0; n < state.batch * state.beam; ++n) {
            if (state.log_probs[n] == -std::numeric_limits<float>::infinity()) continue;
            const int64_t remaining = state.max_lengths[n / state.beam] + 1 - state.lengths[n / state.beam], missing = state.missing[n];
            const bool complete = remaining <= 0;
            any_complete = any_complete || complete;
            any_short = any_short || missing > 0;
            rows.push_back(n);
            ids.push_back(state.newest[n]);
            only.push_back(complete ? state.eos : -1);
            banned.push_back(missing <= 0 ? state.always_banned : missing < remaining ? state.banned_too_early : state.banned_count);
        }
        if (!any_complete) only.clear();
        if (!any_short) banned.clear();
        positions.resize(rows.size());
    }
};

thread_local Step step_of_search;

// How many sentences have an open hypothesis.
int64_t unfinished(const Beam& state) {
    int64_t count = 0;
    for (int64_t b = 0; b < state.batch; ++b) count += state.log_probs[b * state.beam] != -std::numeric_limits<float>::infinity();
    return count;
}

}  // namespace

extern "C" {

// Take up to `steps` steps. Stop after the first step after which at most the share `stay` of the sentences is unfinished: then finished sentences leave.
// `caches` have `slots` slots; see `nmt_stack_step` for the other parameters. Return the number of steps. If it is smaller because slots are lacking,
// write the number of slots that the next step needs to `needed`, else 0.
int64_t nmt_search(const Stack* stack, BeamHistory* history, const Beam* state, void* const* caches, const void* const* const* memories, int64_t slots, int64_t threads, int64_t steps, double stay, int64_t* needed) {
    Step& now = step_of_search;
    const int64_t batch = state->batch, candidates = batch * state->count, vocabulary = stack->output->d_out;
    now.values.resize(candidates);
    now.numbers.resize(candidates);
    now.from.resize(candidates);
    now.parents.resize(batch * state->beam);
    *needed = 0;
    for (int64_t taken = 0; taken < steps; ++taken) {
        now.open(*state);
        const int64_t rows = int64_t(now.rows.size());
        if (history->slots_for(rows) > slots) {
            *needed = history->slots_for(rows);
            return taken;
        }
        nmt_history_step(history, rows, now.rows.data(), now.positions.data());
        now.hidden.resize(rows * stack->size);
        nmt_stack_step(stack, history, rows, now.ids.data(), now.positions.data(), nullptr, caches, memories, threads, now.hidden.data());
        nmt_best_outputs(stack->output, now.hidden.data(), batch, state->beam, rows, now.rows.data(), state->log_probs, state->always_banned, state->banned,
                         now.banned.empty() ? nullptr : now.banned.data(), now.only.empty() ? nullptr : now.only.data(), state->count, threads, now.values.data(), now.numbers.data());
        for (int64_t i = 0; i < candidates; ++i) {
            now.from[i] = now.numbers[i] / vocabulary;
            now.numbers[i] %= vocabulary;
        }
        nmt_extend_beam(state, now.values.data(), now.from.data(), now.numbers.data(), now.parents.data());
        for (int64_t b = 0; b < batch; ++b) ++state->lengths[b];
        if (state->beam > 1) nmt_history_reorder(history, now.parents.data());
        const int64_t count = unfinished(*state);
        if (!count || (count < batch && double(count) <= stay * double(batch))) return taken + 1;
    }
    return steps;
}

}  // extern "C"
