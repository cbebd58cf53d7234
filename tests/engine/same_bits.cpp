// Writes a hash of what each kernel computes at all sizes up to 70, and at those of the base model, and of the
// translations of small models: one line each, the same on every processor, as same_bits.txt has them. test_kernels.py
// compiles it as a library, and as a program for another processor.
//
// Numbers come from one generator of integers, so no library of a machine has a part in them.

#include "engine.cpp"
#include "kernels.cpp"

namespace {

constexpr int64_t MOST = 70;
FILE* file = stdout;

[[noreturn]] void stop(const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), nmt_error());
    std::exit(1);
}

// FNV-1a. All NaN are one: their bits differ between processors.
struct Hash {
    uint64_t value = 14695981039346656037u;

    void add(const void* x, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) value = (value ^ static_cast<const unsigned char*>(x)[i]) * 1099511628211u;
    }
    void add(const std::vector<float>& x) {
        for (const float number : x) {
            const uint32_t bits = number != number ? 0x7fc00000 : bits_of(number);
            add(&bits, sizeof bits);
        }
    }
    void print(const std::string& what) const {
        std::fprintf(file, "%s %016llx\n", what.c_str(), static_cast<unsigned long long>(value));
    }
};

struct Random {
    uint64_t state;

    uint32_t next() {  // splitmix64
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return uint32_t((z ^ (z >> 31)) >> 32);
    }
    float number(float scale) { return (float(int32_t(next()) >> 8) / 8388608.0f) * scale; }  // -scale … scale
    std::vector<float> numbers(int64_t count, float scale = 1.0f) {
        std::vector<float> x(count);
        for (float& one : x) one = number(scale);
        return x;
    }
};

// All sizes up to 70, and larger ones.
template <class Work>
void all_sizes(const std::string& what, const Work& work) {
    Hash hash;
    Random random{1};
    for (int64_t size = 1; size <= MOST; ++size) work(size, random, hash);
    for (const int64_t size : {128, 191, 256, 300, 512, 1024, 2048}) work(size, random, hash);
    hash.print(what);
}

void kernel_hashes() {
    all_sizes("exponentials", [](int64_t size, Random& random, Hash& hash) {
        std::vector<float> x = random.numbers(size, 45.0f), y(size);
        for (float& one : x) one -= 45.0f;
        x[0] = size % 3 ? x[0] : size % 2 ? -INFINITE : std::numeric_limits<float>::quiet_NaN();
        exponentials(size, x.data(), y.data());
        hash.add(y);
    });
    all_sizes("logarithms", [](int64_t size, Random& random, Hash& hash) {
        std::vector<float> x = random.numbers(size, 1e3f), y(size);
        for (float& one : x) one = std::abs(one) + 1e-6f;
        logarithms(size, x.data(), y.data());
        hash.add(y);
    });
    all_sizes("reductions", [](int64_t size, Random& random, Hash& hash) {
        const std::vector<float> x = random.numbers(size, 20.0f);
        std::vector<float> y(4);
        reductions(size, x.data(), 16, y.data());
        hash.add(y);
    });
    for (const int kind : {int(FP32), int(BF16), int(SIGNED), int(UNSIGNED)})
        all_sizes("rows of kind " + std::to_string(kind), [kind](int64_t size, Random& random, Hash& hash) {
            std::vector<float> x = random.numbers(3 * size, 5.0f), scales(3);
            for (int64_t i = 0; i < 3 * size && kind == UNSIGNED; ++i) x[i] = std::abs(x[i]);
            for (int64_t i = 0; i < size; ++i) x[i] *= 1e-38f;
            std::vector<char> y(3 * size * size_of(kind));
            write_rows(3, size, x.data(), kind, y.data(), scales.data());
            hash.add(y.data(), y.size());
            hash.add(scales);
        });
    for (const int kind : {0, 1, 2})  // layer_norm, rms_norm, none
        all_sizes("norm " + std::to_string(kind), [kind](int64_t size, Random& random, Hash& hash) {
            for (const int post : {0, 1}) {
                std::vector<float> x = random.numbers(3 * size, 3.0f), y(3 * size);
                const std::vector<float> more = random.numbers(3 * size), weight = random.numbers(size),
                                         bias = random.numbers(size);
                normed(3, size, x.data(), more.data(), kind == 2 ? nullptr : weight.data(),
                       kind ? nullptr : bias.data(), 1e-5f, post, y.data());
                hash.add(x);
                hash.add(y);
            }
        });
    for (const int activation : {1, 2, 3})
        all_sizes("activation " + std::to_string(activation), [activation](int64_t size, Random& random, Hash& hash) {
            std::vector<float> x = random.numbers(6 * size, 8.0f);
            activated(activation, 3, size, x.data());
            x.resize(3 * size);
            hash.add(x);
        });
    all_sizes("rotations", [](int64_t size, Random& random, Hash& hash) {
        const int64_t key = 2 * size, at[3] = {0, 5, 17};
        std::vector<float> x = random.numbers(3 * 2 * key), table(18 * key);
        rotations(0, 18, key, table.data());
        rotated(3, 2 * key, 2, key, table.data(), at, x.data());
        hash.add(x);
        sinusoids(0, 18, key, table.data());
        hash.add(table);
    });
    all_sizes("log-softmax and ranks", [](int64_t size, Random& random, Hash& hash) {
        const int64_t open[3] = {0, 1, 3}, count = std::min<int64_t>(8, size);
        std::vector<float> logits = random.numbers(3 * size, 9.0f), so_far = random.numbers(4), values(2 * count);
        std::vector<int64_t> numbers(2 * count);
        std::vector<float> copy = logits;
        nmt_log_softmax(3, size, copy.data());
        hash.add(copy);
        logits[size / 2] = logits[0];  // a tie
        nmt_rank(2, 2, 3, open, size, logits.data(), 0, so_far.data(), 0, nullptr, nullptr, nullptr, count,
                 values.data(), numbers.data());
        hash.add(values);
        hash.add(numbers.data(), numbers.size() * sizeof(int64_t));
    });
}

// Attention of N rows to `count` keys and values, of heads of 64, 32 and other sizes.
void attention_hashes() {
    for (const int dtype : {int(FP32), int(BF16)})
        for (const int64_t key : {64, 32, 20, 7}) {
            Hash hash;
            Random random{2};
            const int64_t heads = 2, width = heads * 2 * key;
            for (int64_t count = 0; count <= MOST; ++count) {
                const int64_t rows = 1 + count % 4;
                const std::vector<float> q = random.numbers(rows * heads * key);
                std::vector<float> kv = random.numbers((count + 1) * width), out(rows * heads * key),
                                   weights(rows * heads * count);
                if (dtype == BF16) store(kv.data(), int64_t(kv.size()), kv.data(), BF16);
                const char* const keys = reinterpret_cast<const char*>(kv.data());
                const std::vector<int64_t> first(rows, 0), counts(rows, count);
                attended_range(rows, heads, key, key, 0.125f, q.data(), keys, keys + heads * key * size_of(dtype),
                               dtype, first.data(), counts.data(), out.data(), weights.data());
                hash.add(out);
                hash.add(weights);
                if (!count) continue;
                std::vector<int32_t> slots(rows * count);
                for (int32_t& slot : slots) slot = int32_t(random.next() % uint32_t(count));
                for (const int as_written : {0, 1}) {
                    attended_slots(rows, heads, key, key, 0.125f, q.data(), keys, keys + heads * key * size_of(dtype),
                                   dtype, slots.data(), count, as_written, out.data());
                    hash.add(out);
                }
            }
            hash.print("attention, heads of " + std::to_string(key) + (dtype == FP32 ? ", fp32" : ", bf16"));
        }
}

// A linear map of random weights, packed as a model packs it.
struct Linear {
    Map map;
    Aligned<char> packed;
    std::vector<float> scales, bias;
    std::vector<int32_t> sums;

    Linear(Random& random, bool in_int8, int64_t d_in, int64_t d_out) {
        const int64_t outputs = ceiling(d_out, LANES);
        const std::vector<float> w = random.numbers(d_out * d_in);
        packed.resize(outputs * d_in * (in_int8 ? 1 : 4));
        bias = random.numbers(outputs);
        map.d_in = d_in, map.d_out = d_out, map.weight = packed.data(), map.bias = bias.data();
        if (!in_int8) {
            pack<1>(d_out, d_in, 0, outputs, w.data(), reinterpret_cast<float*>(packed.data()));
            return;
        }
        std::vector<int8_t> rows(d_out * d_in);
        scales.resize(outputs), sums.resize(outputs);
        map.scales = scales.data(), map.sums = sums.data();
        for (int64_t o = 0; o < d_out; ++o) {
            scales[o] = rounded(w.data() + o * d_in, d_in, rows.data() + o * d_in);
            sums[o] = shift_of(rows.data() + o * d_in, d_in);
        }
        pack<Bytes::ADJACENT>(d_out, d_in, 0, outputs, rows.data(), reinterpret_cast<int8_t*>(packed.data()));
    }

    // The product of rows in the grid that the map reads, or in that of a hidden layer after ReLU.
    void multiply_rows(Random& random, int64_t rows, bool after_relu, Hash& hash) {
        std::vector<float> x = random.numbers(rows * map.d_in), out(rows * map.d_out);
        for (int64_t i = 0; i < rows * map.d_in && after_relu; ++i) x[i] = std::max(0.0f, x[i]);
        Buffer buffer;
        const RowsOut to = buffer.out(rows, map.d_in, after_relu ? relu_input_of(map) : input_of(map));
        for (int64_t n = 0; n < rows; ++n) to.write(n, x.data() + n * map.d_in, map.d_in);
        map.relu = !map.relu;
        multiply(map, rows, read(to), out.data());
        hash.add(out);
    }
};

void product_hashes() {
    for (const bool in_int8 : {false, true})
        for (const bool after_relu : {false, true}) {
            if (after_relu && !in_int8) continue;
            const std::string what = !in_int8 ? "fp32" : after_relu ? "int8 after ReLU" : "int8";
            Hash hash;
            Random random{3};
            for (int64_t d_out = 1; d_out <= MOST; ++d_out) {
                Linear linear(random, in_int8, in_int8 ? ceiling(d_out, 4) : d_out, d_out);
                for (int64_t rows = 1; rows <= MOST; ++rows) linear.multiply_rows(random, rows, after_relu, hash);
            }
            hash.print("products up to 70 x 70, " + what);
            Hash base;
            for (const auto& size : {std::pair<int64_t, int64_t>{512, 512}, {512, 2048}, {2048, 512}, {512, 8000}}) {
                Linear linear(random, in_int8, size.first, size.second);
                for (const int64_t rows : {1, 4, 5, 16, 33})
                    if (rows <= 5 || size.second <= 512) linear.multiply_rows(random, rows, after_relu, base);
            }
            base.print("products of base, " + what);
        }
}

// A model of small sizes, and its searches of 50 sentences.
void model_hash(const std::string& what, nmt_config c) {
    Random random{4};
    std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> shapes;
    const auto one = [&](const std::string& name, int64_t rows, int64_t columns = 0) {
        shapes.push_back({name, {rows, columns}});
    };
    const auto linear = [&](const std::string& name, int64_t d_in, int64_t d_out) {
        one(name + ".weight", d_out, d_in), one(name + ".bias", d_out);
    };
    const auto norm = [&](const std::string& name) {
        one(name + ".weight", c.d_model);
        if (c.norm == NMT_LAYER_NORM) one(name + ".bias", c.d_model);
    };
    const int64_t keys = c.heads * c.key_size, values = c.heads * c.value_size;
    if (c.tied)
        one("embeddings.shared", c.source_vocab, c.d_model);
    else
        one("embeddings.source", c.source_vocab, c.d_model), one("embeddings.target", c.target_vocab, c.d_model),
            one("embeddings.output", c.target_vocab, c.d_model);
    for (const std::string side : {"encoder", "decoder"}) {
        for (int64_t layer = 0; layer < c.encoder_layers; ++layer) {
            const std::string here = side + "." + std::to_string(layer) + ".";
            linear(here + "self_attention.query_key_value", c.d_model, 2 * keys + values);
            linear(here + "self_attention.output", values, c.d_model);
            norm(here + "around_self_attention.norm");
            if (side == "decoder") {
                linear(here + "cross_attention.query", c.d_model, keys);
                linear(here + "cross_attention.key_value", c.d_model, keys + values);
                linear(here + "cross_attention.output", values, c.d_model);
                norm(here + "around_cross_attention.norm");
            }
            linear(here + "feed_forward.inner", c.d_model, c.d_ff * (c.activation == NMT_SWIGLU ? 2 : 1));
            linear(here + "feed_forward.outer", c.d_ff, c.d_model);
            norm(here + "around_feed_forward.norm");
        }
        if (!c.post_norm) norm(side + "_norm");
        if (c.positions == NMT_LEARNED)
            one(side == "encoder" ? "source_positions.weight" : "target_positions.weight", c.max_positions, c.d_model);
    }
    std::vector<std::vector<float>> numbers;
    std::vector<nmt_array> arrays;
    for (const auto& [name, shape] : shapes) {
        numbers.push_back(random.numbers(shape.first * std::max<int64_t>(1, shape.second), 0.3f));
        arrays.push_back({name.c_str(), NMT_FP32, shape.first, shape.second, numbers.back().data(), 0});
    }
    nmt_model* const model = nmt_model_new(&c, int64_t(arrays.size()), arrays.data());
    const int64_t count = 50, bos = 2, eos = 3, banned[] = {0, 1, 2};
    const nmt_search_options options{4, 2, bos, eos, 20, 1, 1, 3, 0, banned, nullptr};
    nmt_search* const search = model ? nmt_search_new(model, &options) : nullptr;
    if (!search) stop(what);
    std::vector<int64_t> ids, lengths, tokens, longest;
    for (int64_t s = 0; s < count; ++s) {
        ids.push_back(s), lengths.push_back(1 + random.next() % 30), longest.push_back(lengths.back() + 5);
        for (int64_t i = 1; i < lengths.back(); ++i) tokens.push_back(4 + random.next() % (c.source_vocab - 4));
        tokens.push_back(eos);
    }
    std::vector<float> penalties(64);
    for (size_t i = 0; i < penalties.size(); ++i) penalties[i] = 1.0f + 0.125f * float(i);
    Hash hash;
    if (nmt_search_add(search, count, ids.data(), lengths.data(), tokens.data(), longest.data(), 64, penalties.data()))
        stop(what);
    while (nmt_search_sentences(search)) {
        const nmt_results* const found = nmt_search_step(search, 8, 0.7);
        if (!found) stop(what);
        const int64_t all = found->count * found->nbest;
        hash.add(found->ids, found->count * sizeof(int64_t));
        hash.add(found->lengths, all * sizeof(int64_t));
        hash.add(found->tokens, all * found->longest * sizeof(int64_t));
        hash.add({found->log_probs, found->log_probs + all});
        hash.add({found->scores, found->scores + all});
        hash.add({found->paths, found->paths + all * found->longest});
    }
    nmt_search_delete(search), nmt_model_delete(model);
    hash.print(what);
}

void model_hashes() {
    for (const int64_t precision : {NMT_FP32, NMT_INT8}) {
        const std::string what = precision == NMT_FP32 ? "50 translations in fp32, " : "50 translations in int8, ";
        const nmt_config paper{64, 2, 32, 32,        256, 2, 2, 64, 500, 500, NMT_LAYER_NORM, NMT_RELU, NMT_SINUSOIDAL,
                               1,  1, 0,  0,  precision, 1e-5};
        model_hash(what + "the paper's form", paper);
        nmt_config other = paper;
        other.norm = NMT_RMS_NORM, other.activation = NMT_SWIGLU, other.positions = NMT_ROTARY, other.post_norm = 0,
        other.tied = 0, other.d_model = 96, other.heads = 3, other.target_vocab = 700;
        model_hash(what + "rotary positions, SwiGLU, RMSNorm", other);
        other = paper;
        other.activation = NMT_GELU, other.positions = NMT_LEARNED, other.key_size = other.value_size = 20;
        model_hash(what + "learned positions, GELU, heads of 20", other);
    }
}

}  // namespace

FUNCTION same_bits(const char* path) {
    file = std::fopen(path, "w");
    if (!file) std::abort();
    kernel_hashes();
    attention_hashes();
    product_hashes();
    model_hashes();
    std::fclose(file);
}

int main(int, char** arguments) { same_bits(arguments[1]); }
