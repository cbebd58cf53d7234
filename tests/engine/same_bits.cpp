// The engine's kernels as functions of numbers; and hashes, the same on every processor, as same_bits.txt has them: of
// what each computes at all sizes up to 70 and at larger ones, and of the translations of small models. test_kernels.py
// compiles this as a library, and as a program for another processor.

#include "engine.cpp"
#include "models.hpp"

#include <functional>
#include <map>

namespace {

using Numbers = std::vector<float>;

constexpr int64_t MOST = 70, ROWS = 3;

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
    void add(const Numbers& x) {
        for (const float number : x) {
            const uint32_t bits = number != number ? 0x7fc00000 : bits_of(number);
            add(&bits, sizeof bits);
        }
    }
    void print(FILE* file, const std::string& what) const {
        std::fprintf(file, "%s %016llx\n", what.c_str(), static_cast<unsigned long long>(value));
    }
};

// The numbers that a kernel gets: given ones, or those of a generator of integers, in which no library has a part.
struct Source {
    const float *at = nullptr, *end = nullptr;
    uint64_t state = 1;

    uint32_t next() {  // splitmix64
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return uint32_t((z ^ (z >> 31)) >> 32);
    }
    Numbers take(int64_t count, float scale = 1.0f) {  // random ones: -scale … scale
        if (at && end - at < count) stop("a kernel got too few numbers");
        Numbers x(count);
        for (float& one : x) one = at ? *at++ : (float(int32_t(next()) >> 8) / 8388608.0f) * scale;
        return x;
    }
};

using Kernel = std::function<Numbers(int64_t size, Source& source)>;

Numbers joined(Numbers x, const Numbers& y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
}

// The logarithm of the sum of exponentials comes from chunks of sixteen.
Numbers reductions(int64_t size, Source& source) {
    const Numbers x = source.take(size, 20.0f);
    std::vector<Sum> sums;
    for (int64_t i = 0; i < size; i += 16) sums.push_back(Sum::of(x.data() + i, std::min<int64_t>(16, size - i)));
    const float largest = largest_of(x.data(), size);
    return {sum_over(x.data(), size), largest, sum_exp(x.data(), size, largest),
            log_sum(sums.data(), int64_t(sums.size()))};
}

// Scales, then what is stored. The last row is the first one made tiny.
Numbers stored_rows(int kind, int64_t size, Source& source) {
    Numbers x = source.take(ROWS * size, 5.0f), y(ROWS + 1);
    for (int64_t i = 0; i < size; ++i) x.push_back(x[i] * 1e-38f);
    if (kind == UNSIGNED)
        for (float& one : x) one = std::abs(one);
    std::vector<uint8_t> bytes(x.size() * size_of(kind));
    for (int64_t n = 0; n <= ROWS; ++n) RowsOut{bytes.data(), y.data(), kind}.write(n, x.data() + n * size, size);
    for (size_t i = 0; i < x.size(); ++i)
        y.push_back(kind == BF16     ? number_of(uint32_t(bytes[2 * i] | bytes[2 * i + 1] << 8) << 16)
                    : kind == SIGNED ? float(int8_t(bytes[i]))
                                     : float(bytes[i]));
    return y;
}

Numbers normed(int kind, bool post, int64_t size, Source& source) {  // kind: layer_norm, rms_norm, none
    Numbers x = source.take(ROWS * size, 3.0f), y(ROWS * size);
    const Numbers more = source.take(ROWS * size), weight = source.take(size), bias = source.take(size);
    norm(ROWS, size, x.data(), more.data(), kind == 2 ? nullptr : weight.data(), kind ? nullptr : bias.data(), 1e-5f,
         post, RowsOut{y.data(), nullptr, FP32});
    return joined(x, y);
}

// Rows of two heads, and the table of sinusoids, (18, 2 * size).
Numbers rotated(int64_t size, Source& source) {
    const int64_t key = 2 * size, at[ROWS] = {0, 5, 17};
    Numbers x = source.take(ROWS * 2 * key), table(18 * key);
    rotations(0, 18, key, table.data());
    rotate(ROWS, 2 * key, 2, key, table.data(), at, x.data());
    sinusoids(0, 18, key, table.data());
    return joined(x, table);
}

// From a table (4, size) in fp32, and from the same one in steps of a quarter.
Numbers embedded(int64_t size, Source& source) {
    const int64_t ids[ROWS] = {3, 0, 2}, at[ROWS] = {1, 0, 1};
    const Numbers table = source.take(4 * size, 30.0f), positions = source.take(2 * size), scales(4, 0.25f);
    std::vector<int8_t> steps;
    for (const float one : table) steps.push_back(int8_t(one * 4.0f));
    Numbers x(ROWS * size), y(ROWS * size);
    embed(ROWS, size, table.data(), nullptr, ids, 1.5f, positions.data(), at, x.data());
    embed(ROWS, size, steps.data(), scales.data(), ids, 1.5f, nullptr, nullptr, y.data());
    return joined(x, y);
}

// The eight best of two sentences with two hypotheses, of which one is closed; there is a tie.
Numbers ranks(int64_t size, Source& source) {
    const int64_t open[3] = {0, 1, 3}, count = std::min<int64_t>(8, size);
    Numbers logits = source.take(3 * size, 9.0f), values(2 * count);
    const Numbers so_far = source.take(4);
    std::vector<int64_t> numbers(2 * count);
    logits[size / 2] = logits[0];
    nmt_rank(2, 2, 3, open, size, logits.data(), 0, so_far.data(), 0, nullptr, nullptr, nullptr, count, values.data(),
             numbers.data());
    return joined(values, Numbers(numbers.begin(), numbers.end()));
}

// One to four rows, of two heads, attend to the same `count` keys and values: results and weights. Then each to slots
// of its own, of which half are common: results of the way that `attend` chooses, and of the plain one.
template <class T>
Numbers attended(int64_t key, int64_t value, int64_t count, Source& source) {
    const int64_t rows = 1 + count % GROUP, width = 2 * (key + value);
    const Numbers q = source.take(rows * 2 * key), kv = source.take((count + 1) * width);
    std::vector<T> stored(kv.size());
    store(kv.data(), int64_t(kv.size()), stored.data(), sizeof(T) == 4 ? FP32 : BF16);
    const T *const keys = stored.data(), *const values = keys + 2 * key;
    const Shape shape{2, key, value, 0.125f};
    Numbers out(rows * 2 * value), weights(rows * 2 * count);
    const RowsOut to{out.data(), nullptr, FP32};
    const std::vector<int64_t> first(rows, 0), counts(rows, count);
    attend_range(shape, rows, q.data(), 2 * key, keys, values, width, first.data(), counts.data(), to, weights.data());
    Numbers all = joined(out, weights);
    if (!count) return all;
    std::vector<int32_t> slots;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < count; ++i) slots.push_back(int32_t(i < count / 2 ? i : (7 * i + 3 * r) % count));
    RowIndex at{};
    std::vector<uint8_t> common(count, 1);
    for (int64_t r = 0; r < GROUP; ++r) {
        at.lists[r] = slots.data() + (r < rows ? r * count : 0);
        for (int64_t i = 0; i < count; ++i) common[i] &= at.lists[r][i] == slots[i];
    }
    at.common = common.data();
    attend(shape, int(rows), q.data(), 2 * key, keys, values, width, at, count, to, 0);
    all = joined(all, out);
    Numbers scaled = q, scores(2 * scores_size(count));
    for (float& one : scaled) one *= shape.scale;
    attend_plain(shape, int(rows), scaled.data(), keys, values, width, at, count, scores.data(), out.data());
    return joined(all, out);
}

// The products of the first 1, 2, … rows with a matrix of `size` rows and a bias; ReLU follows if they are even in
// number. The matrix is packed as a model packs it, and rows are in the grid that it reads, or in that of ReLU's
// results. With `cubed`, most of its numbers are small.
Numbers products(bool in_int8, bool after_relu, bool cubed, int64_t size, Source& source) {
    const bool small = size <= MOST;
    const int64_t d_in = small ? ceiling(size, cubed ? 8 : 4) : 512, most = small ? MOST : 16,
                  outputs = ceiling(size, LANES);
    Numbers w = source.take(size * d_in);
    for (float& one : w) one = cubed ? one * one * one : one;
    Numbers bias = source.take(size), x = source.take(most * d_in), scales(outputs), all;
    bias.resize(outputs);
    Aligned<char> packed(outputs * d_in * (in_int8 ? 1 : 4));
    std::vector<int8_t> rows(size * d_in);
    std::vector<int32_t> sums(outputs);
    Map map{d_in, size, packed.data(), nullptr, nullptr, bias.data()};
    if (in_int8) {
        for (int64_t o = 0; o < size; ++o) {
            scales[o] = rounded(w.data() + o * d_in, d_in, rows.data() + o * d_in);
            sums[o] = shift_of(rows.data() + o * d_in, d_in, cubed ? ShortSums::SHIFTED : Bytes::SHIFTED);
        }
        map.scales = scales.data(), map.sums = sums.data();
        if (cubed && HAS_SHORT_SUMS) map.rests = std::make_shared<std::vector<std::vector<Rest>>>(outputs / LANES);
        for (int64_t o = 0; map.rests && o < size; o += LANES)
            shorten(std::min<int64_t>(LANES, size - o), d_in, rows.data() + o * d_in, (*map.rests)[o / LANES]);
        const auto pack_bytes = map.rests ? pack<ShortSums::ADJACENT, int8_t> : pack<Bytes::ADJACENT, int8_t>;
        pack_bytes(size, d_in, 0, outputs, rows.data(), reinterpret_cast<int8_t*>(packed.data()));
    } else {
        pack<1>(size, d_in, 0, outputs, w.data(), reinterpret_cast<float*>(packed.data()));
    }
    for (float& one : x) one = after_relu ? std::max(0.0f, one) : one;
    Buffer buffer;
    const RowsOut to = buffer.out(most, d_in, after_relu ? relu_input_of(map) : input_of(map));
    for (int64_t n = 0; n < most; ++n) to.write(n, x.data() + n * d_in, d_in);
    for (int64_t count = 1; count <= most; ++count) {
        Numbers out(count * size);
        map.relu = count % 2 == 0;
        multiply(map, count, read(to), out.data());
        all = joined(std::move(all), out);
    }
    return all;
}

std::map<std::string, Kernel> kernels() {
    std::map<std::string, Kernel> all;
    all["exponentials"] = [](int64_t size, Source& source) {  // of -|x|
        const Numbers x = source.take(size, 90.0f);
        Numbers y(size);
        for (int64_t i = 0; i < size; i += LANES)
            put(exponential(minus_abs(vector(x.data() + i, size - i, 0.0f))), y.data() + i, size - i);
        return y;
    };
    all["logarithms"] = [](int64_t size, Source& source) {  // of |x|
        Numbers x = source.take(size, 1000.0f);
        for (float& one : x) one = logarithm(std::abs(one));
        return x;
    };
    all["reductions"] = reductions, all["rotations"] = rotated, all["embeddings"] = embedded, all["ranks"] = ranks;
    all["log-softmax"] = [](int64_t size, Source& source) {
        Numbers x = source.take(ROWS * size, 9.0f);
        nmt_log_softmax(ROWS, size, x.data());
        return x;
    };
    for (const auto& [kind, name] : std::map<int, std::string>{
             {BF16, "in bf16"}, {SIGNED, "signed"}, {OFFSET, "with an offset"}, {UNSIGNED, "unsigned"}})
        all["rows " + name] = [kind = kind](int64_t size, Source& source) { return stored_rows(kind, size, source); };
    for (const int kind : {0, 1, 2})
        for (const bool post : {false, true})
            all[std::string(post ? "post" : "pre") + "-norm " + std::to_string(kind)] =
                [=](int64_t size, Source& source) { return normed(kind, post, size, source); };
    for (const int32_t number : {GELU, SILU, SWIGLU})
        all["activation " + std::to_string(number)] = [=](int64_t size, Source& source) {
            Numbers x = source.take(2 * ROWS * size, 8.0f);
            activate(number, ROWS, size, x.data());
            x.resize(ROWS * size);
            return x;
        };
    all["ssru"] = [](int64_t size, Source& source) {
        const Numbers wide = source.take(2 * size, 8.0f), before = source.take(size, 3.0f);
        Numbers after(size), out(size);
        recur(size, wide.data(), before.data(), after.data(), out.data());
        return joined(after, out);
    };
    for (const auto& [key, value] : std::vector<std::pair<int64_t, int64_t>>{
             {64, 64}, {32, 32}, {128, 128}, {20, 20}, {5, 7}, {16, 40}, {70, 33}}) {
        const auto sizes = [k = key, v = value](const auto& function) {
            return [=](int64_t size, Source& source) { return function(k, v, size, source); };
        };
        const std::string name = "attention " + std::to_string(key) + " " + std::to_string(value);
        all[name + " fp32"] = sizes(attended<float>), all[name + " bf16"] = sizes(attended<bf16>);
    }
    for (const auto& [name, in_int8, after_relu, cubed] :
         std::vector<std::tuple<std::string, bool, bool, bool>>{{"fp32", false, false, false},
                                                                {"int8", true, false, false},
                                                                {"int8 after ReLU", true, true, false},
                                                                {"small int8", true, false, true},
                                                                {"small int8 after ReLU", true, true, true}})
        all["products " + name] = [i = in_int8, r = after_relu, c = cubed](int64_t size, Source& source) {
            return products(i, r, c, size, source);
        };
    return all;
}

// The translations of fifty random sentences by a random model.
Hash translations(const std::string& what, const nmt_config& c) {
    Source random;
    const std::vector<Form> forms = forms_of(c);
    std::vector<Numbers> numbers;
    std::vector<nmt_array> arrays;
    for (const Form& one : forms) {
        numbers.push_back(random.take(one.rows * std::max<int64_t>(1, one.columns), 0.3f));
        arrays.push_back({one.name.c_str(), NMT_FP32, one.rows, one.columns, numbers.back().data(), 0});
    }
    nmt_model* const model = nmt_model_new(&c, int64_t(arrays.size()), arrays.data());
    const int64_t count = 50, bos = 2, eos = 3, banned[] = {0, 1, 2};
    const nmt_search_options options{4, 2, bos, eos, 20, 1, 1, 1, 3, 0, banned, nullptr};
    nmt_search* const search = model ? nmt_search_new(model, &options) : nullptr;
    if (!search) stop(what);
    std::vector<int64_t> ids, lengths, tokens, longest;
    for (int64_t s = 0; s < count; ++s) {
        ids.push_back(s), lengths.push_back(1 + random.next() % 30), longest.push_back(lengths.back() + 5);
        for (int64_t i = 1; i < lengths.back(); ++i) tokens.push_back(4 + random.next() % (c.source_vocab - 4));
        tokens.push_back(eos);
    }
    Numbers penalties(64), word_penalties(64);
    for (size_t i = 0; i < penalties.size(); ++i) penalties[i] = 1.0f + 0.125f * float(i);
    Hash hash;
    if (nmt_search_add(search, count, ids.data(), lengths.data(), tokens.data(), longest.data(), 64, penalties.data(),
                       word_penalties.data()))
        stop(what);
    while (nmt_search_sentences(search)) {
        const nmt_results* const found = nmt_search_step(search, 8, 0.7);
        if (!found) stop(what);
        const int64_t all = found->count * found->nbest;
        hash.add(found->ids, found->count * sizeof(int64_t));
        hash.add(found->lengths, all * sizeof(int64_t));
        hash.add(found->tokens, all * found->longest * sizeof(int64_t));
        for (const float* const x : {found->log_probs, found->scores}) hash.add({x, x + all});
        hash.add({found->paths, found->paths + all * found->longest});
    }
    nmt_search_delete(search), nmt_model_delete(model);
    return hash;
}

}  // namespace

#define FUNCTION extern "C" __attribute__((visibility("default")))

// Write what a kernel computes of these numbers to y. Return how many numbers that are.
FUNCTION int64_t compute(const char* kernel, int64_t size, const float* x, int64_t count, float* y) {
    Source source{x, x + count};
    const Numbers results = kernels().at(kernel)(size, source);
    std::copy(results.begin(), results.end(), y);
    return int64_t(results.size());
}

FUNCTION void same_bits(const char* path) {
    FILE* const file = std::fopen(path, "w");
    if (!file) std::abort();
    for (const auto& [name, kernel] : kernels()) {
        Hash hash;
        Source source;
        for (int64_t size = 1; size <= MOST; ++size) hash.add(kernel(size, source));
        for (const int64_t size : {128, 191, 256, 300, 512, 1024, 2048}) hash.add(kernel(size, source));
        hash.print(file, name + ":");
    }
    for (const int64_t precision : {NMT_FP32, NMT_INT8}) {
        nmt_config paper{64, 2, 32, 32, 256, 2, 2, 64, 500, 500};
        paper.post_norm = paper.tied = 1, paper.precision = precision, paper.epsilon = 1e-5;
        nmt_config rotary = paper, learned = paper, ssru = paper;
        rotary.norm = NMT_RMS_NORM, rotary.activation = NMT_SWIGLU, rotary.positions = NMT_ROTARY, rotary.post_norm = 0,
        rotary.tied = 0, rotary.d_model = 96, rotary.heads = 3, rotary.target_vocab = 700;
        learned.activation = NMT_GELU, learned.positions = NMT_LEARNED, learned.key_size = learned.value_size = 20;
        ssru.decoder = NMT_SSRU, ssru.positions = NMT_MARIAN;
        for (const auto& [name, config] :
             std::map<std::string, nmt_config>{{"the paper's form", paper},
                                               {"SSRU, Marian's positions", ssru},
                                               {"rotary positions, SwiGLU, RMSNorm", rotary},
                                               {"learned positions, GELU, heads of 20", learned}}) {
            const std::string what = name + (precision == NMT_FP32 ? ", fp32" : ", int8");
            translations(what, config).print(file, "translations, " + what + ":");
        }
    }
    std::fclose(file);
}

int main(int, char** arguments) { same_bits(arguments[1]); }
