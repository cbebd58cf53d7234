// Hostile models and calls for the engine, under sanitizers. `make fuzz` compiles and runs this file.
//
//   bytes ──▶ a configuration, its arrays, changes of both ──▶ nmt_model_new ──▶ calls of the functions of nmt.h
//
// What nmt.h asks of a caller is kept: every pointer is valid for the counts that go with it. Each array ends exactly
// where its size says. Everything else may be wrong: sizes, names, numbers, options, ids, the order of calls; and
// memory may run out at any allocation. Each call must return, or fail with a message.
//
// With libFuzzer (-DNMT_LIBFUZZER), it finds the bytes. Without it:
//   hostile SECONDS [SEED] [COUNT]   random bytes; at most COUNT inputs
//   hostile threads SECONDS [SEED]   many threads use and delete models at once; results are those of one thread

#define NMT_SANITIZED
#include "../../nmt_cli/engine/src/engine.cpp"
#include "models.hpp"

#include <cstdlib>
#include <random>

// Memory: at most MOST_BYTES at once, and none from a chosen allocation on.
namespace hostile {

constexpr size_t MOST_BYTES = size_t(1) << 28;
std::atomic<int64_t> allocations_left{std::numeric_limits<int64_t>::max()};

void* allocated(size_t size, size_t alignment) {
    if (size > MOST_BYTES || allocations_left.fetch_sub(1, std::memory_order_relaxed) <= 0) throw std::bad_alloc();
    void* const block = alignment ? aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                                  : std::malloc(std::max<size_t>(1, size));
    if (!block) throw std::bad_alloc();
    return block;
}

}  // namespace hostile

#ifndef NMT_THREADS
void* operator new(size_t size) { return hostile::allocated(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) { return hostile::allocated(size, size_t(alignment)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { std::free(block); }
#endif

namespace hostile {

// End the process if the engine did what it must not do.
void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "hostile: %s (last error: %s)\n", what, nmt_error());
    std::abort();
}

// The bytes that decide. When they end, they are zeros.
struct Choices {
    const uint8_t *at, *end;

    bool more() const { return at < end; }
    int64_t below(int64_t count) { return more() ? *at++ % count : 0; }
    bool one_of(int64_t count) { return below(count) == count - 1; }
    uint64_t word() {
        uint64_t x = 0;
        for (int i = 0; i < 8; ++i) x = x << 8 | uint64_t(below(256));
        return x;
    }
    // A number of the kind that is forgotten: at or near a power of two, of either sign; or any.
    int64_t strange() {
        if (one_of(16)) return int64_t(word());
        const uint64_t near_power = (uint64_t(1) << below(64)) + uint64_t(below(3)) - 1;
        return int64_t(below(3) ? near_power : -near_power);
    }
    int64_t often_below(int64_t count) { return one_of(32) ? strange() : count > 0 ? below(count) : 0; }
    float strange_float() {
        static constexpr float ALL[] = {0.0f,   -0.0f,    1.0f,      -1.0f, 1e-45f, -1e-45f, 1e-38f, 3e38f,
                                        -3e38f, INFINITE, -INFINITE, NAN,   -NAN,   1e-12f,  127.5f};
        const int64_t which = below(int64_t(std::size(ALL)) + 1);
        return which < int64_t(std::size(ALL)) ? ALL[which] : number_of(uint32_t(word()));
    }
};

// A copy that ends where its numbers end.
template <class Number>
struct Exact {
    std::unique_ptr<Number[]> numbers;
    int64_t count;

    explicit Exact(int64_t count) : numbers(new Number[size_t(count)]()), count(count) {}
    explicit Exact(const std::vector<Number>& from) : Exact(int64_t(from.size())) {
        std::copy(from.begin(), from.end(), numbers.get());
    }
    Number* data() const { return numbers.get(); }
};
using Ids = Exact<int64_t>;

const std::string NO_NAME = "no name",
                  NAMES[] = {"", NO_NAME, "%s%n%s", "\xff\x1b[2J", "encoder.-1.norm.weight", std::string(5000, 'x')};

// An array of a model, with its numbers.
struct Named {
    std::string name;
    int64_t dtype, rows, columns;
    bool is_matrix;  // int8 stores integers
    std::shared_ptr<char> data;
    int64_t odd = 0;  // 1: the numbers begin at an odd address

    int64_t count() const { return rows * std::max<int64_t>(1, columns); }
    int64_t bytes() const { return count() * (dtype == NMT_FP32 ? 4 : dtype == NMT_BF16 ? 2 : 1); }

    // Small numbers, of which a scale is positive. Of integers, only one in 256 is large, if most are `small`.
    void fill(uint32_t seed, bool small = false) {
        char* const block = static_cast<char*>(std::malloc(size_t(std::max<int64_t>(1, bytes() + odd))));
        data = std::shared_ptr<char>(block, std::free);
        const bool is_scale = name.size() > 7 && name.compare(name.size() - 7, 7, ".scales") == 0;
        for (int64_t i = 0; i < count(); ++i) {
            seed = seed * 1664525u + 1013904223u;
            const float x = is_scale ? float(seed >> 24) * 1e-4f : float(int32_t(seed) >> 16) * 1e-5f;
            if (dtype == NMT_FP32)
                put(i, x);
            else if (dtype == NMT_BF16)
                put(i, to_bf16(x));
            else
                put(i, int8_t(std::max(-127, int8_t(seed >> 24) / (small && i % 256 ? 8 : 1))));
        }
    }

    template <class Number>
    void put(int64_t i, const Number& number) {
        std::memcpy(data.get() + odd + i * int64_t(sizeof number), &number, sizeof number);
    }
    void put_float(int64_t i, float x) {
        if (dtype == NMT_FP32) put(i, x);
        if (dtype == NMT_BF16) put(i, to_bf16(x));
    }

    nmt_array described() const {
        return {name == NO_NAME ? nullptr : name.c_str(), dtype, rows, columns, data ? data.get() + odd : nullptr, 0};
    }
};

nmt_config small_config(Choices& choose) {
    static constexpr int64_t SIZES[] = {4, 8, 12, 16, 20, 32, 36, 68};
    const auto size = [&] { return SIZES[choose.below(std::size(SIZES))]; };
    nmt_config c{};
    c.precision = choose.below(2) ? NMT_INT8 : NMT_FP32;
    c.d_model = size(), c.d_ff = size(), c.heads = 1 + choose.below(3);
    static constexpr int64_t HEADS[] = {4, 2, 6, 16, 32, 64};
    c.key_size = HEADS[choose.below(6)], c.value_size = choose.below(2) ? c.key_size : 4 * (1 + choose.below(5));
    if (c.precision == NMT_INT8) c.value_size = ceiling(c.value_size, 4);
    c.encoder_layers = 1 + choose.below(2), c.decoder_layers = 1 + choose.below(2);
    c.max_positions = 1 + choose.below(40);
    c.tied = choose.below(2);
    static constexpr int64_t VOCABULARIES[] = {17, 1, 2, 5, 16, 255, 257, 530};
    c.source_vocab = VOCABULARIES[choose.below(8)];
    c.target_vocab = c.tied ? c.source_vocab : VOCABULARIES[choose.below(8)];
    c.norm = choose.below(2), c.activation = choose.below(4), c.positions = choose.below(4);
    c.decoder = choose.below(2);
    c.post_norm = choose.below(2), c.monotonic = choose.below(2);
    c.epsilon = 1e-5;
    return c;
}

// Change a number of the configuration.
void change(nmt_config& c, Choices& choose) {
    int64_t* const all[] = {&c.d_model,        &c.heads,          &c.key_size,      &c.value_size,   &c.d_ff,
                            &c.encoder_layers, &c.decoder_layers, &c.max_positions, &c.source_vocab, &c.target_vocab,
                            &c.norm,           &c.activation,     &c.positions,     &c.post_norm,    &c.tied,
                            &c.monotonic,      &c.precision,      &c.decoder};
    const int64_t which = choose.below(int64_t(std::size(all)) + 1);
    if (which == int64_t(std::size(all)))
        c.epsilon = choose.strange_float();
    else
        *all[which] = choose.strange();
}

constexpr int64_t MOST_NUMBERS = 1 << 18;  // of an array that is filled

// Change one array, or the list of them.
void change(std::vector<Named>& all, Choices& choose) {
    if (all.empty()) return;
    const int64_t at = (choose.below(256) << 8 | choose.below(256)) % int64_t(all.size());
    Named& one = all[size_t(at)];
    Named& other = all[size_t((at + 1 + choose.below(200)) % int64_t(all.size()))];
    const auto refill = [&one] {  // unless it is too large, or has no size
        const double count = double(one.rows) * double(std::max<int64_t>(1, one.columns));
        one.data = nullptr;
        if (one.rows >= 0 && one.columns >= 0 && count <= double(MOST_NUMBERS)) one.fill(1);
    };
    switch (choose.below(10)) {
        case 0:
            all.erase(all.begin() + at);
            break;
        case 1:
            all.push_back(Named(one));
            break;
        case 2:
            one.name = NAMES[choose.below(std::size(NAMES))];
            break;
        case 3:
            std::swap(one.name, other.name);
            break;
        case 4:
            one.data = nullptr;
            break;
        case 5:  // numbers of two arrays overlap
            if (one.data && other.data && one.odd == other.odd && other.bytes() >= one.bytes()) one.data = other.data;
            break;
        case 6:
            (choose.below(2) ? one.rows : one.columns) = choose.strange();
            refill();
            break;
        case 7:
            one.dtype = choose.below(2) ? choose.below(3) : choose.strange();
            refill();
            break;
        case 8:
            one.odd = 1;
            refill();
            break;
        default:
            if (!one.data || !one.count()) break;
            for (int64_t i = choose.below(3); i >= 0; --i)
                one.put_float((choose.below(256) << 8 | choose.below(256)) % one.count(), choose.strange_float());
            if (choose.one_of(4))
                for (int64_t i = 0, x = choose.below(256); i < one.count(); ++i)
                    one.put_float(i, x % 3 ? INFINITE : NAN);
    }
}

struct Free {
    void operator()(nmt_model* x) const { nmt_model_delete(x); }
    void operator()(nmt_search* x) const { nmt_search_delete(x); }
    void operator()(nmt_decoder* x) const { nmt_decoder_delete(x); }
};
using Model = std::unique_ptr<nmt_model, Free>;

// Let memory run out during a call, sometimes.
struct Shortage {
    explicit Shortage(Choices& choose) {
        if (choose.one_of(24)) allocations_left.store(choose.below(40));
    }
    ~Shortage() { allocations_left.store(std::numeric_limits<int64_t>::max()); }
};

void failed_with_a_reason() {
    const size_t length = std::strlen(nmt_error());
    require(length > 5 && length < 512, "a call failed without a message");
}

// Return whether a function that returns a number did not fail.
bool done(int64_t result) {
    if (result == -1) failed_with_a_reason();
    require(result >= -1, "a function returned a number below -1");
    return result != -1;
}

Model model_of(const nmt_config& config, const std::vector<Named>& arrays, int64_t count, Choices& choose) {
    std::vector<nmt_array> described;
    for (const Named& one : arrays) described.push_back(one.described());
    const Exact<nmt_array> given(described);
    const Shortage shortage(choose);
    Model model(nmt_model_new(&config, count, given.data()));
    if (!model) failed_with_a_reason();
    return model;
}

std::vector<Named> filled_arrays(const nmt_config& config, Choices& choose) {
    std::vector<Named> arrays;
    for (const Form& one : forms_of(config))
        arrays.push_back({one.name, NMT_FP32, one.rows, one.columns, one.is_matrix, nullptr});
    const bool integers = config.precision == NMT_INT8 && choose.below(2);
    for (size_t i = 0, count = arrays.size(); integers && i < count; ++i) {
        if (!arrays[i].is_matrix) continue;
        arrays[i].dtype = NMT_INT8;
        std::string name = arrays[i].name;
        if (const size_t end = name.rfind(".weight"); end != std::string::npos) name.resize(end);
        arrays.push_back({name + ".scales", NMT_FP32, arrays[i].rows, 0, false, nullptr});
    }
    uint32_t seed = 7;
    const bool small = choose.below(2);
    for (Named& one : arrays) {
        if (choose.one_of(64) && one.dtype == NMT_FP32) one.dtype = NMT_BF16;
        one.fill(seed += 77, small);
    }
    return arrays;
}

std::vector<int64_t> some_ids(Choices& choose, int64_t count, int64_t vocabulary) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(choose.often_below(vocabulary));
    return ids;
}

// Ascending numbers, most often.
std::vector<int64_t> some_rows(Choices& choose, int64_t below) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < std::min<int64_t>(below, 300); ++i)
        if (!choose.one_of(4)) rows.push_back(i);
    if (choose.one_of(16)) rows.push_back(choose.strange());
    if (choose.one_of(16) && rows.size() > 1) std::swap(rows[0], rows[1]);
    return rows;
}

int64_t count_of(const std::vector<int64_t>& x, Choices& choose) {
    return choose.one_of(32) ? -1 - choose.below(3) : choose.one_of(64) ? INT64_MIN : int64_t(x.size());
}

// Lengths of sentences, and their tokens.
struct Sources {
    std::vector<int64_t> lengths, tokens;

    Sources(Choices& choose, int64_t count, const nmt_config& config, int64_t vocabulary) {
        for (int64_t s = 0; s < count; ++s) {
            const int64_t most = std::min<int64_t>(config.max_positions, 12);
            lengths.push_back(choose.one_of(24) ? choose.strange() : 1 + choose.below(most));
            // A length that is refused has no tokens.
            const int64_t here = lengths.back() > config.max_positions ? 0 : std::max<int64_t>(0, lengths.back());
            for (const int64_t id : some_ids(choose, here, vocabulary)) tokens.push_back(id);
        }
    }
};

int64_t some_beam(Choices& choose) {
    static constexpr int64_t OFTEN[] = {1, 2, 3, 4, 5, 1, 2, 17};
    return choose.one_of(48) ? choose.strange() : OFTEN[choose.below(8)];
}

// A search, as a whole: it ends, and its results are what nmt.h says.
void try_search(const nmt_model* model, const nmt_config& config, Choices& choose) {
    nmt_search_options options{};
    options.beam = some_beam(choose);
    options.nbest = choose.one_of(16) ? choose.strange() : 1 + choose.below(std::max<int64_t>(1, options.beam % 64));
    options.bos = choose.often_below(config.target_vocab), options.eos = choose.often_below(config.target_vocab);
    options.lookahead = choose.below(3) ? choose.below(20) : choose.one_of(3) ? choose.strange() : 0;
    options.min_length = choose.below(3) ? choose.below(4) : choose.one_of(3) ? choose.strange() : 0;
    options.paths = choose.below(2), options.scores = choose.below(2);
    std::vector<int64_t> banned = some_ids(choose, choose.below(4), config.target_vocab), textless;
    if (choose.one_of(16))
        for (int64_t v = 0; v < config.target_vocab; ++v) banned.push_back(v);
    textless = choose.one_of(8) ? banned : some_ids(choose, choose.below(4), config.target_vocab);
    const Ids all_banned(banned), all_textless(textless);
    options.banned_count = count_of(banned, choose), options.textless_count = count_of(textless, choose);
    options.banned = all_banned.data(), options.textless = all_textless.data();
    nmt_search* made;
    {
        const Shortage shortage(choose);
        made = nmt_search_new(model, &options);
    }
    const std::unique_ptr<nmt_search, Free> search(made);
    if (!search) return failed_with_a_reason();
    if (options.beam > 1000) return;  // its steps take minutes
    int64_t next_id = 0, waiting = 0, starved = 0;
    const auto step = [&](int64_t steps, double stay) {
        const nmt_results* const results = nmt_search_step(search.get(), steps, stay);
        if (!results) {
            failed_with_a_reason();
            return false;
        }
        require(results->count >= 0 && results->nbest == options.nbest, "results of a search have wrong sizes");
        for (int64_t i = 0; i < results->count * results->nbest; ++i) {
            const int64_t length = results->lengths[i];
            require(length >= 0 && length <= results->longest && length < config.max_positions, "a wrong length");
            for (int64_t t = 0; t < length; ++t) {
                const int64_t token = results->tokens[i * results->longest + t];
                require(token >= 0 && token < config.target_vocab, "a token of a result is not in the vocabulary");
                if (options.paths) require(results->paths != nullptr, "paths are missing");
            }
            volatile float read = results->scores[i] + results->log_probs[i];
            (void)read;
        }
        for (int64_t f = 0; f < results->count; ++f)
            require(results->ids[f] >= -5 && results->ids[f] < next_id, "an unknown id");
        waiting -= results->count;
        return true;
    };
    for (int64_t calls = 2 + choose.below(10); calls > 0 && choose.more(); --calls) {
        const int64_t what = choose.below(6);
        if (what < 2) {
            const Sources sources(choose, 1 + choose.below(4), config, config.source_vocab);
            const int64_t count = int64_t(sources.lengths.size());
            std::vector<int64_t> ids, longest;
            for (int64_t s = 0; s < count; ++s) {
                ids.push_back(next_id++);
                longest.push_back(choose.one_of(32) ? choose.strange() : choose.below(config.max_positions));
            }
            std::vector<float> penalties(size_t(choose.one_of(8) ? choose.below(4) : config.max_positions + 2), 1.0f);
            for (int64_t i = choose.below(4); i > 0 && !penalties.empty(); --i)
                penalties[size_t(choose.below(256)) % penalties.size()] = choose.strange_float();
            const Ids exact_ids(ids), lengths(sources.lengths), tokens(sources.tokens), most(longest);
            const Exact<float> exact_penalties(penalties);
            const int64_t penalty_count = choose.one_of(32) ? INT64_MIN + choose.below(3) : exact_penalties.count;
            const int64_t passed = count_of(ids, choose);
            bool added;
            {
                const Shortage shortage(choose);
                added =
                    done(nmt_search_add(search.get(), passed, exact_ids.data(), lengths.data(), tokens.data(),
                                        most.data(), penalty_count, exact_penalties.data(), exact_penalties.data()));
            }
            if (added) waiting += passed;
        } else if (what == 2) {
            std::vector<int64_t> ids = some_ids(choose, choose.below(4), std::max<int64_t>(1, next_id));
            const Ids exact(ids);
            const int64_t before = nmt_search_sentences(search.get()), passed = count_of(ids, choose);
            const Shortage shortage(choose);
            if (done(nmt_search_drop(search.get(), passed, exact.data())))
                waiting -= before - nmt_search_sentences(search.get());
        } else {
            static constexpr double STAY[] = {0.0, 0.5, 1.0, 2.0, -1.0, NAN, 1e300, INFINITE};
            const double stay = STAY[choose.one_of(4) ? choose.below(8) : choose.below(3)];
            const int64_t wanted = choose.one_of(16) ? choose.strange() : choose.below(6);
            const int64_t steps = options.beam > 64 ? std::min<int64_t>(1, wanted) : wanted;  // more take long
            const Shortage shortage(choose);
            if (!step(steps, stay)) ++starved;
        }
        require(nmt_search_sentences(search.get()) == waiting, "a search has lost a sentence");
        require(nmt_search_open(search.get()) >= 0, "a number of hypotheses is negative");
    }
    if (options.beam > 64) return;  // it takes long
    for (int64_t round = 0; nmt_search_sentences(search.get()) > 0; ++round) {
        require(round <= config.max_positions + 2, "a search does not end");
        if (!step(1, 0.999)) return require(starved > 0 || options.beam > 16, "a search that was not disturbed fails");
    }
}

// A decoder: any functions in any order.
void try_decoder(const nmt_model* model, const nmt_config& config, Choices& choose) {
    const int64_t beam = some_beam(choose), vocabulary = config.target_vocab;
    nmt_decoder* made;
    {
        const Shortage shortage(choose);
        made = nmt_decoder_new(model, beam);
    }
    const std::unique_ptr<nmt_decoder, Free> decoder(made);
    if (!decoder) return failed_with_a_reason();
    int64_t sentences = 0;
    for (int64_t calls = 2 + choose.below(24); calls > 0 && choose.more(); --calls) {
        const int64_t all = sentences * beam;
        switch (choose.below(7)) {
            case 0: {
                const Sources sources(choose, choose.below(4), config, config.source_vocab);
                const Ids lengths(sources.lengths), tokens(sources.tokens);
                const int64_t passed = count_of(sources.lengths, choose);
                const Shortage shortage(choose);
                if (done(nmt_decoder_add(decoder.get(), passed, lengths.data(), tokens.data()))) sentences += passed;
                break;
            }
            case 1:
            case 2: {
                const std::vector<int64_t> rows = some_rows(choose, all);
                const Ids open(rows), tokens(some_ids(choose, open.count, vocabulary));
                const Exact<float> logits(open.count * vocabulary);
                const int64_t passed = count_of(rows, choose);
                const Shortage shortage(choose);
                if (done(nmt_decoder_step(decoder.get(), passed, open.data(), tokens.data(), logits.data()))) break;
            }
            case 3:
            case 4: {
                const std::vector<int64_t> rows = some_rows(choose, all);
                const Ids open(rows), tokens(some_ids(choose, open.count, vocabulary));
                const std::vector<int64_t> banned = some_ids(choose, choose.below(5), vocabulary);
                const Ids exact_banned(banned), counts(some_ids(choose, open.count, int64_t(banned.size()) + 1));
                const Ids only(some_ids(choose, open.count, vocabulary));
                Exact<float> so_far(all);
                for (int64_t i = 0; i < std::min<int64_t>(all, 20); ++i) so_far.data()[i] = choose.strange_float();
                int64_t candidates = 1 + choose.below(40);
                if (choose.one_of(16)) candidates = sentences ? -choose.below(3) : choose.strange();
                const int64_t found = sentences * std::max<int64_t>(0, candidates);
                const Exact<float> values(found);
                const Ids numbers(found);
                const int64_t passed = count_of(rows, choose), passed_banned = count_of(banned, choose);
                const bool counted = choose.below(2), only_one = choose.one_of(3);
                const Shortage shortage(choose);
                if (!done(nmt_decoder_best(decoder.get(), passed, open.data(), tokens.data(), so_far.data(),
                                           passed_banned, exact_banned.data(), counted ? counts.data() : nullptr,
                                           only_one ? only.data() : nullptr, candidates, values.data(),
                                           numbers.data())))
                    break;
                for (int64_t i = 0; i < found; ++i)
                    require(numbers.data()[i] >= 0 && numbers.data()[i] < beam * vocabulary, "a wrong candidate");
                break;
            }
            case 5: {
                if (all > 1000) break;
                const Ids parents(some_ids(choose, all, beam));
                const Shortage shortage(choose);
                done(nmt_decoder_reorder(decoder.get(), parents.data()));
                break;
            }
            default: {
                const std::vector<int64_t> rows = some_rows(choose, sentences);
                const Ids stay(rows);
                const int64_t passed = count_of(rows, choose);
                const Shortage shortage(choose);
                if (done(nmt_decoder_keep(decoder.get(), passed, stay.data()))) sentences = passed;
                break;
            }
        }
    }
}

void try_pass(const nmt_model* model, const nmt_config& config, Choices& choose) {
    const int64_t count = choose.below(4), heads = config.heads;
    const Sources sources(choose, count, config, config.source_vocab),
        targets(choose, count, config, config.target_vocab);
    const int64_t rows = int64_t(targets.tokens.size());
    const Ids lengths(sources.lengths), tokens(sources.tokens), target_lengths(targets.lengths),
        target_tokens(targets.tokens), next(some_ids(choose, rows, config.target_vocab));
    int64_t own = 0, other = 0, cross = 0;
    for (size_t s = 0; s < sources.lengths.size(); ++s) {
        const auto kept = [&](int64_t size) { return size > config.max_positions ? 0 : std::max<int64_t>(0, size); };
        const int64_t columns = kept(sources.lengths[s]), here = kept(targets.lengths[s]);
        own += columns * columns, other += here * here, cross += here * columns;
    }
    const Exact<float> log_probs(rows), encoder(config.encoder_layers * heads * own),
        decoder(config.decoder_layers * heads * other), both(config.decoder_layers * heads * cross);
    const int64_t passed = count_of(sources.lengths, choose), wanted = choose.below(16);
    const Shortage shortage(choose);
    done(nmt_pass(model, passed, lengths.data(), tokens.data(), target_lengths.data(), target_tokens.data(),
                  next.data(), wanted & 1 ? log_probs.data() : nullptr, wanted & 2 ? encoder.data() : nullptr,
                  wanted & 4 ? decoder.data() : nullptr, wanted & 8 ? both.data() : nullptr));
}

// nmt_rank and nmt_log_softmax: sizes that nothing else bounds.
void try_rank(Choices& choose) {
    int64_t batch = choose.below(4), beam = 1 + choose.below(5), candidates = 1 + choose.below(40);
    int64_t vocabulary = choose.below(2) ? 1 + choose.below(255) : 250 + choose.below(255);
    const int64_t whole = vocabulary;
    std::vector<int64_t> rows = some_rows(choose, batch * beam);
    const std::vector<int64_t> banned = some_ids(choose, choose.below(5), vocabulary);
    const Ids open(rows), exact_banned(banned), counts(some_ids(choose, open.count, int64_t(banned.size()) + 1)),
        only(some_ids(choose, open.count, vocabulary));
    const Exact<float> logits(open.count * vocabulary), so_far(batch * beam), values(batch * candidates);
    const Ids numbers(batch * candidates);
    for (int64_t i = 0; i < std::min<int64_t>(logits.count, 30); ++i)
        logits.data()[(i * 37 + choose.below(256)) % logits.count] = choose.strange_float();
    for (int64_t i = 0; i < so_far.count; ++i) so_far.data()[i] = choose.strange_float();
    int64_t passed = count_of(rows, choose);
    if (choose.one_of(8)) {  // sizes for which these pointers are valid
        const int64_t strange = choose.strange();
        int64_t* const all[] = {&batch, &beam, &candidates, &vocabulary};
        int64_t& one = *all[choose.below(4)];
        one = std::min(one, strange);
        if (choose.one_of(4))
            batch = passed = 0, beam = choose.strange(), vocabulary = choose.strange(), candidates = strange;
    }
    const bool normalized = choose.below(2), counted = choose.below(2), only_one = choose.one_of(3);
    {
        const Shortage shortage(choose);
        if (done(nmt_rank(batch, beam, passed, open.data(), vocabulary, logits.data(), normalized, so_far.data(),
                          count_of(banned, choose), exact_banned.data(), counted ? counts.data() : nullptr,
                          only_one ? only.data() : nullptr, candidates, values.data(), numbers.data())))
            for (int64_t i = 0; i < batch * candidates; ++i)
                require(numbers.data()[i] >= 0 && numbers.data()[i] < beam * vocabulary, "a wrong candidate");
    }
    const int64_t some = choose.one_of(8) ? -choose.below(9) : open.count;
    done(nmt_log_softmax(some, choose.one_of(8) ? std::min<int64_t>(whole, choose.strange()) : whole, logits.data()));
    if (choose.one_of(8)) done(nmt_log_softmax(choose.strange(), -choose.below(2), logits.data()));
}

// What a caller of the operations of training has: numbers that end where their counts say, and wrong forms.
struct Trainer {
    Choices& choose;
    const int64_t dtype = choose.below(2);
    std::vector<Named> memory{};
    nmt_dropout dropout{};

    // Numbers of which a few are strange; rarely NULL.
    void* numbers(int64_t count, int64_t kind) {
        if (choose.one_of(64)) return nullptr;
        Named one{"", kind, count, 0, false, nullptr};
        one.fill(uint32_t(choose.below(256)));
        for (int64_t i = choose.one_of(4) && count ? choose.below(4) : 0; i > 0; --i)
            one.put_float((choose.below(256) << 8 | choose.below(256)) % count, choose.strange_float());
        memory.push_back(one);
        return one.data.get();
    }
    void* rows(int64_t count) { return numbers(count, dtype); }
    float* floats(int64_t count) { return static_cast<float*>(numbers(count, NMT_FP32)); }
    const int32_t* integers(int64_t count) { return static_cast<const int32_t*>(numbers(count, NMT_FP32)); }
    void* maybe_rows(int64_t count) { return choose.one_of(3) ? nullptr : rows(count); }
    float* maybe_floats(int64_t count) { return choose.one_of(3) ? nullptr : floats(count); }
    // (rows, stride), of which `size` numbers of each row are the caller's.
    void* apart(int64_t count, int64_t stride, int64_t size) { return rows(count ? (count - 1) * stride + size : 0); }

    int64_t size() {
        static constexpr int64_t OFTEN[] = {48, 1, 2, 3, 15, 16, 17, 31, 33, 64, 127, 128, 129, 200, 257, 300};
        return choose.below(2) ? 1 + choose.below(256) : OFTEN[choose.below(16)];
    }
    int64_t row_count() { return choose.below(2) ? choose.below(200) : 5 - choose.below(6); }

    const nmt_dropout* dropout_of(int64_t count) {
        if (choose.below(2)) return nullptr;
        const int64_t dropped = choose.one_of(8) ? choose.strange() : 6554;
        dropout = {choose.strange(), choose.strange(), choose.strange(), dropped, integers(count), integers(count)};
        return &dropout;
    }

    // Make a number wrong, sometimes: negative, less than there are, or more than any may be.
    void spoil(int64_t& dtype, std::initializer_list<int64_t*> counts) {
        if (choose.one_of(16)) dtype = choose.below(2) ? NMT_INT8 : std::min<int64_t>(-1, choose.strange());
        if (!choose.one_of(6)) return;
        int64_t& one = *counts.begin()[choose.below(int64_t(counts.size()))];
        const int64_t strange = choose.strange();
        one = strange > int64_t(1) << 32 ? strange : std::min(one, strange);
    }
};

// A team of up to three threads. Those that cannot be made are not missed.
void team(void (*work)(void*), void* data, unsigned count, unsigned) {
    std::thread others[2];
    try {
        for (unsigned t = 1; t < std::min(count, 3u); ++t) others[t - 1] = std::thread(work, data);
    } catch (const std::bad_alloc&) {}
    work(data);
    for (std::thread& one : others)
        if (one.joinable()) one.join();
}

void try_residual(Trainer& with) {
    const int64_t rows = with.row_count(), size = with.size(), all = rows * size;
    nmt_residual form{with.dtype, rows, size};
    form.x = with.maybe_rows(all), form.y = with.rows(all), form.bias = with.maybe_rows(size);
    form.dropout = with.dropout_of(rows), form.epsilon = with.choose.one_of(8) ? with.choose.strange_float() : 1e-5;
    if (with.choose.one_of(4)) form.y = form.bias = form.dropout = nullptr;
    form.weight = with.maybe_rows(size), form.shift = with.maybe_rows(size);
    form.sum = with.rows(all), form.out = with.rows(all), form.moments = with.floats(2 * rows);
    const void *const grad_out = with.maybe_rows(all), *const grad_sum = with.maybe_rows(all);
    void *const grad_x = with.maybe_rows(all), *const grad_y = with.maybe_rows(all);
    float *const grad_bias = with.maybe_floats(size), *const grad_weight = with.maybe_floats(size),
                 *const grad_shift = with.maybe_floats(size);
    with.spoil(form.dtype, {&form.rows, &form.size});
    const Shortage shortage(with.choose);
    done(nmt_residual_forward(&form));
    done(nmt_residual_backward(&form, grad_out, grad_sum, grad_x, grad_y, grad_bias, grad_weight, grad_shift));
}

void try_activation(Trainer& with) {
    const int64_t rows = with.row_count(), size = with.size(), activation = with.choose.below(4);
    const int64_t columns = activation == NMT_SWIGLU ? 2 * size : size;
    nmt_activation form{with.dtype, rows, size, activation, with.rows(rows * columns), with.maybe_rows(columns)};
    form.dropout = with.dropout_of(rows);
    void *const out = with.rows(rows * size), *const grad_x = with.rows(rows * columns);
    float* const grad_bias = with.maybe_floats(columns);
    with.spoil(form.dtype, {&form.rows, &form.size, &form.activation});
    const Shortage shortage(with.choose);
    done(nmt_activation_forward(&form, out));
    done(nmt_activation_backward(&form, out, grad_x, grad_bias));
}

void try_attention(Trainer& with) {
    Choices& choose = with.choose;
    const int64_t heads = 1 + choose.below(3), key = 1 + with.size() % 70, value = 1 + with.size() % 70;
    const int64_t key_width = heads * key, width = heads * value;
    const bool causal = choose.below(2), cross = choose.one_of(3) && (!causal || choose.one_of(8));
    std::vector<int64_t> starts{0}, key_starts{0};
    int64_t longest = 0;
    for (int64_t s = choose.below(6); s > 0; --s) {
        const int64_t queries = 1 + choose.below(choose.one_of(4) ? 200 : 24), keys = cross ? with.size() : queries;
        longest = std::max({longest, queries, keys});
        starts.push_back(starts.back() + queries), key_starts.push_back(key_starts.back() + keys);
    }
    const int64_t rows = starts.back() + choose.below(4), key_rows = key_starts.back() + choose.below(4);
    const int64_t sentences = int64_t(starts.size()) - 1;
    for (std::vector<int64_t>* const one : {&starts, &key_starts})
        for (int64_t i = choose.below(sentences + 1); i <= sentences && choose.one_of(16); ++i)
            (*one)[size_t(i)] = choose.strange();
    const Ids exact_starts(starts), exact_key_starts(key_starts);
    nmt_attention form{with.dtype, rows, key_rows, sentences, heads, key, value, causal};
    form.starts = choose.one_of(64) ? nullptr : exact_starts.data();
    form.key_starts = choose.one_of(64) ? nullptr : exact_key_starts.data();
    form.q_stride = key_width + choose.below(3) * width, form.k_stride = key_width + choose.below(3) * width;
    form.v_stride = width + choose.below(3) * key_width;
    form.grad_stride = choose.below(2) ? key_width + width : std::max(key_width, width);
    form.q = with.apart(rows, form.q_stride, key_width), form.q_bias = with.maybe_rows(key_width);
    form.k = with.apart(key_rows, form.k_stride, key_width), form.k_bias = with.maybe_rows(key_width);
    form.v = with.apart(key_rows, form.v_stride, width), form.v_bias = with.maybe_rows(width);
    form.rotation = choose.below(2) || (key % 2 && !choose.one_of(8)) ? nullptr : with.floats(longest * key);
    form.positions = longest, form.dropout = with.dropout_of(rows);
    form.out = with.rows(rows * width), form.normalizers = with.floats(rows * heads);
    const void* const grad_out = with.rows(rows * width);
    void* const grad_q = with.apart(rows, form.q_stride, key_width);
    void* const grad_k = with.apart(key_rows, form.grad_stride, key_width);
    void* const grad_v = with.apart(key_rows, form.grad_stride, width);
    float *const q_bias = with.maybe_floats(key_width), *const k_bias = with.maybe_floats(key_width),
                 *const v_bias = with.maybe_floats(width);
    with.spoil(form.dtype, {&form.rows, &form.key_rows, &form.heads, &form.key, &form.value, &form.positions,
                            &form.q_stride, &form.k_stride, &form.v_stride, &form.grad_stride});
    if (choose.one_of(24)) form.sentences = std::min(form.sentences, choose.strange());
    const Shortage shortage(choose);
    if (choose.below(4)) done(nmt_attention_forward(&form));  // else normalizers are anything
    done(nmt_attention_backward(&form, grad_out, grad_q, grad_k, grad_v, q_bias, k_bias, v_bias));
}

void try_loss(Trainer& with) {
    const int64_t rows = with.row_count(), size = with.size();
    const Ids targets(some_ids(with.choose, rows, std::min<int64_t>(size, 256)));
    const Exact<double> sums(2);
    nmt_loss form{with.dtype, rows, size, with.choose.one_of(64) ? nullptr : targets.data(), 0.1, 0.0};
    if (with.choose.one_of(8)) form.smoothing = with.choose.strange_float();
    if (with.choose.below(2)) form.divergence = with.choose.one_of(8) ? with.choose.strange_float() : 5.0f;
    void* const scores = with.rows(rows * size);
    with.spoil(form.dtype, {&form.rows, &form.size});
    const Shortage shortage(with.choose);
    done(nmt_loss_rows(&form, scores, with.choose.one_of(64) ? nullptr : sums.data()));
}

void try_adam(Trainer& with) {
    int64_t count = with.row_count() * with.size();
    nmt_adam form{count, with.choose.one_of(8) ? with.choose.strange() : 1 + with.choose.below(9)};
    form.params = with.floats(count), form.first = with.floats(count), form.second = with.floats(count);
    form.grads = with.floats(count), form.rounded = with.choose.below(2) ? nullptr : with.numbers(count, NMT_BF16);
    form.scale = 1.0, form.rate = 1e-3, form.beta1 = 0.9, form.beta2 = with.choose.strange_float();
    if (with.choose.one_of(8)) count = form.count = std::min(count, with.choose.strange());
    const Exact<double> norm(1);
    const Shortage shortage(with.choose);
    done(nmt_norm(count, form.grads, with.choose.one_of(32) ? nullptr : norm.data()));
    done(nmt_adam_step(&form));
}

void try_training(Choices& choose) {
    static constexpr void (*TRIES[])(Trainer&) = {try_attention, try_residual, try_activation, try_loss, try_adam};
    while (choose.more()) {
        Trainer with{choose};
        nmt_train_threads(choose.below(2) ? nullptr : team, choose.one_of(8) ? choose.strange() : 3);
        TRIES[choose.below(5)](with);
    }
}

void try_all(Choices choose) {
    if (choose.one_of(8)) return try_rank(choose);
    if (choose.one_of(3)) return try_training(choose);
    nmt_use_threads(choose.one_of(8) ? choose.strange() % 9 : 1);
    nmt_config config = small_config(choose);
    bool changed = false;
    if (choose.one_of(12)) {  // another configuration whose arrays fit
        change(config, choose);
        changed = true;
        int64_t largest = 0, layers = std::max(config.encoder_layers, config.decoder_layers);
        for (const int64_t x : {config.d_model, config.heads, config.key_size, config.value_size, config.d_ff,
                                config.source_vocab, config.target_vocab, config.encoder_layers, config.decoder_layers})
            largest = x < 0 ? INT64_MAX : std::max(largest, x);
        if (largest > 4096 || layers > 20 || config.max_positions > 1 << 20)
            return void(model_of(config, {}, 0, choose));
        if (config.positions == NMT_LEARNED && config.max_positions > 4096) return;
        for (const Form& one : forms_of(config))
            if (one.rows < 0 || one.columns < 0 || one.rows * std::max<int64_t>(1, one.columns) > MOST_NUMBERS) return;
    }
    std::vector<Named> arrays = filled_arrays(config, choose);
    for (int64_t i = choose.below(2) ? 0 : choose.below(4); i > 0; --i) change(arrays, choose), changed = true;
    if (choose.one_of(24)) change(config, choose), changed = true;
    const int64_t count = choose.one_of(64) ? -choose.below(3) : int64_t(arrays.size());
    const double positions = double(config.max_positions) * double(std::max(config.d_model, config.key_size));
    if (positions > double(MOST_NUMBERS) && positions <= double(MOST_POSITIONS)) return;  // it takes long
    const Model model = model_of(config, arrays, count, choose);
    if (!changed && count == int64_t(arrays.size()) && !model)
        require(std::strcmp(nmt_error(), "out of memory") == 0, "a model that is right is refused");
    arrays.clear();  // the engine has copied them
    if (!model || config.max_positions > 4096) return;
    while (choose.more()) switch (choose.below(4)) {
            case 0:
                try_pass(model.get(), config, choose);
                break;
            case 1:
                try_decoder(model.get(), config, choose);
                break;
            default:
                try_search(model.get(), config, choose);
        }
}

// Each input has a thread of its own, whose buffers are as small as they can be.
void try_bytes(const uint8_t* data, size_t size) {
    std::thread([=] { try_all({data, data + std::min<size_t>(size, 4096)}); }).join();
}

// What a model computes for some sentences: a search, steps of a decoder, and a pass.
std::vector<float> answers_of(const nmt_model* model, const nmt_config& config, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> found;
    const int64_t count = 6;
    std::vector<int64_t> ids, lengths, tokens, longest(count, 12);
    for (int64_t s = 0; s < count; ++s) {
        ids.push_back(s), lengths.push_back(1 + random() % 15);
        for (int64_t i = 0; i < lengths.back(); ++i) tokens.push_back(random() % config.source_vocab);
    }
    const std::vector<float> penalties(64, 1.5f);
    nmt_search_options options{};
    options.beam = 4, options.nbest = 2, options.bos = 1, options.eos = 2;
    const std::unique_ptr<nmt_search, Free> search(nmt_search_new(model, &options));
    require(search && !nmt_search_add(search.get(), count, ids.data(), lengths.data(), tokens.data(), longest.data(),
                                      int64_t(penalties.size()), penalties.data(), penalties.data()),
            "a search is refused");
    while (nmt_search_sentences(search.get())) {
        const nmt_results* const results = nmt_search_step(search.get(), 3, 0.9);
        require(results, "a search fails");
        const int64_t all = results->count * results->nbest;
        found.insert(found.end(), results->scores, results->scores + all);
        found.insert(found.end(), results->tokens, results->tokens + all * results->longest);
    }
    const std::unique_ptr<nmt_decoder, Free> decoder(nmt_decoder_new(model, 2));
    require(decoder && !nmt_decoder_add(decoder.get(), count, lengths.data(), tokens.data()), "a decoder is refused");
    std::vector<int64_t> open(2 * count), newest(2 * count, 1);
    std::iota(open.begin(), open.end(), 0);
    std::vector<float> logits(open.size() * size_t(config.target_vocab)), log_probs(tokens.size());
    for (int step = 0; step < 3; ++step)
        require(!nmt_decoder_step(decoder.get(), 2 * count, open.data(), newest.data(), logits.data()), "a step fails");
    // Every source id is a target id, too.
    require(!nmt_pass(model, count, lengths.data(), tokens.data(), lengths.data(), tokens.data(), tokens.data(),
                      log_probs.data(), nullptr, nullptr, nullptr),
            "a pass fails");
    found.insert(found.end(), logits.begin(), logits.end());
    found.insert(found.end(), log_probs.begin(), log_probs.end());
    return found;
}

nmt_config large_config(std::mt19937& random) {
    nmt_config c{64, 2, 32, 32, 1024, 1, 1, 20, 100, 3000};
    c.norm = random() % 2, c.activation = random() % 4, c.positions = random() % 3, c.post_norm = random() % 2;
    c.precision = random() % 2 ? NMT_INT8 : NMT_FP32;
    c.epsilon = 1e-5;
    return c;
}

Model large_model(const nmt_config& config) {
    Choices none{nullptr, nullptr};
    Model model = model_of(config, filled_arrays(config, none), int64_t(forms_of(config).size()), none);
    require(bool(model), "a model that is right is refused");
    return model;
}

// Several threads use one model, each with helpers, while others make, use and delete models. The last one deletes it.
void try_threads(uint32_t seed) {
    std::mt19937 random(seed);
    const nmt_config config = large_config(random);
    const std::shared_ptr<nmt_model> model(large_model(config).release(), Free());
    const std::vector<float> expected = answers_of(model.get(), config, seed);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([=] {
            nmt_use_threads(1 + t);
            const std::string beam = std::to_string(-1 - t);
            require(!nmt_decoder_new(model.get(), -1 - t), "a negative beam is taken");
            require(answers_of(model.get(), config, seed) == expected, "another thread changes a result");
            require(std::strstr(nmt_error(), beam.c_str()), "another thread changes an error");
        });
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([=] {
            nmt_use_threads(1 + t);
            const Model own = large_model(config);
            require(answers_of(own.get(), config, seed) == expected, "a model of the same numbers differs");
        });
    for (std::thread& one : threads) one.join();
}

}  // namespace hostile

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    hostile::try_bytes(data, size);
    return 0;
}

#ifndef NMT_LIBFUZZER
int main(int count, char** arguments) {
    const bool threads = count > 1 && !std::strcmp(arguments[1], "threads");
    const auto number = [&](int at, uint64_t otherwise) {
        return at + threads < count ? std::strtoull(arguments[at + threads], nullptr, 10) : otherwise;
    };
    const uint64_t seconds = number(1, 10), seed = number(2, std::random_device()()), most = number(3, UINT64_MAX);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    uint64_t inputs = 0;
    for (; inputs < most && std::chrono::steady_clock::now() < until; ++inputs) {
        std::mt19937 random(uint32_t(seed + inputs));
        if (threads) {
            hostile::try_threads(uint32_t(seed + inputs));
            continue;
        }
        std::vector<uint8_t> bytes(random() % 600);
        const uint32_t zeros = random() % 4;  // choices that are zero are the usual ones
        for (uint8_t& byte : bytes) byte = random() % 4 < zeros ? 0 : uint8_t(random());
        hostile::try_bytes(bytes.data(), bytes.size());
    }
    std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
}
#endif
