// The layers of the decoder, or of the encoder: from embeddings to the rows that the output map reads.

#pragma once

#include <vector>

#include "history.hpp"
#include "model.hpp"
#include "norms.hpp"
#include "positions.hpp"
#include "ssru.hpp"

namespace {

constexpr int64_t HIDDEN =
    1 << 17;  // numbers of a network's hidden layer that stay in the second cache: its rows come in blocks

// Rows for a product: floats, or bytes of a grid with their scales.
struct Buffer {
    Aligned<float> numbers;  // as many bytes as fp32 needs
    std::vector<float> scales;

    RowsOut out(int64_t rows, int64_t size, int kind) {
        if (int64_t(numbers.size()) < rows * size) numbers.resize(rows * size);
        if (int64_t(scales.size()) < rows) scales.resize(rows);
        return {numbers.data(), scales.data(), kind};
    }
};

RowsIn read(const RowsOut& rows) { return {rows.data, rows.scales, rows.kind}; }

// Rows of results, which may be longer than asked for.
inline float* sized(Aligned<float>& x, int64_t count) {
    if (int64_t(x.size()) < count) x.resize(count);
    return x.data();
}

// The buffers of a step.
struct Rows {
    Aligned<float> x, wide, y;
    Buffer h, context, hidden;
};

thread_local Rows rows_of_step;

// Feed-forward (equation 2) of rows h (N, D): (N, D). The hidden layer is computed for a block of rows at a time.
void feed_forward(const nmt_model& model, const Sublayer& sublayer, int64_t rows, const RowsIn& h, float* y) {
    Rows& r = rows_of_step;
    const Map &first = sublayer.first, &last = sublayer.last;
    const int64_t bytes = h.kind == FP32 ? sizeof(float) : 1, block = std::max<int64_t>(16, HIDDEN / first.d_out);
    for (int64_t n = 0; n < rows; n += block) {
        const int64_t here = std::min(block, rows - n);
        float* const wide = sized(r.wide, here * first.d_out);
        const RowsIn some{static_cast<const char*>(h.data) + n * first.d_in * bytes, h.scales + n, h.kind};
        multiply(first, here, some, wide);
        if (!first.relu) activate(int32_t(model.config.activation), here, last.d_in, wide);
        RowsIn hidden{wide, nullptr, FP32};
        if (last.scales) {
            const RowsOut to = r.hidden.out(here, last.d_in, first.relu ? relu_input_of(last) : input_of(last));
            for (int64_t i = 0; i < here; ++i) to.write(i, wide + i * last.d_in, last.d_in);
            hidden = read(to);
        }
        multiply(last, here, hidden, y + n * last.d_out);
    }
}

// See `embed`; `table` is the output map of a model with tied embeddings.
template <class Number>
void embed_packed(const Map& table, int64_t rows, const int64_t* ids, float factor, const float* positions,
                  const int64_t* at, float* out) {
    static thread_local Aligned<Number> row;
    row.resize(table.d_in);
    for (int64_t n = 0, first = 0; n < rows; ++n) {
        unpack(table, ids[n], row.data());
        embed(1, table.d_in, row.data(), table.scales ? table.scales + ids[n] : nullptr, &first, factor, positions,
              at + n, out + n * table.d_in);
    }
}

// Take N rows of tokens at these positions, (N,), through the layers; `states` (N, D) are added to the embeddings, or
// null. mix(sublayer, wide, context) attends, or recurs, with what a sub-layer's first map gave. The result goes to
// `out`, (N, D).
template <class Mix>
void run_layers(const nmt_model& model, const Stack& stack, int64_t rows, const int64_t* ids, const int64_t* positions,
                const float* states, const RowsOut& out, const Mix& mix) {
    Rows& r = rows_of_step;
    const nmt_config& config = model.config;
    const int64_t size = config.d_model;
    float *const x = sized(r.x, rows * size), *const result = sized(r.y, rows * size);
    const float factor = std::sqrt(float(size));
    if (stack.table.numbers)
        embed(rows, size, stack.table.numbers, stack.table.scales, ids, factor, stack.positions, positions, x);
    else
        (model.in_int8() ? embed_packed<int8_t> : embed_packed<float>)(model.output, rows, ids, factor, stack.positions,
                                                                       positions, x);
    if (states) add(x, states, rows * size);
    const float* y = nullptr;
    const auto normed = [&](size_t i, const RowsOut& to) {
        const Norm& one = stack.norms[i];
        norm(rows, size, x, y, one.weight, one.bias, float(config.epsilon), config.post_norm, to);
    };
    for (size_t i = 0; i < stack.sublayers.size(); ++i) {
        const Sublayer& sublayer = stack.sublayers[i];
        const Map &first = sublayer.first, &last = sublayer.last;
        const RowsOut h = r.h.out(rows, size, input_of(first));
        normed(i, h);
        if (sublayer.kind == FEED_FORWARD) {
            feed_forward(model, sublayer, rows, read(h), result);
        } else {
            float* const wide = sized(r.wide, rows * first.d_out);
            multiply(first, rows, read(h), wide);
            if (sublayer.kind == SELF_ATTENTION && model.turns)
                rotate(rows, first.d_out, 2 * config.heads, config.key_size, model.turns, positions, wide);
            const bool recurs = sublayer.kind == SSRU;
            const RowsOut context =
                recurs ? RowsOut{result, nullptr, FP32} : r.context.out(rows, last.d_in, input_of(last));
            mix(sublayer, wide, context);
            if (!recurs) multiply(last, rows, read(context), result);
        }
        y = result;
    }
    normed(stack.sublayers.size(), out);
}

Shape shape_of(const nmt_model& model) {
    return {model.config.heads, model.config.key_size, model.config.value_size,
            1.0f / std::sqrt(float(model.config.key_size))};
}

// Sentences, one after another: for each token its position, the first row of its sentence, and how many rows that has.
struct Packed {
    std::vector<int64_t> ids, positions, first, count;

    // Raises Failure for ids that the vocabulary does not have, and for too long sentences.
    Packed(const char* side, int64_t sentences, const int64_t* lengths, const int64_t* tokens, int64_t vocabulary,
           int64_t longest) {
        for (int64_t s = 0; s < counted("sentences", sentences); ++s) {
            if (lengths[s] < 1 || lengths[s] > longest)
                fail("a %s has %lld tokens, expected 1 to %lld", side, (long long)lengths[s], (long long)longest);
            const int64_t begin = int64_t(ids.size());
            for (int64_t i = 0; i < lengths[s]; ++i, ++tokens) {
                if (*tokens < 0 || *tokens >= vocabulary)
                    fail("a %s has the token %lld, expected 0 to %lld", side, (long long)*tokens,
                         (long long)vocabulary - 1);
                ids.push_back(*tokens);
                positions.push_back(i);
                first.push_back(begin);
                count.push_back(lengths[s]);
            }
        }
    }

    int64_t size() const { return int64_t(ids.size()); }
};

// The encoder's states of packed sentences, (tokens, D). Of a single sentence, `weights` (layers, S, H, S) may be asked
// for.
Aligned<float> encode(const nmt_model& model, const Packed& packed, float* weights = nullptr) {
    const int64_t rows = packed.size(), keys = model.keys(), width = 2 * keys + model.values();
    Aligned<float> states(rows * model.config.d_model);
    const RowsOut out{states.data(), nullptr, FP32};
    run_layers(model, model.encoder, rows, packed.ids.data(), packed.positions.data(), nullptr, out,
               [&](const Sublayer& sublayer, const float* wide, const RowsOut& context) {
                   const int64_t of_layer = rows * model.config.heads * rows;
                   attend_range(shape_of(model), rows, wide, width, wide + keys, wide + 2 * keys, width,
                                packed.first.data(), packed.count.data(), context,
                                weights ? weights + sublayer.layer * of_layer : nullptr);
               });
    return states;
}

// Rows of floats in the dtype of keys and values that are kept.
void keep_rows(const nmt_model& model, const float* x, int64_t count, void* to) { store(x, count, to, model.cache()); }

// The encoder's states (N, D), projected for each decoder layer: keys and values.
std::shared_ptr<const Memory> memory_of(const nmt_model& model, int64_t rows, const float* states) {
    Rows& r = rows_of_step;
    const int64_t size = model.config.d_model, width = model.keys() + model.values();
    const RowsOut h = r.h.out(rows, size, model.in_int8() ? input_of(model.memory[0]) : int(FP32));
    for (int64_t n = 0; n < rows; ++n) h.write(n, states + n * size, size);
    auto layers = std::make_shared<Memory>();
    for (const Map& map : model.memory) {
        float* const wide = sized(r.wide, rows * width);
        multiply(map, rows, read(h), wide);
        layers->emplace_back(rows * width * model.cache_bytes());
        keep_rows(model, wide, rows * width, layers->back().data());
    }
    return layers;
}

}  // namespace
