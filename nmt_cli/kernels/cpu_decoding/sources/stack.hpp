// The decoder's layers as one function: a step of all open hypotheses, from embeddings to the rows that the output map reads.

#pragma once

#include <vector>

#include "history.hpp"
#include "matmul.hpp"
#include "norms.hpp"
#include "positions.hpp"

// LayerNorm; without weights there is none.
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
    const float *table, *positions;          // embeddings and positional encodings, or null
    const float* rotations;                  // of queries and keys in self-attention, or null
    const Sublayer* sublayers;
    const Norm* norms;
    const Map* output;
};

namespace {

// The buffers of a step. Rows for products are fp32 or int8, in as many bytes as fp32 needs.
struct Rows {
    std::vector<float> x, h, wide, context, y;
};

thread_local Rows rows_of_step;

// h <- the rows that `reader` reads: norms[i] of x + y, which may be null.
void normed(const Stack& stack, int64_t i, int64_t rows, const float* y, const Map& reader, int dtype) {
    const Norm& norm = stack.norms[i];
    nmt_norm(rows, stack.size, rows_of_step.x.data(), y, FP32, norm.weight, norm.bias, norm.epsilon, stack.post, rows_of_step.h.data(), dtype, reader.input_scale);
}

}  // namespace

extern "C" {

// Take the step that `nmt_history_step` began, for N rows with these newest tokens and positions: (N,). caches[l] is that of
// layer l; memories[l] points to each sub-batch's keys and values; `read` (N, D) is added to the embeddings, or null.
// Write the rows that the output map reads to `out`, (N, D).
void nmt_stack_step(const Stack* stack, const BeamHistory* history, int64_t rows, const int64_t* ids, const int64_t* positions, const float* read, void* const* caches, const void* const* const* memories, int64_t threads, void* out) {
    Rows& r = rows_of_step;
    const int64_t size = stack->size, heads = stack->heads, key = stack->key, value = stack->value;
    int64_t widest = 0;
    for (int64_t i = 0; i < stack->count; ++i) widest = std::max(widest, stack->sublayers[i].first->d_out);
    r.x.resize(rows * size);
    r.h.resize(rows * size);
    r.y.resize(rows * size);
    r.wide.resize(rows * widest);
    r.context.resize(rows * heads * value);
    nmt_embed(rows, size, stack->table, ids, stack->factor, stack->positions, positions, r.x.data());
    if (read) add(r.x.data(), read, rows * size);
    const float* y = nullptr;
    for (int64_t i = 0; i < stack->count; ++i) {
        const Sublayer& sublayer = stack->sublayers[i];
        const Map &first = *sublayer.first, &last = *sublayer.last;
        normed(*stack, i, rows, y, first, first.input());
        if (sublayer.kind == FEED_FORWARD) {
            const bool in_bytes = last.scales;
            multiply(first, rows, r.h.data(), first.input(), threads, r.wide.data(), in_bytes, in_bytes ? 1.0f / last.input_scale : 1.0f);
            multiply(last, rows, r.wide.data(), in_bytes ? UINT8 : FP32, threads, r.y.data());
        } else {
            multiply(first, rows, r.h.data(), first.input(), threads, r.wide.data());
            if (sublayer.kind == SELF_ATTENTION && stack->rotations)
                nmt_rotate(rows, first.d_out, 2 * heads, key, stack->rotations, positions, r.wide.data(), FP32);
            if (sublayer.kind == SELF_ATTENTION)
                nmt_attend_history(history, heads, key, value, stack->scale, r.wide.data(), FP32, caches[sublayer.layer], stack->cache, r.context.data(), last.input(), last.input_scale);
            else
                nmt_attend_memory(history, heads, key, value, stack->scale, r.wide.data(), FP32, memories[sublayer.layer], stack->cache, r.context.data(), last.input(), last.input_scale);
            multiply(last, rows, r.context.data(), last.input(), threads, r.y.data());
        }
        y = r.y.data();
    }
    const int dtype = stack->output->scales ? INT8 : FP32;
    normed(*stack, stack->count, rows, y, *stack->output, dtype);
    std::memcpy(out, r.h.data(), rows * size * size_of(dtype));
}

}  // extern "C"
