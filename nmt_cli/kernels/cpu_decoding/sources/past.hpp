// The keys and values that each hypothesis of a beam search descends from, and attention to them.

#pragma once

#include <algorithm>
#include <vector>

#include "attention.hpp"

namespace {

struct Sentence {
    int64_t cohort, first, size;     // its source: which memory, where it begins there, S
    int64_t steps = 0;               // tokens that each hypothesis has in the caches
    std::vector<int32_t> past;       // (W, capacity): the places of each hypothesis's tokens
    std::vector<int32_t> owned;      // places that are the sentence's, some perhaps of hypotheses given up
    int64_t capacity = 0;
};

struct Past {
    int64_t beam;
    std::vector<Sentence> sentences;
    std::vector<int32_t> free;
    std::vector<uint32_t> marks;  // of each place: when it was last seen in use
    uint32_t now = 0;
    std::vector<int32_t> spare;
    std::vector<int64_t> rows;  // of the step under way: b * W + w

    // How many rows from n on are of one sentence, GROUP at most.
    int together(int64_t n) const {
        int more = 1;
        while (more < GROUP && n + more < int64_t(rows.size()) && rows[n + more] / beam == rows[n] / beam) ++more;
        return more;
    }

    int32_t take() {
        if (free.empty()) {
            marks.push_back(0);
            return int32_t(marks.size() - 1);
        }
        const int32_t place = free.back();
        free.pop_back();
        return place;
    }

    // What no open hypothesis (`count` of them at `open`, all of sentence b) descends from is free again.
    void release(Sentence& s, const int64_t* open, int64_t count) {
        ++now;
        for (int64_t i = 0; i < count; ++i) {
            const int32_t* const own = s.past.data() + (open[i] % beam) * s.capacity;
            for (int64_t t = 0; t < s.steps; ++t) marks[own[t]] = now;
        }
        size_t kept = 0;
        for (const int32_t place : s.owned) {
            if (marks[place] == now)
                s.owned[kept++] = place;
            else
                free.push_back(place);
        }
        s.owned.resize(kept);
    }
};

}  // namespace

extern "C" {

Past* nmt_past_new(int64_t beam) {
    Past* const past = new Past;
    past->beam = beam;
    return past;
}

void nmt_past_delete(Past* past) { delete past; }

// One more sentence, behind the others: its source is `size` rows of memory number `cohort` from `first` on.
void nmt_past_enter(Past* past, int64_t cohort, int64_t first, int64_t size) { past->sentences.push_back({cohort, first, size, 0, {}, {}, 0}); }

// Hypothesis w of sentence b goes on from what was its hypothesis parents[b * W + w].
void nmt_past_reorder(Past* past, const int64_t* parents) {
    const int64_t beam = past->beam;
    for (Sentence& s : past->sentences) {
        past->spare.resize(s.past.size());
        for (int64_t w = 0; w < beam; ++w) std::copy_n(s.past.data() + parents[w] * s.capacity, s.steps, past->spare.data() + w * s.capacity);
        std::swap(past->spare, s.past);
        parents += beam;
    }
}

// Those sentences stay, ascending. Returns for each cohort below `cohorts` in `left` how many sentences it has.
void nmt_past_keep(Past* past, int64_t count, const int64_t* stay, int64_t cohorts, int64_t* left) {
    std::fill(left, left + cohorts, 0);
    int64_t next = 0;
    for (int64_t b = 0; b < int64_t(past->sentences.size()); ++b) {
        Sentence& s = past->sentences[b];
        if (next < count && stay[next] == b) {
            ++left[s.cohort];
            if (next != b) past->sentences[next] = std::move(s);
            ++next;
        } else {
            past->release(s, nullptr, 0);
        }
    }
    past->sentences.erase(past->sentences.begin() + next, past->sentences.end());
}

// A step of the open hypotheses `rows` (N,), ascending b * W + w: tells each one's position, and gives each a place for
// its new keys and values. Returns how many places there are.
int64_t nmt_past_step(Past* past, int64_t count, const int64_t* rows, int64_t* positions) {
    const int64_t beam = past->beam;
    past->rows.assign(rows, rows + count);
    int64_t n = 0;
    for (int64_t b = 0; b < int64_t(past->sentences.size()); ++b) {
        Sentence& s = past->sentences[b];
        const int64_t begin = n;
        while (n < count && rows[n] / beam == b) ++n;
        past->release(s, rows + begin, n - begin);
        if (s.steps == s.capacity) {
            const int64_t capacity = 2 * s.capacity + 16;
            std::vector<int32_t> wider(beam * capacity);
            for (int64_t w = 0; w < beam; ++w) std::copy_n(s.past.data() + w * s.capacity, s.steps, wider.data() + w * capacity);
            s.past.swap(wider);
            s.capacity = capacity;
        }
        for (int64_t i = begin; i < n; ++i) {
            const int32_t place = past->take();
            s.owned.push_back(place);
            s.past[(rows[i] % beam) * s.capacity + s.steps] = place;
            positions[i] = s.steps;
        }
        ++s.steps;
    }
    return int64_t(past->marks.size());
}

// Self-attention of the step: given (N, 2 * H * K + H * V) holds queries, keys and values; keys and values go to their
// places in the cache, rows (H * K + H * V) of bf16 or fp32.
void nmt_attend_past(const Past* past, int64_t heads, int64_t key, int64_t value, float scale, const void* given, int kind, void* cache, int cache_kind, void* out, int out_kind, float step) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    std::vector<float>& y = room.out;
    for (int64_t n = 0, together = 1; n < int64_t(past->rows.size()); n += together) {
        together = past->together(n);
        const Sentence& s = past->sentences[past->rows[n] / past->beam];
        At at{};
        for (const int32_t*& list : at.lists) list = s.past.data() + (past->rows[n] % past->beam) * s.capacity;
        for (int64_t r = 0; r < together; ++r) {
            at.lists[r] = s.past.data() + (past->rows[n + r] % past->beam) * s.capacity;
            const char* const from = static_cast<const char*>(given) + (n + r) * (stride + keys) * size_of(kind);
            y.resize(stride);
            if (kind == FP32)
                loaded(reinterpret_cast<const float*>(from) + keys, stride, 1.0f, y.data());
            else
                loaded(reinterpret_cast<const bf16*>(from) + keys, stride, 1.0f, y.data());
            store(y.data(), stride, static_cast<char*>(cache) + at(int(r), s.steps - 1) * stride * size_of(cache_kind), cache_kind, 1.0f);
        }
        const char* const q = static_cast<const char*>(given) + n * (stride + keys) * size_of(kind);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_kind);
        if (cache_kind == FP32)
            attend<float>(shape, int(together), q, kind, stride + keys, cache, static_cast<float*>(cache) + keys, stride, at, s.steps, to, out_kind, step);
        else
            attend<bf16>(shape, int(together), q, kind, stride + keys, cache, static_cast<bf16*>(cache) + keys, stride, at, s.steps, to, out_kind, step);
    }
}

// Attention of the step to the source: queries (N, H * K); `memories` points to each cohort's rows (H * K + H * V).
void nmt_attend_memory(const Past* past, int64_t heads, int64_t key, int64_t value, float scale, const void* queries, int kind, const void* const* memories, int memory_kind, void* out, int out_kind, float step) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    for (int64_t n = 0, together = 1; n < int64_t(past->rows.size()); n += together) {
        together = past->together(n);
        const Sentence& s = past->sentences[past->rows[n] / past->beam];
        const char* const q = static_cast<const char*>(queries) + n * keys * size_of(kind);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_kind);
        const char* const memory = static_cast<const char*>(memories[s.cohort]) + s.first * stride * size_of(memory_kind);
        const At at{};
        if (memory_kind == FP32)
            attend<float>(shape, int(together), q, kind, keys, memory, memory + keys * sizeof(float), stride, at, s.size, to, out_kind, step);
        else
            attend<bf16>(shape, int(together), q, kind, keys, memory, memory + keys * sizeof(bf16), stride, at, s.size, to, out_kind, step);
    }
}

}  // extern "C"
