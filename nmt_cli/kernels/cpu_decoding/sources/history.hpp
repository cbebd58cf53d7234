// Which cached keys and values each hypothesis of a beam search descends from, and attention to them.

#pragma once

#include <algorithm>
#include <vector>

#include "attention.hpp"

namespace {

struct Sentence {
    int64_t sub_batch, first, size;     // its source: number of its memory, first row there, S
    int64_t steps = 0;               // tokens of each hypothesis in the caches
    std::vector<int32_t> slots;      // (W, capacity): the slots of each hypothesis's tokens
    std::vector<int32_t> owned;      // all slots of the sentence, also those of dropped hypotheses
    int64_t capacity = 0;
};

struct BeamHistory {
    int64_t beam;
    std::vector<Sentence> sentences;
    std::vector<int32_t> free;
    std::vector<uint32_t> marks;  // per slot: the last time it was found in use
    uint32_t now = 0;
    std::vector<int32_t> spare;
    std::vector<int64_t> rows;            // of the current step: b * W + w
    mutable std::vector<uint8_t> common;  // of a group: see `RowIndex`

    // Return how many rows from n on belong to one sentence, at most GROUP.
    int group(int64_t n) const {
        int more = 1;
        while (more < GROUP && n + more < int64_t(rows.size()) && rows[n + more] / beam == rows[n] / beam) ++more;
        return more;
    }

    // Return the slots of these rows, which belong to one sentence.
    RowIndex slots(int64_t n, int count) const {
        const Sentence& s = sentences[rows[n] / beam];
        RowIndex at{};
        for (int r = 0; r < GROUP; ++r) at.lists[r] = s.slots.data() + (rows[n + (r < count ? r : 0)] % beam) * s.capacity;
        common.resize(s.capacity);
        uint8_t* const same = common.data();
#pragma omp simd
        for (int64_t i = 0; i < s.steps; ++i) same[i] = uint8_t((at.lists[0][i] == at.lists[1][i]) & (at.lists[0][i] == at.lists[2][i]) & (at.lists[0][i] == at.lists[3][i]));
        at.common = same;
        if (n + count < int64_t(rows.size())) {
            const Sentence& after = sentences[rows[n + count] / beam];
            at.next = after.slots.data() + (rows[n + count] % beam) * after.capacity;
            at.next_count = after.steps;
        }
        return at;
    }

    // Return how many slots a step of so many rows needs at most.
    int64_t slots_for(int64_t count) const { return int64_t(marks.size()) + std::max<int64_t>(0, count - int64_t(free.size())); }

    int32_t take() {
        if (free.empty()) {
            marks.push_back(0);
            return int32_t(marks.size() - 1);
        }
        const int32_t slot = free.back();
        free.pop_back();
        return slot;
    }

    // Free the slots that no open hypothesis (`count` of them at `open`, all of sentence b) descends from.
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

extern "C" {

BeamHistory* nmt_history_new(int64_t beam) {
    BeamHistory* const history = new BeamHistory;
    history->beam = beam;
    return history;
}

void nmt_history_delete(BeamHistory* history) { delete history; }

// Add a sentence behind the others: its source is `size` rows of memory number `sub_batch` from `first` on.
void nmt_history_add(BeamHistory* history, int64_t sub_batch, int64_t first, int64_t size) { history->sentences.push_back({sub_batch, first, size, 0, {}, {}, 0}); }

// Hypothesis w of sentence b continues its former hypothesis parents[b * W + w].
void nmt_history_reorder(BeamHistory* history, const int64_t* parents) {
    const int64_t beam = history->beam;
    for (Sentence& s : history->sentences) {
        history->spare.resize(s.slots.size());
        for (int64_t w = 0; w < beam; ++w) std::copy_n(s.slots.data() + parents[w] * s.capacity, s.steps, history->spare.data() + w * s.capacity);
        std::swap(history->spare, s.slots);
        parents += beam;
    }
}

// Keep these sentences, ascending. Write to `left` how many sentences each of the `sub_batches` has then.
void nmt_history_keep(BeamHistory* history, int64_t count, const int64_t* stay, int64_t sub_batches, int64_t* left) {
    std::fill(left, left + sub_batches, 0);
    int64_t next = 0;
    for (int64_t b = 0; b < int64_t(history->sentences.size()); ++b) {
        Sentence& s = history->sentences[b];
        if (next < count && stay[next] == b) {
            ++left[s.sub_batch];
            if (next != b) history->sentences[next] = std::move(s);
            ++next;
        } else {
            history->release(s, nullptr, 0);
        }
    }
    history->sentences.erase(history->sentences.begin() + next, history->sentences.end());
}

// Begin a step of the open hypotheses `rows` (N,), ascending b * W + w: write each one's position, and choose a slot for its
// new keys and values. Return the number of slots.
int64_t nmt_history_step(BeamHistory* history, int64_t count, const int64_t* rows, int64_t* positions) {
    const int64_t beam = history->beam;
    history->rows.assign(rows, rows + count);
    int64_t n = 0;
    for (int64_t b = 0; b < int64_t(history->sentences.size()); ++b) {
        Sentence& s = history->sentences[b];
        const int64_t begin = n;
        while (n < count && rows[n] / beam == b) ++n;
        history->release(s, rows + begin, n - begin);
        if (s.steps == s.capacity) {
            const int64_t capacity = 2 * s.capacity + 16;
            std::vector<int32_t> wider(beam * capacity);
            for (int64_t w = 0; w < beam; ++w) std::copy_n(s.slots.data() + w * s.capacity, s.steps, wider.data() + w * capacity);
            s.slots.swap(wider);
            s.capacity = capacity;
        }
        for (int64_t i = begin; i < n; ++i) {
            const int32_t slot = history->take();
            s.owned.push_back(slot);
            s.slots[(rows[i] % beam) * s.capacity + s.steps] = slot;
            positions[i] = s.steps;
        }
        ++s.steps;
    }
    return int64_t(history->marks.size());
}

// Self-attention of a step: input (N, 2 * H * K + H * V) holds queries, keys and values; keys and values go to their
// slots in the cache, rows (H * K + H * V) of bf16 or fp32.
void nmt_attend_history(const BeamHistory* history, int64_t heads, int64_t key, int64_t value, float scale, const void* input, int dtype, void* cache, int cache_dtype, void* out, int out_dtype, float int8_scale) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    const int64_t slot = stride * size_of(cache_dtype);
    for (int64_t n = 0, group = 1; n < int64_t(history->rows.size()); n += group) {
        group = history->group(n);
        const Sentence& s = history->sentences[history->rows[n] / history->beam];
        const RowIndex at = history->slots(n, int(group));
        for (int64_t r = 0; r < group; ++r) {
            const char* const from = static_cast<const char*>(input) + (n + r) * (stride + keys) * size_of(dtype);
            const float* y = reinterpret_cast<const float*>(from) + keys;
            if (dtype != FP32) {
                scratch.out.resize(stride);
                load_scaled(reinterpret_cast<const bf16*>(from) + keys, stride, 1.0f, scratch.out.data());
                y = scratch.out.data();
            }
            store(y, stride, static_cast<char*>(cache) + at(int(r), s.steps - 1) * slot, cache_dtype, 1.0f);
        }
        const char* const q = static_cast<const char*>(input) + n * (stride + keys) * size_of(dtype);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_dtype);
        if (cache_dtype == FP32)
            attend<float>(shape, int(group), q, dtype, stride + keys, cache, static_cast<float*>(cache) + keys, stride, at, s.steps, to, out_dtype, int8_scale);
        else
            attend<bf16>(shape, int(group), q, dtype, stride + keys, cache, static_cast<bf16*>(cache) + keys, stride, at, s.steps, to, out_dtype, int8_scale);
    }
}

// Attention of a step to the source: queries (N, H * K); `memories` points to each sub_batch's rows (H * K + H * V).
void nmt_attend_memory(const BeamHistory* history, int64_t heads, int64_t key, int64_t value, float scale, const void* queries, int dtype, const void* const* memories, int memory_dtype, void* out, int out_dtype, float int8_scale) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    for (int64_t n = 0, group = 1; n < int64_t(history->rows.size()); n += group) {
        group = history->group(n);
        const Sentence& s = history->sentences[history->rows[n] / history->beam];
        const char* const q = static_cast<const char*>(queries) + n * keys * size_of(dtype);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_dtype);
        const char* const memory = static_cast<const char*>(memories[s.sub_batch]) + s.first * stride * size_of(memory_dtype);
        const RowIndex at{0, {}, nullptr, nullptr, 0};
        if (memory_dtype == FP32)
            attend<float>(shape, int(group), q, dtype, keys, memory, memory + keys * sizeof(float), stride, at, s.size, to, out_dtype, int8_scale);
        else
            attend<bf16>(shape, int(group), q, dtype, keys, memory, memory + keys * sizeof(bf16), stride, at, s.size, to, out_dtype, int8_scale);
    }
}

}  // extern "C"
