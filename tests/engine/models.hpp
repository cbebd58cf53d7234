// The arrays of a model, as the model folder has them: for hostile.cpp and same_bits.cpp, which include engine.cpp
// before.

#pragma once

#include <string>
#include <vector>

struct Form {
    std::string name;
    int64_t rows, columns;  // columns 0: one dimension
    bool is_matrix;         // int8 stores integers
};

std::vector<Form> forms_of(const nmt_config& c) {
    std::vector<Form> all;
    const int64_t size = c.d_model, keys = c.heads * c.key_size, values = c.heads * c.value_size;
    const auto table = [&](const std::string& name, int64_t rows) { all.push_back({name, rows, size, true}); };
    const auto vector_of = [&](const std::string& name, int64_t count) { all.push_back({name, count, 0, false}); };
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
        all.push_back({name + ".weight", rows, columns, true});
        vector_of(name + ".bias", rows);
    };
    const auto norm = [&](const std::string& name) {
        vector_of(name + ".weight", size);
        if (c.norm == NMT_LAYER_NORM) vector_of(name + ".bias", size);
    };
    if (c.tied)
        table("embeddings.shared", c.source_vocab);
    else
        table("embeddings.source", c.source_vocab), table("embeddings.target", c.target_vocab),
            table("embeddings.output", c.target_vocab);
    if (c.monotonic) vector_of("next_word.begins", c.source_vocab), vector_of("next_word.ends", c.target_vocab);
    if (c.positions == NMT_LEARNED)
        for (const char* const side : {"source", "target"})
            all.push_back({side + std::string("_positions.weight"), c.max_positions, size, false});
    for (const bool decodes : {false, true}) {
        const std::string side = decodes ? "decoder" : "encoder";
        for (int64_t layer = 0; layer < (decodes ? c.decoder_layers : c.encoder_layers); ++layer) {
            const std::string here = side + "." + std::to_string(layer) + ".";
            if (decodes && c.decoder == NMT_SSRU) {
                all.push_back({here + "ssru.candidate_forget.weight", 2 * size, size, true});
                vector_of(here + "ssru.forget_bias", size);
            } else {
                matrix(here + "self_attention.query_key_value", 2 * keys + values, size);
                matrix(here + "self_attention.output", size, values);
            }
            norm(here + "around_self_attention.norm");
            if (decodes) {
                matrix(here + "cross_attention.query", keys, size);
                matrix(here + "cross_attention.key_value", keys + values, size);
                matrix(here + "cross_attention.output", size, values);
                norm(here + "around_cross_attention.norm");
            }
            matrix(here + "feed_forward.inner", c.d_ff * (c.activation == NMT_SWIGLU ? 2 : 1), size);
            matrix(here + "feed_forward.outer", size, c.d_ff);
            norm(here + "around_feed_forward.norm");
        }
        if (!c.post_norm) norm(side + "_norm");
    }
    return all;
}
