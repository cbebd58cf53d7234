// Which cached keys and values, or which state of SSRU, each hypothesis of a beam search descends from.

#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "attention.hpp"

namespace {

// Keys and values of sentences that were added together: for each layer, rows (H * K + H * V).
using Memory = std::vector<Aligned<char>>;

struct Sentence {
    std::shared_ptr<const Memory> memory;
    int64_t first = 0, size = 0;  // its source: first row in the memory, S
    int64_t steps = 0;            // tokens of each hypothesis in the caches
    std::vector<int32_t> slots;   // (W, capacity): the slots of each hypothesis's tokens
    std::vector<int32_t> owned;   // all slots of the sentence, also those of dropped hypotheses
    int64_t capacity = 0;
    std::vector<int32_t> states;  // of SSRU: the row of each hypothesis's state, (W,), at first 0: zeros
    std::vector<float>
        words;  // of hard monotonic attention: the encoder's states of each word, and the last one, (M, D)
    std::vector<int64_t> written;  // and the words that each hypothesis has, (W,)
};

struct BeamHistory {
    int64_t beam;
    std::vector<Sentence> sentences;
    std::vector<int32_t> free;
    // Per slot: the last time it was found in use. Slot 0 is that of hypotheses that were closed.
    std::vector<uint32_t> marks = {0};
    uint32_t now = 0;
    std::vector<int32_t> spare, spare_states;
    std::vector<int64_t> spare_words;
    std::vector<int64_t> rows;            // of the current step: b * W + w
    std::vector<int32_t> before;          // and of SSRU the row of each one's state before it
    mutable std::vector<uint8_t> common;  // of a group: see `RowIndex`

    explicit BeamHistory(int64_t beam) : beam(beam) {}

    // Return how many rows from n on belong to one sentence, at most GROUP.
    int group(int64_t n) const {
        int more = 1;
        while (more < GROUP && n + more < int64_t(rows.size()) && rows[n + more] / beam == rows[n] / beam) ++more;
        return more;
    }

    const Sentence& sentence_of(int64_t n) const { return sentences[rows[n] / beam]; }

    // Return the slots of these rows, which belong to one sentence.
    RowIndex slots(int64_t n, int count) const {
        const Sentence& s = sentence_of(n);
        RowIndex at{};
        for (int r = 0; r < GROUP; ++r)
            at.lists[r] = s.slots.data() + (rows[n + (r < count ? r : 0)] % beam) * s.capacity;
        common.resize(s.capacity);
        uint8_t* const same = common.data();
#pragma omp simd
        for (int64_t i = 0; i < s.steps; ++i)
            same[i] = uint8_t((at.lists[0][i] == at.lists[1][i]) & (at.lists[0][i] == at.lists[2][i]) &
                              (at.lists[0][i] == at.lists[3][i]));
        at.common = same;
        if (n + count < int64_t(rows.size())) {
            const Sentence& after = sentence_of(n + count);
            at.next = after.slots.data() + (rows[n + count] % beam) * after.capacity;
            at.next_count = after.steps;
        }
        return at;
    }

    // Hypothesis w of sentence b continues its former hypothesis parents[b * W + w].
    void reorder(const int64_t* parents) {
        for (Sentence& s : sentences) {
            spare.resize(s.slots.size());
            for (int64_t w = 0; w < beam && s.capacity; ++w)
                std::copy_n(s.slots.data() + parents[w] * s.capacity, s.steps, spare.data() + w * s.capacity);
            std::swap(spare, s.slots);
            of_parents(s.states, spare_states, parents);
            of_parents(s.written, spare_words, parents);
            parents += beam;
        }
    }

    // Keep these sentences, ascending. The rows of the last step are gone.
    void keep(int64_t count, const int64_t* stay) {
        rows.clear();
        int64_t next = 0;
        for (int64_t b = 0; b < int64_t(sentences.size()); ++b) {
            if (next < count && stay[next] == b) {
                if (next != b) sentences[next] = std::move(sentences[b]);
                ++next;
            } else {
                release(sentences[b], nullptr, 0);
            }
        }
        sentences.erase(sentences.begin() + next, sentences.end());
    }

    // Begin a step of the open hypotheses `open` (N,), ascending b * W + w: write each one's position, and choose a
    // slot for its new keys and values, or find its state. Return the number of slots.
    int64_t step(int64_t count, const int64_t* open, int64_t* positions) {
        rows.assign(open, open + count);
        before.resize(count);
        int64_t n = 0;
        for (int64_t b = 0; b < int64_t(sentences.size()); ++b) {
            Sentence& s = sentences[b];
            const int64_t begin = n;
            while (n < count && rows[n] / beam == b) ++n;
            s.states.empty() ? choose_slots(s, begin, n) : find_states(s, begin, n);
            std::fill(positions + begin, positions + n, s.steps);
            ++s.steps;
        }
        return int64_t(marks.size());
    }

private:
    // The rows from `begin` to `end` are those of sentence s.
    void choose_slots(Sentence& s, int64_t begin, int64_t end) {
        release(s, rows.data() + begin, end - begin);
        if (s.steps == s.capacity) {
            const int64_t capacity = 2 * s.capacity + 16;
            std::vector<int32_t> wider(beam * capacity);
            for (int64_t w = 0; w < beam; ++w)
                std::copy_n(s.slots.data() + w * s.capacity, s.steps, wider.data() + w * capacity);
            s.slots.swap(wider);
            s.capacity = capacity;
        }
        for (int64_t i = begin; i < end; ++i) {
            const int32_t slot = take();
            s.owned.push_back(slot);
            s.slots[(rows[i] % beam) * s.capacity + s.steps] = slot;
        }
    }

    void find_states(Sentence& s, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) before[i] = std::exchange(s.states[rows[i] % beam], int32_t(i + 1));
    }

    // Of each hypothesis what its parent had, if they have any.
    template <class Number>
    void of_parents(std::vector<Number>& all, std::vector<Number>& former, const int64_t* parents) const {
        if (all.empty()) return;
        former = all;
        for (int64_t w = 0; w < beam; ++w) all[w] = former[parents[w]];
    }

    int32_t take() {
        if (free.empty()) {
            marks.push_back(0);
            free.reserve(marks.capacity());  // so that releasing cannot fail
            return int32_t(marks.size() - 1);
        }
        const int32_t slot = free.back();
        free.pop_back();
        return slot;
    }

    // Free the slots that no open hypothesis (`count` of them at `open`, all of sentence s) descends from.
    void release(Sentence& s, const int64_t* open, int64_t count) {
        ++now;
        for (int64_t i = 0; i < count; ++i) {
            const int32_t* const own = s.slots.data() + (open[i] % beam) * s.capacity;
            for (int64_t t = 0; t < s.steps; ++t) marks[own[t]] = now;
        }
        size_t kept = 0;
        for (const int32_t slot : s.owned) {
            if (marks[slot] == now)
                s.owned[kept++] = slot;
            else
                free.push_back(slot);
        }
        s.owned.resize(kept);
    }
};

}  // namespace
