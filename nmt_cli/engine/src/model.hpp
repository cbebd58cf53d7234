// A model: named arrays ──▶ checked ──▶ packed, in parallel ──▶ the maps, norms and tables that a pass reads.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "matmul.hpp"
#include "nmt.h"
#include "tables.hpp"

// AddressSanitizer finds reads behind an array, if there is a gap between two of them.
#ifdef NMT_SANITIZED
#include <sanitizer/asan_interface.h>
constexpr size_t GAP = LINE;
#else
#define ASAN_POISON_MEMORY_REGION(start, size) (void)0
#define ASAN_UNPOISON_MEMORY_REGION(start, size) (void)0
constexpr size_t GAP = 0;
#endif

namespace {

// What a caller is told: nmt_error.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    throw Failure(text);
}

// Return a number of things that a caller gave.
int64_t counted(const char* things, int64_t count) {
    if (count < 0) fail("the number of %s is %lld, expected at least 0", things, (long long)count);
    return count;
}

// Refuse more bytes than this machine has: a kernel that promises them ends the process when they are written.
void afford(double bytes) {
    const double pages = double(sysconf(_SC_PHYS_PAGES));
    if (pages > 0 && bytes > pages * double(sysconf(_SC_PAGESIZE))) throw std::bad_alloc();
}

// One block of memory for all numbers of a model. Without a size it only measures: nothing may be read or written.
class Arena {
public:
    explicit Arena(size_t size) : size(size) {
        if (!size) return;
        afford(double(size));
        void* const block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        madvise(block, size, MADV_HUGEPAGE);
#endif
        ASAN_POISON_MEMORY_REGION(block, size);
        start = uintptr_t(block);
    }
    Arena(const Arena&) = delete;
    ~Arena() {
        if (!size) return;
        ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(start), size);
        munmap(reinterpret_cast<void*>(start), size);
    }

    template <class Number>
    Number* take(int64_t count) {
        Number* const here = reinterpret_cast<Number*>(start + used);
        used += (size_t(count) * sizeof(Number) + LINE - 1) / LINE * LINE + GAP;
        if (size) ASAN_UNPOISON_MEMORY_REGION(here, size_t(count) * sizeof(Number));
        return here;
    }

    size_t taken() const { return used; }

private:
    uintptr_t start = LINE;  // null is no array
    size_t size, used = 0;
};

// LayerNorm, or RMSNorm without a bias; without weights there is no norm.
struct Norm {
    const float *weight = nullptr, *bias = nullptr;
};

enum SublayerKind { SELF_ATTENTION, CROSS_ATTENTION, FEED_FORWARD, SSRU };

// `first` reads the residual stream, `last`, which SSRU lacks, writes to it. `layer` is from 0.
struct Sublayer {
    SublayerKind kind;
    int64_t layer;
    Map first, last;
};

// Embeddings (V, D): fp32, or int8 with the scales of rows. Null: the output map has them, embeddings are tied.
struct Table {
    const void* numbers = nullptr;
    const float* scales = nullptr;
};

// The encoder or the decoder. norms[i] is before the i-th sub-layer, the last one after all.
struct Stack {
    std::vector<Sublayer> sublayers;
    std::vector<Norm> norms;
    Table table;
    const float* positions = nullptr;  // encodings that are added to embeddings, (P, D), or null
};

int64_t ceiling(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Round a row to int8 by its largest magnitude. Return the value of the integer 1: NaN if the row is not finite.
inline float rounded(const float* x, int64_t count, int8_t* out) {
    const float largest = largest_abs(x, count);
    if (!(largest < INFINITE)) {
        std::fill_n(out, count, int8_t(0));
        return std::numeric_limits<float>::quiet_NaN();
    }
    const float scale = std::max(largest, 1e-12f) / 127.0f;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = int8_t(std::nearbyint(x[i] / scale));
    return scale;
}

}  // namespace

struct nmt_model {
    nmt_config config;
    Arena arena;
    Stack encoder, decoder;
    std::vector<Map> memory;  // of each decoder layer: keys and values of the encoder's states
    Map output;
    const float* turns = nullptr;  // rotations of queries and keys in self-attention, (P, K), or null
    const float *begins = nullptr,
                *ends = nullptr;  // of hard monotonic attention: tokens with which a word begins, and ends

    nmt_model(const nmt_config& config, size_t size) : config(config), arena(size) {}

    int64_t keys() const { return config.heads * config.key_size; }
    int64_t values() const { return config.heads * config.value_size; }
    bool recurrent() const { return config.decoder == NMT_SSRU; }
    bool short_sums = false;  // whether `ShortSums` multiplies
    bool in_int8() const { return config.precision == NMT_INT8; }
    int cache() const { return in_int8() ? BF16 : FP32; }  // the dtype of keys and values that are kept
    int64_t cache_bytes() const { return in_int8() ? 2 : 4; }
};

namespace {

// Builds a model from arrays. Every array must be used once.
class Builder {
public:
    Builder(nmt_model& model, int64_t count, const nmt_array* arrays) : model(model), config(model.config) {
        for (int64_t i = 0; i < counted("arrays", count); ++i) {
            if (!arrays[i].name) fail("the array number %lld has no name", (long long)i);
            if (!given.emplace(arrays[i].name, &arrays[i]).second)
                fail("two arrays have the name %.100s", arrays[i].name);
        }
    }

    // Check the arrays, and take memory for what `pack_all` writes.
    void lay_out() {
        const bool tied = config.tied;
        if (!tied) {
            model.encoder.table = table("embeddings.source", config.source_vocab);
            model.decoder.table = table("embeddings.target", config.target_vocab);
        }
        model.output =
            map_of(tied ? "embeddings.shared" : "embeddings.output", "", config.d_model, config.target_vocab);
        if (config.output_bias) model.output.bias = numbers("output_bias", config.target_vocab);
        if (config.monotonic) {
            model.begins = numbers("next_word.begins", config.source_vocab);
            model.ends = numbers("next_word.ends", config.target_vocab);
        }
        positions();
        layers(model.encoder, "encoder", config.encoder_layers, false);
        layers(model.decoder, "decoder", config.decoder_layers, true);
        for (const auto& one : given)
            if (one.second) fail("the array %.100s is not part of such a model", one.first.c_str());
    }

    // Whether int8 matrices that are given are those of which `ShortSums` multiplies most weights. The arrays are
    // checked.
    static bool are_short(const nmt_config& config, int64_t count, const nmt_array* arrays) {
        constexpr int64_t SAMPLED = 16, MOST = 100;  // one in so many rows, and one in so many fours
        if (!HAS_SHORT_SUMS || config.precision != NMT_INT8) return false;
        int64_t fours = 0, large = 0;
        std::vector<int8_t> row;
        for (const nmt_array* one = arrays; one < arrays + count; ++one) {
            if (!one->columns) continue;
            if (one->dtype != NMT_INT8 || one->columns % ShortSums::TOGETHER) return false;
            for (int64_t i = 0; i < one->rows; i += SAMPLED) {
                const int8_t* const from = static_cast<const int8_t*>(one->data) + i * one->columns;
                row.assign(from, from + one->columns);
                each_large(row.data(), one->columns, [&](auto, auto, auto) { ++large; });
                fours += one->columns / 4;
            }
        }
        return large * MOST < fours;
    }

    void pack_all() {
        std::atomic<size_t> next{0};
        helpers().share(int(threads_here), [&](int) {
            for (size_t i; (i = next.fetch_add(1)) < tasks.size();) tasks[i]();
        });
    }

private:
    nmt_model& model;
    const nmt_config& config;
    std::unordered_map<std::string, const nmt_array*> given;  // null: used
    std::vector<std::function<void()>> tasks;
    static constexpr int64_t ROWS_OF_TASK = 32 * LANES;

    static std::string shape(int64_t rows, int64_t columns) {
        return "(" + std::to_string(rows) + (columns ? ", " + std::to_string(columns) : ",") + ")";
    }

    static std::string dtype(const nmt_array& one) {
        constexpr const char* NAMES[] = {"fp32", "bf16", "int8"};
        return one.dtype >= NMT_FP32 && one.dtype <= NMT_INT8 ? NAMES[one.dtype] : std::to_string(one.dtype);
    }

    static bool has_floats(const nmt_array& one) { return one.dtype == NMT_FP32 || one.dtype == NMT_BF16; }

    // The array with this name and these dimensions; columns 0: one dimension.
    const nmt_array& array(const std::string& name, int64_t rows, int64_t columns) {
        const auto found = given.find(name);
        if (found == given.end()) fail("the array %.100s is missing", name.c_str());
        if (!found->second) fail("the array %.100s is needed twice", name.c_str());
        const nmt_array& one = *found->second;
        found->second = nullptr;
        if (one.rows != rows || one.columns != columns)
            fail("%.100s has the dimensions %s, expected %s", name.c_str(), shape(one.rows, one.columns).c_str(),
                 shape(rows, columns).c_str());
        if (!one.data) fail("%.100s has no numbers", name.c_str());
        return one;
    }

    const nmt_array& floats(const std::string& name, int64_t rows, int64_t columns = 0) {
        const nmt_array& one = array(name, rows, columns);
        if (!has_floats(one)) fail("%.100s has the dtype %s, expected fp32 or bf16", name.c_str(), dtype(one).c_str());
        return one;
    }

    // Numbers as fp32 behind so many zeros; zeros follow up to whole panels.
    const float* numbers(const std::string& name, int64_t rows, int64_t columns = 0, int64_t zeros = 0) {
        const nmt_array& from = floats(name, rows, columns);
        const int64_t count = rows * std::max<int64_t>(1, columns);
        float* const to = model.arena.take<float>(ceiling(zeros + count, LANES));
        tasks.push_back([=, &from] { load_rows(from, 0, count, 1, to + zeros); });
        return to;
    }

    // Rows of fp32 or bf16 as fp32.
    static void load_rows(const nmt_array& from, int64_t first, int64_t rows, int64_t columns, float* to) {
        if (from.dtype == NMT_FP32) {
            std::memcpy(to, static_cast<const float*>(from.data) + first * columns, rows * columns * sizeof(float));
        } else {
            const char* const x = static_cast<const char*>(from.data) + first * columns * sizeof(bf16);
            for (int64_t i = 0; i < rows * columns; ++i) {
                bf16 number;  // of a file, perhaps at an odd address
                std::memcpy(&number, x + i * sizeof number, sizeof number);
                to[i] = number_of(uint32_t(number.bits) << 16);
            }
        }
    }

    // Let the pages of a file with whole rows leave the memory of this process. They are read again when they are used
    // again.
    static void release(const nmt_array& from, int64_t first, int64_t last) {
#ifdef MADV_DONTNEED
        if (!from.mapped) return;
        const int64_t page = sysconf(_SC_PAGESIZE), width = from.columns * (from.dtype == NMT_FP32   ? 4
                                                                            : from.dtype == NMT_BF16 ? 2
                                                                                                     : 1);
        const int64_t begin = ceiling(int64_t(from.data) + first * width, page);
        const int64_t end = (int64_t(from.data) + std::min(last, from.rows) * width) / page * page;
        if (begin < end) madvise(reinterpret_cast<void*>(begin), size_t(end - begin), MADV_DONTNEED);
#endif
    }

    // A matrix, and the scales of its rows if it is in int8.
    struct Matrix {
        const nmt_array *array, *scales;
    };

    Matrix matrix(const std::string& name, const std::string& scales, int64_t rows, int64_t columns) {
        Matrix one{&array(name, rows, columns), nullptr};
        if (one.array->dtype == NMT_INT8) {
            if (!model.in_int8()) fail("%.100s is in int8, and the model computes in fp32", name.c_str());
            one.scales = &floats(scales, rows);
        } else if (!has_floats(*one.array)) {
            fail("%.100s has the dtype %s, expected fp32, bf16 or int8", name.c_str(), dtype(*one.array).c_str());
        } else if (given.count(scales)) {
            fail("%.100s is in %s and has scales, expected int8", name.c_str(), dtype(*one.array).c_str());
        }
        return one;
    }

    // Whole rows of a matrix as int8, at `to`, and their scales.
    static void integers(const Matrix& from, int64_t first, int64_t rows, int64_t columns, int8_t* to, float* scales) {
        if (from.scales) {
            const int8_t* const given = static_cast<const int8_t*>(from.array->data) + first * columns;
            std::memcpy(to, given, rows * columns);
            if (std::memchr(given, -128, rows * columns))
                fail("%.100s has the number -128, expected -127 to 127", from.array->name);
            load_rows(*from.scales, first, rows, 1, scales);
            return;
        }
        std::vector<float> row(columns);
        for (int64_t i = 0; i < rows; ++i) {
            load_rows(*from.array, first + i, 1, columns, row.data());
            scales[i] = rounded(row.data(), columns, to + i * columns);
        }
    }

    Table table(const std::string& name, int64_t vocabulary) {
        const int64_t size = config.d_model;
        const Matrix from = matrix(name, name + ".scales", vocabulary, size);
        Table to;
        float* const scales = model.in_int8() ? model.arena.take<float>(vocabulary) : nullptr;
        char* const numbers = model.arena.take<char>(vocabulary * size * (scales ? 1 : 4));
        to.numbers = numbers, to.scales = scales;
        for (int64_t first = 0; first < vocabulary; first += ROWS_OF_TASK) {
            const int64_t rows = std::min(ROWS_OF_TASK, vocabulary - first);
            tasks.push_back([=] {
                if (scales)
                    integers(from, first, rows, size, reinterpret_cast<int8_t*>(numbers) + first * size,
                             scales + first);
                else
                    load_rows(*from.array, first, rows, size, reinterpret_cast<float*>(numbers) + first * size);
                release(*from.array, first, first + rows);
            });
        }
        return to;
    }

    // The linear map, without a bias, whose weight is the array NAME + suffix.
    Map map_of(const std::string& name, const std::string& suffix, int64_t d_in, int64_t d_out) {
        const Matrix from = matrix(name + suffix, name + ".scales", d_out, d_in);
        const int64_t outputs = ceiling(d_out, LANES);
        Map map;
        map.d_in = d_in, map.d_out = d_out;
        if (!model.in_int8()) {
            float* const to = model.arena.take<float>(outputs * d_in);
            map.weight = to;
            each_task(*from.array, [=](int64_t first, int64_t last) {
                if (from.array->dtype == NMT_FP32) {
                    pack<1>(d_out, d_in, first, last, static_cast<const float*>(from.array->data), to);
                    return;
                }
                std::vector<float> rows(d_in * LANES);
                for (; first < last; first += LANES) {
                    const int64_t here = std::min<int64_t>(LANES, d_out - first);
                    load_rows(*from.array, first, here, d_in, rows.data());
                    pack<1>(here, d_in, 0, LANES, rows.data(), to + first * d_in);
                }
            });
            return map;
        }
        int8_t* const to = model.arena.take<int8_t>(outputs * d_in);
        float* const scales = model.arena.take<float>(outputs);
        int32_t* const sums = model.arena.take<int32_t>(outputs);
        map.weight = to, map.scales = scales, map.sums = sums;
        if (model.short_sums) map.rests = std::make_shared<std::vector<std::vector<Rest>>>(outputs / LANES);
        each_task(*from.array, [=, rests = map.rests](int64_t first, int64_t last) {
            std::vector<int8_t> rows(d_in * LANES);
            for (; first < last; first += LANES) {
                const int64_t here = std::min<int64_t>(LANES, d_out - first);
                integers(from, first, here, d_in, rows.data(), scales + first);
                const Grid shifted = rests ? ShortSums::SHIFTED : Bytes::SHIFTED;
                for (int64_t i = 0; i < here; ++i) sums[first + i] = shift_of(rows.data() + i * d_in, d_in, shifted);
                if (rests) shorten(here, d_in, rows.data(), (*rests)[first / LANES]);
                const auto packed = rests ? pack<ShortSums::ADJACENT, int8_t> : pack<Bytes::ADJACENT, int8_t>;
                packed(here, d_in, 0, LANES, rows.data(), to + first * d_in);
            }
        });
        return map;
    }

    // Call work(first, last) for all rows of a matrix, whole panels at a time.
    template <class Work>
    void each_task(const nmt_array& from, const Work& work) {
        for (int64_t first = 0; first < from.rows; first += ROWS_OF_TASK)
            tasks.push_back([=] {
                const int64_t last = std::min(ceiling(from.rows, LANES), first + ROWS_OF_TASK);
                work(first, last);
                release(from, first, last);
            });
    }

    Map linear(const std::string& name, int64_t d_in, int64_t d_out, bool relu = false) {
        Map map = map_of(name, ".weight", d_in, d_out);
        map.bias = numbers(name + ".bias", d_out);
        map.relu = relu;
        return map;
    }

    // The candidate, and what the forget gate is the sigmoid of: only this has a bias.
    Map candidate_forget(const std::string& ssru) {
        Map map = map_of(ssru + "candidate_forget", ".weight", config.d_model, 2 * config.d_model);
        map.bias = numbers(ssru + "forget_bias", config.d_model, 0, config.d_model);
        return map;
    }

    Norm norm(const std::string& name) {
        Norm one;
        one.weight = numbers(name + ".weight", config.d_model);
        if (config.norm == NMT_LAYER_NORM) one.bias = numbers(name + ".bias", config.d_model);
        return one;
    }

    void layers(Stack& stack, const std::string& side, int64_t count, bool decodes) {
        const int64_t size = config.d_model, keys = model.keys(), values = model.values();
        std::vector<Norm> norms;
        for (int64_t layer = 0; layer < count; ++layer) {
            const std::string here = side + "." + std::to_string(layer) + ".";
            const std::string own = here + "self_attention.", other = here + "cross_attention.",
                              network = here + "feed_forward.";
            if (decodes && model.recurrent())
                stack.sublayers.push_back({SSRU, layer, candidate_forget(here + "ssru."), {}});
            else
                stack.sublayers.push_back({SELF_ATTENTION, layer,
                                           linear(own + "query_key_value", size, 2 * keys + values),
                                           linear(own + "output", values, size)});
            norms.push_back(norm(here + "around_self_attention.norm"));
            if (decodes) {
                stack.sublayers.push_back({CROSS_ATTENTION, layer, linear(other + "query", size, keys),
                                           linear(other + "output", values, size)});
                model.memory.push_back(linear(other + "key_value", size, keys + values));
                norms.push_back(norm(here + "around_cross_attention.norm"));
            }
            const bool gated = config.activation == NMT_SWIGLU;
            stack.sublayers.push_back(
                {FEED_FORWARD, layer,
                 linear(network + "inner", size, config.d_ff * (gated ? 2 : 1), config.activation == NMT_RELU),
                 linear(network + "outer", config.d_ff, size)});
            norms.push_back(norm(here + "around_feed_forward.norm"));
        }
        if (config.post_norm)
            norms.insert(norms.begin(), Norm{});
        else
            norms.push_back(norm(side + "_norm"));
        stack.norms = std::move(norms);
    }

    // The tables of positions.
    void positions() {
        const int64_t count = config.max_positions, size = config.d_model;
        if (config.positions == NMT_LEARNED) {
            for (Stack* const stack : {&model.encoder, &model.decoder}) {
                const std::string name =
                    stack == &model.encoder ? "source_positions.weight" : "target_positions.weight";
                stack->positions = numbers(name, count, size);
            }
            return;
        }
        const bool rotary = config.positions == NMT_ROTARY;
        const auto fill = rotary ? rotations : config.positions == NMT_MARIAN ? marian_sinusoids : sinusoids;
        const int64_t width = rotary ? config.key_size : size;
        float* const table = model.arena.take<float>(count * width);
        (rotary ? model.turns : model.encoder.positions) = table;
        model.decoder.positions = model.encoder.positions;
        for (int64_t first = 0; first < count; first += ROWS_OF_TASK)
            tasks.push_back([=] { fill(first, std::min(count, first + ROWS_OF_TASK), width, table); });
    }
};

constexpr int64_t MOST_TOKENS = 1 << 28;     // of a vocabulary
constexpr int64_t MOST_POSITIONS = 1 << 28;  // numbers of a table of positions

void check(const nmt_config& c) {
    const struct {
        const char* name;
        int64_t value, least, most;
    } all[] = {{"d_model", c.d_model, 1, 1 << 20},
               {"heads", c.heads, 1, 1 << 16},
               {"key_size", c.key_size, 1, 1 << 16},
               {"value_size", c.value_size, 1, 1 << 16},
               {"d_ff", c.d_ff, 1, 1 << 22},
               {"encoder_layers", c.encoder_layers, 1, 1 << 12},
               {"decoder_layers", c.decoder_layers, 1, 1 << 12},
               {"max_positions", c.max_positions, 1, 1 << 20},
               {"source_vocab", c.source_vocab, 1, MOST_TOKENS},
               {"target_vocab", c.target_vocab, 1, MOST_TOKENS},
               {"norm", c.norm, NMT_LAYER_NORM, NMT_RMS_NORM},
               {"activation", c.activation, NMT_RELU, NMT_SWIGLU},
               {"positions", c.positions, NMT_SINUSOIDAL, NMT_MARIAN},
               {"decoder", c.decoder, NMT_SELF_ATTENTION, NMT_SSRU},
               {"post_norm", c.post_norm, 0, 1},
               {"tied", c.tied, 0, 1},
               {"monotonic", c.monotonic, 0, 1},
               {"output_bias", c.output_bias, 0, 1}};
    for (const auto& one : all)
        if (one.value < one.least || one.value > one.most)
            fail("%s is %lld, expected %lld to %lld", one.name, (long long)one.value, (long long)one.least,
                 (long long)one.most);
    if (c.precision != NMT_FP32 && c.precision != NMT_INT8)
        fail("the precision is %lld, expected fp32 or int8", (long long)c.precision);
    if (!(c.epsilon >= 0.0 && c.epsilon <= 1.0)) fail("epsilon is %g, expected 0 to 1", c.epsilon);
    const bool rotary = c.positions == NMT_ROTARY;
    if (c.max_positions * (rotary ? c.key_size : c.d_model) > MOST_POSITIONS)
        fail("max_positions is %lld and %s is %lld, expected a product of at most %lld", (long long)c.max_positions,
             rotary ? "key_size" : "d_model", (long long)(rotary ? c.key_size : c.d_model), (long long)MOST_POSITIONS);
    if (c.tied && c.source_vocab != c.target_vocab)
        fail("embeddings are tied, and the vocabularies have %lld and %lld tokens", (long long)c.source_vocab,
             (long long)c.target_vocab);
    if (c.positions == NMT_MARIAN && (c.d_model % 2 || c.d_model < 4))
        fail("d_model is %lld, expected an even number from 4 on for Marian's positions", (long long)c.d_model);
    if (rotary && c.key_size % 2)
        fail("key_size is %lld, expected an even number for rotations", (long long)c.key_size);
    if (c.precision == NMT_INT8)
        for (const int64_t width : {c.d_model, c.d_ff, c.heads * c.value_size})
            if (width % 4 || width > 1 << 16)
                fail("a matrix has rows of %lld numbers, expected a multiple of 4 up to %d for int8", (long long)width,
                     1 << 16);
}

nmt_model* new_model(const nmt_config& config, int64_t count, const nmt_array* arrays) {
    check(config);
    nmt_model measured(config, 0);
    Builder(measured, count, arrays).lay_out();
    std::unique_ptr<nmt_model> model(new nmt_model(config, measured.arena.taken()));
    model->short_sums = Builder::are_short(config, count, arrays);
    Builder builder(*model, count, arrays);
    builder.lay_out();
    builder.pack_all();
    return model.release();
}

}  // namespace
