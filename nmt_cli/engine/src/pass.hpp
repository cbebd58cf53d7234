// One pass over a sentence and its translation, all tokens at once (teacher forcing): log-probabilities, and attention.

#pragma once

#include "decoder.hpp"

namespace {

class Pass {
public:
    explicit Pass(const nmt_model& model) : model(model) {}

    // See nmt_pass; here all pointers are those of one sentence.
    void run(const Packed& source, const Packed& target, const int64_t* next, float* log_probs, float* encoder,
             float* decoder, float* cross) {
        const int64_t rows = target.size(), columns = source.size();
        const Aligned<float> states = encode(model, source, encoder);
        const std::shared_ptr<const Memory> memory = memory_of(model, columns, states.data());
        const std::vector<float> read_states = model.begins ? next_words(source, target, states) : std::vector<float>();
        const RowsOut h = hidden.out(rows, model.config.d_model, input_of(model.output));
        run_layers(model, model.decoder, rows, target.ids.data(), target.positions.data(),
                   model.begins ? read_states.data() : nullptr, h,
                   [&](const Sublayer& sublayer, const float* wide, const RowsOut& context) {
                       if (sublayer.kind == SSRU) return recur_rows(rows, wide, static_cast<float*>(context.data));
                       const bool own = sublayer.kind == SELF_ATTENTION;
                       const int64_t of_layer = rows * model.config.heads * (own ? rows : columns);
                       float* const to = own ? decoder : cross;
                       float* const weights = to ? to + sublayer.layer * of_layer : nullptr;
                       model.in_int8() ? attend_rows<bf16>(sublayer, wide, context, rows, columns, *memory, weights)
                                       : attend_rows<float>(sublayer, wide, context, rows, columns, *memory, weights);
                   });
        if (log_probs) find_log_probs(read(h), rows, next, log_probs);
    }

private:
    const nmt_model& model;
    Buffer hidden;
    Aligned<char> own_rows;
    Aligned<float> of_row, state;  // weights (H, count); of SSRU, (D,)

    void recur_rows(int64_t rows, const float* wide, float* out) {
        const int64_t size = model.config.d_model;
        state.assign(size, 0.0f);
        for (int64_t n = 0; n < rows; ++n) recur(size, wide + 2 * n * size, state.data(), state.data(), out + n * size);
    }

    // Row n attends to the target's rows up to itself, or to the source.
    template <class T>
    void attend_rows(const Sublayer& sublayer, const float* wide, const RowsOut& context, int64_t rows, int64_t columns,
                     const Memory& memory, float* weights) {
        const bool own = sublayer.kind == SELF_ATTENTION;
        const int64_t keys = model.keys(), stride = keys + model.values(), queries = own ? keys + stride : keys;
        const T* from = reinterpret_cast<const T*>(memory[sublayer.layer].data());
        if (own) {
            own_rows.resize(rows * stride * sizeof(T));
            T* const kept = reinterpret_cast<T*>(own_rows.data());
            for (int64_t n = 0; n < rows; ++n) keep_rows(model, wide + n * queries + keys, stride, kept + n * stride);
            from = kept;
        }
        const int64_t heads = model.config.heads, width = own ? rows : columns;
        for (int64_t n = 0; n < rows; ++n) {
            const int64_t count = own ? n + 1 : columns;
            float* const w = weights ? sized(of_row, heads * count) : nullptr;
            attend<T>(shape_of(model), 1, wide + n * queries, queries, from, from + keys, stride,
                      {0, {}, nullptr, nullptr, 0}, count, context, n, w);
            for (int64_t h = 0; w && h < heads; ++h)
                std::copy_n(w + h * count, count, weights + (n * heads + h) * width);
        }
    }

    // Of hard monotonic attention: the states that each target token reads, (T, D).
    std::vector<float> next_words(const Packed& source, const Packed& target, const Aligned<float>& states) const {
        const int64_t size = model.config.d_model;
        std::vector<int64_t> begins;
        for (int64_t i = 0; i + 1 < source.size(); ++i)
            if (model.begins[source.ids[i]] != 0.0f) begins.push_back(i);
        begins.push_back(source.size() - 1);
        std::vector<float> read;
        int64_t written = 0;
        for (const int64_t token : target.ids) {
            written += model.ends[token] != 0.0f;
            const float* const state = states.data() + begins[std::min(written, int64_t(begins.size()) - 1)] * size;
            read.insert(read.end(), state, state + size);
        }
        return read;
    }

    void find_log_probs(const RowsIn& h, int64_t rows, const int64_t* next, float* log_probs) {
        constexpr int64_t AT_ONCE = 64;
        const int64_t vocabulary = model.config.target_vocab;
        Aligned<float> logits(std::min(rows, AT_ONCE) * vocabulary);
        const int64_t bytes = h.kind == FP32 ? sizeof(float) : 1, size = model.config.d_model;
        for (int64_t first = 0; first < rows; first += AT_ONCE) {
            const int64_t here = std::min(AT_ONCE, rows - first);
            const RowsIn some{static_cast<const char*>(h.data) + first * size * bytes, h.scales + first, h.kind};
            multiply(model.output, here, some, logits.data());
            log_softmax(here, vocabulary, logits.data());
            for (int64_t n = 0; n < here; ++n) log_probs[first + n] = logits[n * vocabulary + next[first + n]];
        }
    }
};

}  // namespace
