// A decoder: sentences with W hypotheses each, and a step of the open ones.

#pragma once

#include <limits>

#include "layers.hpp"
#include "top_candidates.hpp"

namespace {

constexpr int64_t MOST_BEAM = 1 << 16;

void check_beam(int64_t beam) {
    if (beam < 1 || beam > MOST_BEAM)
        fail("the beam is %lld, expected 1 to %lld", (long long)beam, (long long)MOST_BEAM);
}

// Bytes that grow. What is not written takes no memory, unlike in a vector.
class GrowingBytes {
public:
    char* data() { return start.get(); }
    size_t size() const { return bytes; }

    void grow(size_t wanted) {
        char* const more = LineAllocator<char>().allocate(wanted);
        if (bytes) std::memcpy(more, start.get(), bytes);
        start.reset(more);
        bytes = wanted;
    }

private:
    struct Free {
        void operator()(char* x) const { LineAllocator<char>().deallocate(x, 0); }
    };
    std::unique_ptr<char, Free> start;
    size_t bytes = 0;
};

}  // namespace

struct nmt_decoder {
    const nmt_model& model;
    const int64_t beam;
    BeamHistory history;
    std::vector<GrowingBytes> caches;  // of each layer: keys and values in slots, rows (H * K + H * V)
    Aligned<float> before, after;      // of SSRU: states (1 + N, layers, D), the first row is zeros

    nmt_decoder(const nmt_model& model, int64_t beam)
        : model(model), beam(beam), history(beam), caches(model.recurrent() ? 0 : model.config.decoder_layers) {
        check_beam(beam);
    }

    // Add sentences behind the others. Few at once are encoded, so that what a layer writes stays in the caches.
    void add(int64_t count, const int64_t* lengths, const int64_t* tokens) {
        std::vector<Sentence> more;
        for (int64_t here = 0; counted("sentences", count) > 0; count -= here, lengths += here) {
            int64_t left = ENCODED - std::clamp<int64_t>(lengths[0], 0, ENCODED);
            for (here = 1; here < count && lengths[here] > 0 && lengths[here] <= left; ++here) left -= lengths[here];
            const Packed packed("source", here, lengths, tokens, model.config.source_vocab, model.config.max_positions);
            const Aligned<float> states = encode(model, packed);
            const std::shared_ptr<const Memory> memory = memory_of(model, packed.size(), states.data());
            for (int64_t s = 0, first = 0; s < here; first += lengths[s++]) {
                Sentence one;
                one.memory = memory, one.first = first, one.size = lengths[s];
                if (model.begins) find_words(packed, states.data(), one);
                if (model.recurrent()) one.states.assign(beam, 0);
                more.push_back(std::move(one));
            }
            tokens += packed.size();
        }
        history.sentences.reserve(history.sentences.size() + more.size());
        for (Sentence& one : more) history.sentences.push_back(std::move(one));
    }

    // Take a step of the open hypotheses `open` (N,) with these newest tokens (N,). Return what the output map reads,
    // (N, D); it stays valid until the next step.
    RowsOut step(int64_t rows, const int64_t* open, const int64_t* tokens) {
        const nmt_config& config = model.config;
        const int64_t size = config.d_model, width = model.keys() + model.values(), slot = width * model.cache_bytes();
        for (int64_t n = 0; n < counted("open hypotheses", rows); ++n) {
            if (open[n] < 0 || open[n] >= int64_t(history.sentences.size()) * beam || (n && open[n] <= open[n - 1]))
                fail("the open hypothesis number %lld is %lld, expected ascending numbers below %lld", (long long)n,
                     (long long)open[n], (long long)history.sentences.size() * beam);
            if (tokens[n] < 0 || tokens[n] >= config.target_vocab)
                fail("a hypothesis has the token %lld, expected 0 to %lld", (long long)tokens[n],
                     (long long)config.target_vocab - 1);
            if (history.sentences[open[n] / beam].steps >= config.max_positions)
                fail("an output has more than %lld tokens, which the model can take", (long long)config.max_positions);
        }
        positions.resize(rows);
        if (model.recurrent())
            for (Aligned<float>* const states : {&before, &after}) sized(*states, (1 + rows) * state_size());
        const size_t slots = history.step(rows, open, positions.data()) * slot;
        for (GrowingBytes& cache : caches)
            if (cache.size() < slots) cache.grow(std::max({slots, 2 * cache.size(), size_t(FIRST_SLOTS * slot)}));
        const float* const read = model.begins ? next_words(rows, tokens) : nullptr;
        const RowsOut out = hidden.out(rows, size, input_of(model.output));
        run_layers(model, model.decoder, rows, tokens, positions.data(), read, out,
                   [&](const Sublayer& sublayer, const float* wide, const RowsOut& mixed) {
                       if (sublayer.kind == SSRU)
                           recur_rows(sublayer.layer, wide, static_cast<float*>(mixed.data));
                       else
                           model.in_int8() ? attend_rows<bf16>(sublayer, wide, mixed)
                                           : attend_rows<float>(sublayer, wide, mixed);
                   });
        std::swap(before, after);
        return out;
    }

    // The logits (N, V) of what a step returned.
    void logits(const RowsOut& h, int64_t rows, float* out) const { multiply(model.output, rows, read(h), out); }

private:
    static constexpr int64_t FIRST_SLOTS = 256, ENCODED = 512;  // source tokens
    std::vector<int64_t> positions;
    Buffer hidden;
    Aligned<float> states;  // that hard monotonic attention reads, (N, D)

    int64_t state_size() const { return model.config.decoder_layers * model.config.d_model; }

    // The open hypotheses' states after a step.
    void recur_rows(int64_t layer, const float* wide, float* out) {
        const int64_t size = model.config.d_model;
        const auto state = [&](Aligned<float>& all, int64_t row) { return &all[row * state_size() + layer * size]; };
        for (int64_t n = 0; n < int64_t(history.rows.size()); ++n)
            recur(size, wide + 2 * n * size, state(before, history.before[n]), state(after, n + 1), out + n * size);
    }

    // Attention of the open hypotheses to their own tokens, or to the source.
    template <class T>
    void attend_rows(const Sublayer& sublayer, const float* wide, const RowsOut& context) {
        const bool own = sublayer.kind == SELF_ATTENTION;
        const int64_t keys = model.keys(), stride = keys + model.values(), queries = own ? keys + stride : keys;
        const int64_t rows = int64_t(history.rows.size());
        for (int64_t n = 0, group = 1; n < rows; n += group) {
            group = history.group(n);
            const Sentence& s = history.sentence_of(n);
            if (own) {
                T* const cache = reinterpret_cast<T*>(caches[sublayer.layer].data());
                const RowIndex at = history.slots(n, int(group));
                for (int64_t r = 0; r < group; ++r)
                    keep_rows(model, wide + (n + r) * queries + keys, stride, cache + at(int(r), s.steps - 1) * stride);
                attend<T>(shape_of(model), int(group), wide + n * queries, queries, cache, cache + keys, stride, at,
                          s.steps, context, n);
            } else {
                const auto memory_of = [&](const Sentence& one) {
                    return reinterpret_cast<const T*>((*one.memory)[sublayer.layer].data()) + one.first * stride;
                };
                const T* const memory = memory_of(s);
                RowIndex at{0, {}, nullptr, nullptr, 0};
                if (n + group < rows)
                    at.next_at =
                        (intptr_t(memory_of(history.sentence_of(n + group))) - intptr_t(memory)) / int64_t(sizeof(T));
                attend<T>(shape_of(model), int(group), wide + n * queries, queries, memory, memory + keys, stride, at,
                          s.size, context, n);
            }
        }
    }

    // Of hard monotonic attention: the states where each word of a source begins, and that of its end symbol.
    void find_words(const Packed& packed, const float* states, Sentence& sentence) const {
        const int64_t size = model.config.d_model;
        for (int64_t i = 0; i < sentence.size; ++i) {
            const int64_t row = sentence.first + i;
            if (i + 1 == sentence.size || model.begins[packed.ids[row]] != 0.0f)
                sentence.words.insert(sentence.words.end(), states + row * size, states + (row + 1) * size);
        }
        sentence.written.assign(beam, 0);
    }

    // Count the words in the newest tokens. Return the states of the next words, (N, D).
    const float* next_words(int64_t rows, const int64_t* tokens) {
        const int64_t size = model.config.d_model;
        float* const to = sized(states, rows * size);
        for (int64_t n = 0; n < rows; ++n) {
            Sentence& s = history.sentences[history.rows[n] / beam];
            int64_t& written = s.written[history.rows[n] % beam];
            written += model.ends[tokens[n]] != 0.0f;
            const int64_t word = std::min(written, int64_t(s.words.size()) / size - 1);
            std::copy_n(s.words.data() + word * size, size, to + n * size);
        }
        return to;
    }
};
