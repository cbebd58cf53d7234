// What a decoder computes between its matrix products, for a CPU, in one pass each; `kernels.py` compiles and calls it.
//
//   N rows   D d_model   H heads   K d_k   V d_v   a "kind" says what numbers are: fp32, bf16 or int8 in steps of one size
//
//   norm     residual (N, D) + what a sub-layer gave, LayerNorm, and the rows that the next matrix product takes
//   attend   each row's queries over keys and values wherever they stand: equation (1), the softmax in fp32
//   Past     which keys and values each hypothesis of a beam search descends from
//   best     log-softmax and the best continuations of each sentence
//   product  the one matrix product here: int8 for so few rows that reading the weights is all the work
//
// A row is computed by the same instructions in the same order whatever rows stand beside it, so no result depends on
// them. Everything is one thread's work: a CPU's cores have a worker each. Sums of numbers that stand side by side may
// be taken in any order (`omp simd reduction`): in vector registers, the same for the same length.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif

namespace {

enum Kind : int { FP32 = 0, BF16 = 1, INT8 = 2 };

struct bf16 {
    uint16_t bits;
};

inline float load(float x) { return x; }

inline float load(bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}

inline bf16 rounded(float x) {  // to nearest, to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return {uint16_t(x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0)};
}

inline float exponential(float x) {  // of x <= 0, or NaN; within 2 units in the last place, at least 1e-38
    x = x < -87.0f ? -87.0f : x;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const uint32_t bits = uint32_t(int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

// Sixteen numbers side by side: one register where there are such, several elsewhere.
typedef float Vector __attribute__((vector_size(64), aligned(4)));
typedef uint32_t Bits __attribute__((vector_size(64), aligned(4)));
typedef uint16_t Halves __attribute__((vector_size(32), aligned(2)));
constexpr int LANES = 16;

inline Vector vector(const float* x) {
    Vector y;
    std::memcpy(&y, x, sizeof y);
    return y;
}

inline Vector vector(const bf16* x) {
    Halves half;
    std::memcpy(&half, x, sizeof half);
    const Bits bits = __builtin_convertvector(half, Bits) << 16;
    Vector y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

typedef float Four __attribute__((vector_size(16), aligned(4)));

// The sums of four vectors' numbers, each in the same order as the others.
inline Four sums_of(Vector a, Vector b, Vector c, Vector d) {
#define LOWER(x, y, k) x + k, y + k, x + k + 1, y + k + 1
#define PAIRS(k) LOWER(0, 16, k), LOWER(0, 16, k + 4), LOWER(0, 16, k + 8), LOWER(0, 16, k + 12)
    const Vector ab = __builtin_shufflevector(a, b, PAIRS(0)) + __builtin_shufflevector(a, b, PAIRS(2));
    const Vector cd = __builtin_shufflevector(c, d, PAIRS(0)) + __builtin_shufflevector(c, d, PAIRS(2));
#undef PAIRS
#undef LOWER
#define QUAD(k) k, k + 1, k + 16, k + 17
    const Vector all = __builtin_shufflevector(ab, cd, QUAD(0), QUAD(4), QUAD(8), QUAD(12)) + __builtin_shufflevector(ab, cd, QUAD(2), QUAD(6), QUAD(10), QUAD(14));
#undef QUAD
    Four part[4];
    std::memcpy(part, &all, sizeof all);
    return (part[0] + part[2]) + (part[1] + part[3]);
}

void store(const float* x, int64_t count, void* out, int kind, float step) {
    if (kind == FP32) {
        std::memcpy(out, x, count * sizeof(float));
    } else if (kind == BF16) {
        bf16* y = static_cast<bf16*>(out);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) y[i] = rounded(x[i]);
    } else {
        int8_t* y = static_cast<int8_t*>(out);
        const float scale = 1.0f / step;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
            float v = x[i] * scale;
            v = v < -128.0f ? -128.0f : v;
            v = v > 127.0f ? 127.0f : v;
            y[i] = int8_t(int32_t(std::nearbyint(v)));
        }
    }
}

int64_t size_of(int kind) { return kind == FP32 ? 4 : kind == BF16 ? 2 : 1; }

template <class T>
void add(float* x, const T* y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) x[i] += load(y[i]);
}

template <class T>
void loaded(const T* x, int64_t count, float factor, float* out) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = load(x[i]) * factor;
}

void layer_norm(const float* x, int64_t size, const float* weight, const float* bias, float epsilon, float* out) {
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += x[i];
    const float mean = sum / size;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt(squares / size + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

struct Shape {
    int64_t heads, key, value;  // H, K, V
    float scale;
};

constexpr int GROUP = 4;  // rows that attend together

// Where the i-th keys and values of row r stand: one behind the other from `first` on, or at places of a list of its own.
struct At {
    int64_t first;
    const int32_t* lists[GROUP];

    int64_t operator()(int r, int64_t i) const { return lists[0] ? lists[r][i] : first + i; }
};

// Equation (1) for `rows` rows, GROUP at most: queries q (rows, H * K) already scaled; the i-th keys and values of row r
// are at `at(r, i)`; out (rows, H * V). What rows have in common is read once.
template <class T>
void attend_plain(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride, const At& at, int64_t count, float* scores, float* out) {
    const int64_t key = shape.key, value = shape.value;
    for (int64_t n = 0; n < rows * shape.heads; ++n, q += key, out += value) {
        const int r = int(n / shape.heads);
        const int64_t h = n % shape.heads;
        float most = -std::numeric_limits<float>::infinity(), total = 0.0f;
        for (int64_t i = 0; i < count; ++i) {
            const T* const k = keys + at(r, i) * stride + h * key;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < key; ++j) sum += q[j] * load(k[j]);
            scores[i] = sum;
            most = sum > most ? sum : most;
        }
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < count; ++i) {
            scores[i] = exponential(scores[i] - most);
            total += scores[i];
        }
        const float factor = count ? 1.0f / total : 0.0f;
        std::fill(out, out + value, 0.0f);
        for (int64_t i = 0; i < count; ++i) {
            const T* const v = values + at(r, i) * stride + h * value;
            const float weight = scores[i] * factor;
#pragma omp simd
            for (int64_t j = 0; j < value; ++j) out[j] += weight * load(v[j]);
        }
    }
}

// The same where K and V are SIZE, a multiple of LANES, for ROWS rows: q and out have room for them, and `at` knows their
// places. Scores stand in fours, one of each row; a row's are the same whatever stands beside them.
template <int SIZE, int ROWS, class T>
void attend_fast(const Shape& shape, const float* q, const T* keys, const T* values, int64_t stride, const At& at, int64_t count, float* scores, float* out) {
    constexpr int PARTS = SIZE / LANES;
    const int64_t width = shape.heads * SIZE;
    const auto shared = [&](int64_t i) {
        for (int r = 1; r < ROWS && at.lists[0]; ++r)
            if (at.lists[r][i] != at.lists[0][i]) return false;
        return true;
    };
    for (int64_t h = 0; h < shape.heads; ++h, q += SIZE, keys += SIZE, values += SIZE, out += SIZE) {
        Four most = Four{} - std::numeric_limits<float>::infinity();
        for (int64_t i = 0; i < count; ++i) {
            Vector products[GROUP] = {}, k[PARTS] = {};
            const bool common = shared(i);
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || !common)
                    for (int p = 0; p < PARTS; ++p) k[p] = vector(keys + at(r, i) * stride + p * LANES);
                for (int p = 0; p < PARTS; ++p) products[r] += vector(q + r * width + p * LANES) * k[p];
            }
            const Four sums = sums_of(products[0], products[1], products[2], products[3]);
            std::memcpy(scores + i * GROUP, &sums, sizeof sums);
            most = sums > most ? sums : most;
        }
        float largest[LANES];
        for (int j = 0; j < LANES; ++j) largest[j] = most[j % GROUP];
        const int64_t all = count * GROUP, whole = (all + LANES - 1) / LANES * LANES;
        float total[LANES] = {};
        for (int64_t i = all; i < whole; ++i) scores[i] = -std::numeric_limits<float>::infinity();
        for (int64_t i = 0; i < whole; i += LANES) {
#pragma omp simd
            for (int j = 0; j < LANES; ++j) {
                const float weight = exponential(scores[i + j] - largest[j]);
                scores[i + j] = weight;
                total[j] += weight;
            }
        }
        Vector mixed[ROWS][PARTS] = {};
        for (int64_t i = 0; i < count; ++i) {
            Vector v[PARTS] = {};
            const bool common = shared(i);
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || !common)
                    for (int p = 0; p < PARTS; ++p) v[p] = vector(values + at(r, i) * stride + p * LANES);
                for (int p = 0; p < PARTS; ++p) mixed[r][p] += scores[i * GROUP + r] * v[p];
            }
        }
        for (int r = 0; r < ROWS; ++r) {
            const float sum = (total[r] + total[r + 8]) + (total[r + 4] + total[r + 12]), factor = count ? 1.0f / sum : 0.0f;
            for (int p = 0; p < PARTS; ++p) {
                mixed[r][p] *= factor;
                std::memcpy(out + r * width + p * LANES, &mixed[r][p], sizeof(Vector));
            }
        }
    }
}

template <class T>
void attend_rows(const Shape& shape, int rows, const float* q, const T* keys, const T* values, int64_t stride, const At& at, int64_t count, float* scores, float* out) {
#define SIZED(size)                                                                                              \
    if (shape.key == size && shape.value == size) {                                                              \
        const auto fast = rows == 1 ? attend_fast<size, 1, T> : rows == 2 ? attend_fast<size, 2, T> : attend_fast<size, GROUP, T>; \
        return fast(shape, q, keys, values, stride, at, count, scores, out);                                     \
    }
    SIZED(32)
    SIZED(64)
#undef SIZED
    attend_plain(shape, rows, q, keys, values, stride, at, count, scores, out);
}

struct Room {
    std::vector<float> query, scores, out;
};

thread_local Room room;

// `attend_rows` for queries at q in `kind`, query_stride apart; results to `out` in `out_kind`.
template <class T>
void attend(const Shape& shape, int rows, const void* q, int kind, int64_t query_stride, const void* keys, const void* values, int64_t stride, const At& at, int64_t count, void* out, int out_kind,
            float step) {
    const int64_t width = shape.heads * shape.key, wide = shape.heads * shape.value;
    room.query.resize(GROUP * width);
    room.out.resize(GROUP * wide);
    room.scores.resize(GROUP * (count + LANES));
    for (int r = 0; r < rows; ++r) {
        if (kind == FP32)
            loaded(static_cast<const float*>(q) + r * query_stride, width, shape.scale, room.query.data() + r * width);
        else
            loaded(static_cast<const bf16*>(q) + r * query_stride, width, shape.scale, room.query.data() + r * width);
    }
    attend_rows(shape, rows, room.query.data(), static_cast<const T*>(keys), static_cast<const T*>(values), stride, at, count, room.scores.data(), room.out.data());
    store(room.out.data(), rows * wide, out, out_kind, step);
}

#ifdef __AVX512VNNI__
constexpr int AHEAD = 1024;  // bytes of the weights that are asked for beforehand

// The products of ROWS rows x (ROWS, groups) of four bytes each with LANES outputs.
template <int ROWS>
void dot_products(int64_t groups, const uint32_t* x, const int8_t* weight, __m512i* out) {
    __m512i sum[2][ROWS];  // two, so that no instruction waits for the one before it
    for (auto& half : sum)
        for (auto& one : half) one = _mm512_setzero_si512();
    for (int64_t i = 0; i < groups; i += 2) {
        const int last = i + 1 < groups;
        for (int line = 0; line < 2; ++line) __builtin_prefetch(weight + (i + line) * LANES * 4 + AHEAD);
        const __m512i w[2] = {_mm512_loadu_si512(weight + i * LANES * 4), last ? _mm512_loadu_si512(weight + (i + 1) * LANES * 4) : _mm512_setzero_si512()};
        for (int half = 0; half < 2; ++half)
            for (int r = 0; r < ROWS; ++r) sum[half][r] = _mm512_dpbusd_epi32(sum[half][r], _mm512_set1_epi32(int(x[r * groups + i + half * last])), w[half]);
    }
    for (int r = 0; r < ROWS; ++r) out[r] = _mm512_add_epi32(sum[0][r], sum[1][r]);
}

// LANES outputs of a row, `left` of them at most: the product is rounded before the bias is added.
__attribute__((noinline, optimize("fp-contract=off"))) void finish(__m512i sum, int64_t left, const float* scales, const float* bias, int relu, void* out, int in_bytes, float factor) {
    const __mmask16 here = left >= LANES ? 0xffff : __mmask16((1u << left) - 1);
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(here, scales));
    if (bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(here, bias));
    if (relu) y = _mm512_max_ps(y, _mm512_setzero_ps());
    if (in_bytes)
        _mm512_mask_cvtusepi32_storeu_epi8(out, here, _mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(y, _mm512_set1_ps(factor)), _mm512_setzero_ps())));
    else
        _mm512_mask_storeu_ps(out, here, y);
}
#endif

struct Sentence {
    int64_t cohort, first, size;     // its source: which memory, where it begins there, S
    int64_t steps = 0;               // tokens that each hypothesis has in the caches
    std::vector<int32_t> past;       // (W, capacity): the places of each hypothesis's tokens
    std::vector<int32_t> owned;      // places that are the sentence's, some perhaps of hypotheses given up
    int64_t capacity = 0;
};

struct Past {
    int64_t beam;
    std::vector<Sentence> sentences;
    std::vector<int32_t> free;
    std::vector<uint32_t> marks;  // of each place: when it was last seen in use
    uint32_t now = 0;
    std::vector<int32_t> spare;
    std::vector<int64_t> rows;  // of the step under way: b * W + w

    // How many rows from n on are of one sentence, GROUP at most.
    int together(int64_t n) const {
        int more = 1;
        while (more < GROUP && n + more < int64_t(rows.size()) && rows[n + more] / beam == rows[n] / beam) ++more;
        return more;
    }

    int32_t take() {
        if (free.empty()) {
            marks.push_back(0);
            return int32_t(marks.size() - 1);
        }
        const int32_t place = free.back();
        free.pop_back();
        return place;
    }

    // What no open hypothesis (`count` of them at `open`, all of sentence b) descends from is free again.
    void release(Sentence& s, const int64_t* open, int64_t count) {
        ++now;
        for (int64_t i = 0; i < count; ++i) {
            const int32_t* const own = s.past.data() + (open[i] % beam) * s.capacity;
            for (int64_t t = 0; t < s.steps; ++t) marks[own[t]] = now;
        }
        size_t kept = 0;
        for (const int32_t place : s.owned) {
            if (marks[place] == now)
                s.owned[kept++] = place;
            else
                free.push_back(place);
        }
        s.owned.resize(kept);
    }
};

}  // namespace

extern "C" {

// x (N, D) <- residual; post: residual <- LayerNorm(residual + given), out <- residual; otherwise residual += given,
// out <- LayerNorm(residual). given may be null: nothing is added; weight null: no LayerNorm.
void nmt_norm(int64_t rows, int64_t size, float* residual, const void* given, int kind, const float* weight, const float* bias, float epsilon, int post, void* out, int out_kind, float step) {
    std::vector<float>& y = room.out;
    y.resize(size);
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = residual + n * size;
        if (given) {
            if (kind == FP32)
                add(x, static_cast<const float*>(given) + n * size, size);
            else
                add(x, static_cast<const bf16*>(given) + n * size, size);
        }
        const float* from = x;
        if (weight) {
            layer_norm(x, size, weight, bias, epsilon, post ? x : y.data());
            if (!post) from = y.data();
        }
        store(from, size, static_cast<char*>(out) + n * size * size_of(out_kind), out_kind, step);
    }
}

// out (N, D) <- table[ids] * factor + positions[at]
void nmt_embed(int64_t rows, int64_t size, const float* table, const int64_t* ids, float factor, const float* positions, const int64_t* at, float* out) {
    for (int64_t n = 0; n < rows; ++n) {
        const float *const x = table + ids[n] * size, *const p = positions + at[n] * size;
        float* const y = out + n * size;
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor + p[i];
    }
}

// Row n attends to rows first[n] .. first[n] + count[n] - 1 of keys and values; none: zeros.
void nmt_attend_range(int64_t rows, int64_t heads, int64_t key, int64_t value, float scale, const void* queries, const void* keys, const void* values, int kind, int64_t query_stride, int64_t stride,
                      const int64_t* first, const int64_t* count, void* out, int out_kind, float step) {
    const Shape shape{heads, key, value, scale};
    for (int64_t n = 0, together = 1; n < rows; n += together) {
        for (together = 1; together < GROUP && n + together < rows && first[n + together] == first[n] && count[n + together] == count[n]; ++together) {}
        const void* const q = static_cast<const char*>(queries) + n * query_stride * size_of(kind);
        void* const y = static_cast<char*>(out) + n * heads * value * size_of(out_kind);
        const At at{first[n], {}};
        if (kind == FP32)
            attend<float>(shape, int(together), q, kind, query_stride, keys, values, stride, at, count[n], y, out_kind, step);
        else
            attend<bf16>(shape, int(together), q, kind, query_stride, keys, values, stride, at, count[n], y, out_kind, step);
    }
}

Past* nmt_past_new(int64_t beam) {
    Past* const past = new Past;
    past->beam = beam;
    return past;
}

void nmt_past_delete(Past* past) { delete past; }

// One more sentence, behind the others: its source is `size` rows of memory number `cohort` from `first` on.
void nmt_past_enter(Past* past, int64_t cohort, int64_t first, int64_t size) { past->sentences.push_back({cohort, first, size, 0, {}, {}, 0}); }

// Hypothesis w of sentence b goes on from what was its hypothesis parents[b * W + w].
void nmt_past_reorder(Past* past, const int64_t* parents) {
    const int64_t beam = past->beam;
    for (Sentence& s : past->sentences) {
        past->spare.resize(s.past.size());
        for (int64_t w = 0; w < beam; ++w) std::copy_n(s.past.data() + parents[w] * s.capacity, s.steps, past->spare.data() + w * s.capacity);
        std::swap(past->spare, s.past);
        parents += beam;
    }
}

// Those sentences stay, ascending. Returns for each cohort below `cohorts` in `left` how many sentences it has.
void nmt_past_keep(Past* past, int64_t count, const int64_t* stay, int64_t cohorts, int64_t* left) {
    std::fill(left, left + cohorts, 0);
    int64_t next = 0;
    for (int64_t b = 0; b < int64_t(past->sentences.size()); ++b) {
        Sentence& s = past->sentences[b];
        if (next < count && stay[next] == b) {
            ++left[s.cohort];
            if (next != b) past->sentences[next] = std::move(s);
            ++next;
        } else {
            past->release(s, nullptr, 0);
        }
    }
    past->sentences.erase(past->sentences.begin() + next, past->sentences.end());
}

// A step of the open hypotheses `rows` (N,), ascending b * W + w: tells each one's position, and gives each a place for
// its new keys and values. Returns how many places there are.
int64_t nmt_past_step(Past* past, int64_t count, const int64_t* rows, int64_t* positions) {
    const int64_t beam = past->beam;
    past->rows.assign(rows, rows + count);
    int64_t n = 0;
    for (int64_t b = 0; b < int64_t(past->sentences.size()); ++b) {
        Sentence& s = past->sentences[b];
        const int64_t begin = n;
        while (n < count && rows[n] / beam == b) ++n;
        past->release(s, rows + begin, n - begin);
        if (s.steps == s.capacity) {
            const int64_t capacity = 2 * s.capacity + 16;
            std::vector<int32_t> wider(beam * capacity);
            for (int64_t w = 0; w < beam; ++w) std::copy_n(s.past.data() + w * s.capacity, s.steps, wider.data() + w * capacity);
            s.past.swap(wider);
            s.capacity = capacity;
        }
        for (int64_t i = begin; i < n; ++i) {
            const int32_t place = past->take();
            s.owned.push_back(place);
            s.past[(rows[i] % beam) * s.capacity + s.steps] = place;
            positions[i] = s.steps;
        }
        ++s.steps;
    }
    return int64_t(past->marks.size());
}

// Self-attention of the step: given (N, 2 * H * K + H * V) holds queries, keys and values; keys and values go to their
// places in the cache, rows (H * K + H * V) of bf16 or fp32.
void nmt_attend_past(const Past* past, int64_t heads, int64_t key, int64_t value, float scale, const void* given, int kind, void* cache, int cache_kind, void* out, int out_kind, float step) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    std::vector<float>& y = room.out;
    for (int64_t n = 0, together = 1; n < int64_t(past->rows.size()); n += together) {
        together = past->together(n);
        const Sentence& s = past->sentences[past->rows[n] / past->beam];
        At at{};
        for (const int32_t*& list : at.lists) list = s.past.data() + (past->rows[n] % past->beam) * s.capacity;
        for (int64_t r = 0; r < together; ++r) {
            at.lists[r] = s.past.data() + (past->rows[n + r] % past->beam) * s.capacity;
            const char* const from = static_cast<const char*>(given) + (n + r) * (stride + keys) * size_of(kind);
            y.resize(stride);
            if (kind == FP32)
                loaded(reinterpret_cast<const float*>(from) + keys, stride, 1.0f, y.data());
            else
                loaded(reinterpret_cast<const bf16*>(from) + keys, stride, 1.0f, y.data());
            store(y.data(), stride, static_cast<char*>(cache) + at(int(r), s.steps - 1) * stride * size_of(cache_kind), cache_kind, 1.0f);
        }
        const char* const q = static_cast<const char*>(given) + n * (stride + keys) * size_of(kind);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_kind);
        if (cache_kind == FP32)
            attend<float>(shape, int(together), q, kind, stride + keys, cache, static_cast<float*>(cache) + keys, stride, at, s.steps, to, out_kind, step);
        else
            attend<bf16>(shape, int(together), q, kind, stride + keys, cache, static_cast<bf16*>(cache) + keys, stride, at, s.steps, to, out_kind, step);
    }
}

// Attention of the step to the source: queries (N, H * K); `memories` points to each cohort's rows (H * K + H * V).
void nmt_attend_memory(const Past* past, int64_t heads, int64_t key, int64_t value, float scale, const void* queries, int kind, const void* const* memories, int memory_kind, void* out, int out_kind, float step) {
    const Shape shape{heads, key, value, scale};
    const int64_t keys = heads * key, values = heads * value, stride = keys + values;
    for (int64_t n = 0, together = 1; n < int64_t(past->rows.size()); n += together) {
        together = past->together(n);
        const Sentence& s = past->sentences[past->rows[n] / past->beam];
        const char* const q = static_cast<const char*>(queries) + n * keys * size_of(kind);
        void* const to = static_cast<char*>(out) + n * values * size_of(out_kind);
        const char* const memory = static_cast<const char*>(memories[s.cohort]) + s.first * stride * size_of(memory_kind);
        const At at{};
        if (memory_kind == FP32)
            attend<float>(shape, int(together), q, kind, keys, memory, memory + keys * sizeof(float), stride, at, s.size, to, out_kind, step);
        else
            attend<bf16>(shape, int(together), q, kind, keys, memory, memory + keys * sizeof(bf16), stride, at, s.size, to, out_kind, step);
    }
}

// The `count` best of so_far[b, w] + log-softmax(logits)[v] over (W, V) for each of B sentences, best first, equals in the
// order of w * V + v: values and those numbers, (B, count); where there are fewer: -inf and 0. logits (N, V) are those of
// the open hypotheses `rows` (N,), ascending b * W + w. What is not a number comes first. The softmax is over all of V;
// `never` (nevers,) are no continuations, and where `only` is given and only[n] >= 0 nothing else is.
void nmt_best(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t size, float* logits, const float* so_far, int64_t nevers, const int64_t* never, const int64_t* only,
              int64_t count, float* values, int64_t* numbers) {
    constexpr int64_t CHUNK = 64;
    const float nothing = -std::numeric_limits<float>::infinity();
    const int64_t chunks = (size + CHUNK - 1) / CHUNK;
    std::vector<float>& most = room.scores;
    most.resize(chunks);
    std::fill(values, values + batch * count, nothing);
    std::fill(numbers, numbers + batch * count, 0);
    for (int64_t n = 0; n < rows; ++n) {
        float* const x = logits + n * size;
        float* const value = values + open[n] / beam * count;
        int64_t* const number = numbers + open[n] / beam * count;
        const int64_t base = open[n] % beam * size;
        const auto insert = [&](float one, int64_t which) {
            int64_t i = count - 1;
            for (; i > 0 && one > value[i - 1]; --i) {
                value[i] = value[i - 1];
                number[i] = number[i - 1];
            }
            value[i] = one;
            number[i] = which;
        };
        const auto largest_of = [&](int64_t chunk) {
            const int64_t end = std::min(size, (chunk + 1) * CHUNK);
            float one = nothing;
#pragma omp simd reduction(max : one)
            for (int64_t v = chunk * CHUNK; v < end; ++v) one = x[v] > one ? x[v] : one;
            return one;
        };
        float largest = nothing, sum = 0.0f;
        for (int64_t c = 0; c < chunks; ++c) largest = std::max(largest, most[c] = largest_of(c));
#pragma omp simd reduction(+ : sum)
        for (int64_t v = 0; v < size; ++v) sum += exponential(x[v] - largest);
        const float total = largest + std::log(sum), before = so_far[open[n]];
        if (total != total) {  // first and for good: nothing is larger
            value[0] = total;
            number[0] = base;
            continue;
        }
        if (only && only[n] >= 0) {
            const float one = before + (x[only[n]] - total);
            if (one > value[count - 1]) insert(one, base + only[n]);
            continue;
        }
        for (int64_t i = 0; i < nevers; ++i) {
            x[never[i]] = nothing;
            most[never[i] / CHUNK] = largest_of(never[i] / CHUNK);
        }
        for (int64_t c = 0; c < chunks; ++c) {
            if (!(before + (most[c] - total) > value[count - 1])) continue;
            const int64_t end = std::min(size, (c + 1) * CHUNK);
            for (int64_t v = c * CHUNK; v < end; ++v) {
                const float one = before + (x[v] - total);
                if (one > value[count - 1]) insert(one, base + v);
            }
        }
    }
}

// Whether there is `nmt_product` for this processor.
int nmt_has_product() {
#ifdef __AVX512VNNI__
    return 1;
#else
    return 0;
#endif
}

// W (d_out, d_in) in int8 as `nmt_product` reads it, (blocks of 16 outputs, d_in / 4, 16, 4), and 128 times each row's sum,
// (blocks * 16,); d_in is a multiple of 4.
void nmt_pack(int64_t d_out, int64_t d_in, const int8_t* weight, int8_t* packed, int32_t* sums) {
    const int64_t blocks = (d_out + LANES - 1) / LANES;
    for (int64_t o = 0; o < blocks * LANES; ++o) {
        int8_t* const to = packed + o / LANES * LANES * d_in + o % LANES * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < d_in; ++i) {
            const int8_t w = o < d_out ? weight[o * d_in + i] : 0;
            to[i / 4 * LANES * 4 + i % 4] = w;
            sum += w;
        }
        sums[o] = 128 * sum;
    }
}

#ifdef __AVX512VNNI__
// rows (N, d_in) of int8, or of uint8, times W: (W x) * scales + bias, max(0, .) where asked; (N, d_out) in fp32, or in uint8
// after another factor. Bit for bit what oneDNN gives.
void nmt_product(int64_t rows, int64_t d_in, int64_t d_out, const uint8_t* x, int is_signed, const int8_t* packed, const int32_t* sums, const float* scales, const float* bias, int relu, void* out,
                 int in_bytes, float factor) {
    std::vector<uint32_t> given(rows * (d_in / 4));
    std::memcpy(given.data(), x, rows * d_in);
    if (is_signed)
        for (uint32_t& four : given) four ^= 0x80808080u;  // + 128: the instruction takes unsigned bytes
    for (int64_t o = 0; o < d_out; o += LANES) {
        for (int64_t n = 0; n < rows; n += GROUP) {
            __m512i sum[GROUP];
            const int64_t here = std::min<int64_t>(GROUP, rows - n);
            const auto summed = here == 1 ? dot_products<1> : here == 2 ? dot_products<2> : here == 3 ? dot_products<3> : dot_products<GROUP>;
            summed(d_in / 4, given.data() + n * (d_in / 4), packed + o * d_in, sum);
            for (int64_t r = 0; r < here; ++r) {
                if (is_signed) sum[r] = _mm512_sub_epi32(sum[r], _mm512_loadu_si512(sums + o));
                finish(sum[r], d_out - o, scales + o, bias ? bias + o : nullptr, relu, static_cast<char*>(out) + ((n + r) * d_out + o) * (in_bytes ? 1 : 4), in_bytes, factor);
            }
        }
    }
}
#endif

}  // extern "C"
