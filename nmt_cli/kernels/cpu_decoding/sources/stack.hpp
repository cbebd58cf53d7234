// The layers of the decoder, or of the encoder, as one function: from embeddings to the rows that the output map reads.

#pragma once

#include <vector>

#include "activations.hpp"
#include "history.hpp"
#include "matmul.hpp"
#include "norms.hpp"
#include "positions.hpp"

// LayerNorm, or RMSNorm without a bias; without weights there is no norm.
struct Norm {
    const float *weight, *bias;
    float epsilon;
};

enum SublayerKind : int64_t { SELF_ATTENTION = 0, CROSS_ATTENTION = 1, FEED_FORWARD = 2 };

// `first` reads the residual stream, `last` writes to it. Attention's layer is the number of its cache or memory.
struct Sublayer {
    int64_t kind, layer;
    const Map *first, *last;
};

// `norms` has one more than `sublayers`: norms[i] is before the i-th, the last one after all. `output` reads the result.
struct Stack {
    int64_t size, heads, key, value, count;  // D, H, K, V, number of sub-layers
    float factor;                            // of embeddings
    float scale;                             // of attention's scores
    int32_t post;                            // norms are after the residual sum
    int32_t cache;                           // dtype of keys and values
    int32_t activation;                      // of the feed-forward networks
    const void* table;                       // embeddings, fp32 or int8
    const float* table_scales;               // of int8 embeddings, else null
    const float* positions;                  // positional encodings, or null
    const float* rotations;                  // of queries and keys in self-attention, or null
    const Sublayer* sublayers;
    const Norm* norms;
    const Map* output;                       // or null: the result is fp32
};

namespace {

// The buffers of a step. Rows for products are fp32 or int8, in as many bytes as fp32 needs.
struct Rows {
    std::vector<float> x, h, wide, context, y;
    std::vector<int8_t> hidden;  // of a feed-forward network
};

thread_local Rows rows_of_step;

// h <- norms[i] of x + y, which may be null, in `dtype`, for `reader`.
void normed(const Stack& stack, int64_t i, int64_t rows, const float* y, const Map* reader, int dtype, void* h) {
    const Norm& norm = stack.norms[i];
    nmt_norm(rows, stack.size, rows_of_step.x.data(), y, FP32, norm.weight, norm.bias, norm.epsilon, stack.post, h, dtype, reader ? reader->input_scale : 1.0f);
}

// Take N rows of tokens at these positions, (N,), through the layers; `read` (N, D) is added to the embeddings, or null.
// attend(sublayer, wide, context) attends with what a sub-layer's first map gave. The result goes to `out`, (N, D).
template <class Attend>
void run_layers(const Stack& stack, int64_t rows, const int64_t* ids, const int64_t* positions, const float* read, int64_t threads, void* out, const Attend& attend) {
    Rows& r = rows_of_step;
    const int64_t size = stack.size;
    int64_t widest = 0;
    for (int64_t i = 0; i < stack.count; ++i) widest = std::max(widest, stack.sublayers[i].first->d_out);
    r.x.resize(rows * size);
    r.h.resize(rows * size);
    r.y.resize(rows * size);
    r.wide.resize(rows * widest);
    r.context.resize(rows * stack.heads * stack.value);
    nmt_embed(rows, size, stack.table, stack.table_scales, ids, stack.factor, stack.positions, positions, r.x.data());
    if (read) add(r.x.data(), read, rows * size);
    const float* y = nullptr;
    for (int64_t i = 0; i < stack.count; ++i) {
        const Sublayer& sublayer = stack.sublayers[i];
        const Map &first = *sublayer.first, &last = *sublayer.last;
        normed(stack, i, rows, y, &first, input_of(first), r.h.data());
        if (sublayer.kind == FEED_FORWARD && stack.activation) {
            multiply(first, rows, r.h.data(), input_of(first), threads, r.wide.data());
            nmt_activate(stack.activation, rows, last.d_in, r.wide.data());
            if (last.scales) {
                r.hidden.resize(rows * last.d_in);
                store(r.wide.data(), rows * last.d_in, r.hidden.data(), INT8, last.input_scale);
                multiply(last, rows, r.hidden.data(), INT8, threads, r.y.data());
            } else {
                multiply(last, rows, r.wide.data(), FP32, threads, r.y.data());
            }
        } else if (sublayer.kind == FEED_FORWARD) {
            const bool in_bytes = last.scales;
            multiply(first, rows, r.h.data(), input_of(first), threads, r.wide.data(), in_bytes, in_bytes ? 1.0f / last.input_scale : 1.0f);
            multiply(last, rows, r.wide.data(), in_bytes ? UINT8 : FP32, threads, r.y.data());
        } else {
            multiply(first, rows, r.h.data(), input_of(first), threads, r.wide.data());
            if (sublayer.kind == SELF_ATTENTION && stack.rotations)
                nmt_rotate(rows, first.d_out, 2 * stack.heads, stack.key, stack.rotations, positions, r.wide.data(), FP32);
            attend(sublayer, r.wide.data(), r.context.data());
            multiply(last, rows, r.context.data(), input_of(last), threads, r.y.data());
        }
        y = r.y.data();
    }
    normed(stack, stack.count, rows, y, stack.output, stack.output && stack.output->scales ? INT8 : FP32, out);
}

}  // namespace

extern "C" {

// Take the decoder's step that `nmt_history_step` began, for N rows with these newest tokens and positions: (N,). caches[l] is that
// of layer l; memories[l] points to each sub-batch's keys and values; `read` (N, D) is added to the embeddings, or null.
// Write the rows that the output map reads to `out`, (N, D).
void nmt_stack_step(const Stack* stack, const BeamHistory* history, int64_t rows, const int64_t* ids, const int64_t* positions, const float* read, void* const* caches, const void* const* const* memories, int64_t threads, void* out) {
    run_layers(*stack, rows, ids, positions, read, threads, out, [&](const Sublayer& sublayer, const float* wide, float* context) {
        const Map& last = *sublayer.last;
        if (sublayer.kind == SELF_ATTENTION)
            nmt_attend_history(history, stack->heads, stack->key, stack->value, stack->scale, wide, FP32, caches[sublayer.layer], stack->cache, context, input_of(last), last.input_scale);
        else
            nmt_attend_memory(history, stack->heads, stack->key, stack->value, stack->scale, wide, FP32, memories[sublayer.layer], stack->cache, context, input_of(last), last.input_scale);
    });
}

// The encoder, for N rows of packed sentences: row n attends to the `count[n]` rows from `first[n]` on. Write its states to `out`, (N, D) fp32.
void nmt_stack_encode(const Stack* stack, int64_t rows, const int64_t* ids, const int64_t* positions, const int64_t* first, const int64_t* count, int64_t threads, void* out) {
    const int64_t keys = stack->heads * stack->key, width = 2 * keys + stack->heads * stack->value;
    run_layers(*stack, rows, ids, positions, nullptr, threads, out, [&](const Sublayer& sublayer, const float* wide, float* context) {
        const Map& last = *sublayer.last;
        nmt_attend_range(rows, stack->heads, stack->key, stack->value, stack->scale, wide, wide + keys, wide + 2 * keys, FP32, width, width, first, count, context, input_of(last), last.input_scale);
    });
}

// The states (N, D) of the encoder, projected for each of the decoder's `layers` by its map: keys and values, (N, H * K + H * V) in the dtype of caches.
void nmt_stack_memory(const Stack* stack, int64_t layers, const Map* const* maps, int64_t rows, const float* states, int64_t threads, void* const* out) {
    Rows& r = rows_of_step;
    r.h.resize(rows * stack->size);
    for (int64_t layer = 0; layer < layers; ++layer) {
        const Map& map = *maps[layer];
        if (map.scales) store(states, rows * map.d_in, r.h.data(), INT8_INPUT, map.input_scale);
        const void* const x = map.scales ? static_cast<const void*>(r.h.data()) : states;
        if (stack->cache == FP32) {
            multiply(map, rows, x, input_of(map), threads, out[layer]);
            continue;
        }
        r.wide.resize(rows * map.d_out);
        multiply(map, rows, x, input_of(map), threads, r.wide.data());
        store(r.wide.data(), rows * map.d_out, out[layer], stack->cache, 1.0f);
    }
}

}  // extern "C"
