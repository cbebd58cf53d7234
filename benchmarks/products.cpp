// Matrix products of a training update, by registers of our own: what products.py times beside torch's.
//
//   word      32 bits of an operand: two bf16 that follow each other along the inner dimension, or one fp32
//   step      one word along the inner dimension
//   lane      a row of a, or a column of b
//   panel     COLUMNS columns of b, (steps, COLUMNS) words
//   stripe    up to ROWS rows of a; with a panel, its sums fill the registers
//   unit      up to STRIPES stripes and PANELS panels, the work of one thread at once
//
// First the threads pack b. Then, of each unit and STEPS steps, a thread packs the rows of a, and multiplies one stripe
// after another with all panels: a stripe stays in the level-1 cache, the unit in that of level 2. The compiler's flags
// choose the registers: AMX-BF16, AVX512-BF16, or in fp32 AVX-512 or AVX2.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace {

#ifdef __AVX512F__
using Vector = __m512;
#else
using Vector = __m256;
#endif
#ifdef __AVX512BF16__
using Number = uint16_t;
#else
using Number = float;
#endif
constexpr int64_t LANES = sizeof(Vector) / 4, PAIR = 4 / sizeof(Number), COLUMNS = 2 * LANES, STEPS = 256;
#ifdef __AMX_BF16__
constexpr int64_t ROWS = 32;
#else
constexpr int64_t ROWS = LANES == 16 ? 14 : 6;
#endif
constexpr int64_t STRIPES = 112 / ROWS, PANELS = 512 / COLUMNS;
constexpr int64_t STRIDE = STEPS + 16;  // words from row to row of a unit: 1,024 bytes would be the same lines
constexpr int64_t WIDTH = 112 + 32;     // words from step to step of a unit whose rows lie side by side
constexpr int64_t AHEAD = 32;           // rows that are fetched before they are packed
using Words = int32_t __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
struct alignas(64) Line {
    uint32_t words[16];
};

// An operand: `size` numbers from row to row in memory. `along`: a lane's numbers lie side by side, else a step's.
struct Operand {
    const Number* numbers;
    int64_t size;
    bool along;
    const Number* at(int64_t lane, int64_t step) const {
        return numbers + (along ? lane * size + step * PAIR : step * PAIR * size + lane);
    }
};

int64_t parts_of(int64_t count, int64_t part) { return (count + part - 1) / part; }
int64_t padded(int64_t steps) { return parts_of(steps, 16) * 16; }

// --- packing ---

// The words of one lane at `count` steps.
Words along(const Number* numbers, int64_t count) {
#ifdef __AVX512F__
    return Words(_mm512_maskz_loadu_epi32(__mmask16((1 << count) - 1), numbers));
#else
    const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    return Words(_mm256_maskload_epi32(reinterpret_cast<const int*>(numbers), __m256i(lanes < int32_t(count))));
#endif
}

// The words of `count` lanes at one step, whose numbers lie side by side in each of PAIR rows.
Words across(const Number* numbers, [[maybe_unused]] int64_t size, int64_t count) {
#ifdef __AVX512BF16__
    using Halves = int16_t __attribute__((vector_size(64)));
    constexpr Halves ZIP = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                            8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const auto row = [=](const Number* first) {
        return Halves(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(__mmask16((1 << count) - 1), first)));
    };
    __builtin_prefetch(numbers + (AHEAD + 1) * size);
    return Words(__builtin_shuffle(row(numbers), row(numbers + size), ZIP));
#else
    return along(numbers, count);
#endif
}

// Exchange the rows and columns of LANES vectors.
void transpose(Words* rows) {
    Words lane;
    for (int32_t i = 0; i < LANES; ++i) lane[i] = i;
#pragma GCC unroll 4
    for (int32_t bit = 1; bit < LANES; bit *= 2) {
        const Words second = ((lane & bit) != 0) & LANES, low = (lane & ~bit) | second, high = lane | bit | second;
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; ++i) {
            if (i & bit) continue;
            const Words row = rows[i];
            rows[i] = __builtin_shuffle(row, rows[i | bit], low);
            rows[i | bit] = __builtin_shuffle(row, rows[i | bit], high);
        }
    }
}

// Pack the words of lanes and steps, and zeros behind them: (lanes, stride) if TO_ROWS, else (steps, stride).
template <bool ALONG, bool TO_ROWS>
void pack(const Operand x, int64_t lane, int64_t lanes, int64_t step, int64_t steps, int64_t stride, uint32_t* out) {
    const int64_t high = parts_of(lanes, LANES), wide = padded(steps) / LANES;
    for (int64_t number = 0; number < high * wide; ++number) {  // in the order in which they lie in memory
        const int64_t first = LANES * (ALONG ? number / wide : number % high), width = std::min(LANES, lanes - first);
        const int64_t i = LANES * (ALONG ? number % wide : number / high);
        const int64_t length = std::clamp<int64_t>(steps - i, 0, LANES);
        Words block[LANES];
#pragma GCC unroll 16
        for (int64_t j = 0; j < LANES; ++j) {
            const Number* const numbers = x.at(lane + first + (ALONG ? j : 0), step + i + (ALONG ? 0 : j));
            __builtin_prefetch(numbers + (ALONG ? LANES : AHEAD) * x.size);
            block[j] = ALONG ? along(numbers, j < width ? length : 0) : across(numbers, x.size, j < length ? width : 0);
        }
        if (ALONG != TO_ROWS) transpose(block);
#pragma GCC unroll 16
        for (int64_t j = 0; j < LANES; ++j)
            *reinterpret_cast<Words*>(out + (TO_ROWS ? (first + j) * stride + i : (i + j) * stride + first)) = block[j];
    }
}

// --- registers ---

// A stripe and a panel, packed, of so many steps. The stripe is (rows, STRIDE) words if `along`, else (steps, WIDTH).
// The sums go on from those at `sums` unless `first`, and are rounded to `out` if `last`.
struct Tile {
    const uint32_t *stripe, *panel;
    int64_t rows, columns, steps;
    bool along, first, last;
    Vector (*sums)[2];
    Number* out;
    int64_t size;
};

void finish(const Tile& tile, int64_t row, const Vector& left, const Vector& right) {
    Number* const out = tile.out + row * tile.size;
#ifdef __AVX512BF16__
    const __m512i both = __m512i(_mm512_cvtne2ps_pbh(right, left));
    tile.columns < COLUMNS ? _mm512_mask_storeu_epi16(out, 0xffff, both) : _mm512_storeu_si512(out, both);
#else
    *reinterpret_cast<Words*>(out) = Words(left);
    if (tile.columns >= COLUMNS) *reinterpret_cast<Words*>(out + LANES) = Words(right);
#endif
}

#ifdef __AMX_BF16__
// The tile registers, while it lives. 0 to 3: sums; 4, 5: rows of a; 6, 7: columns of b.
struct Registers {
    Registers() {
        static const long refused = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */);
        uint8_t shapes[64] = {1};
        for (int i = 0; i < 8; ++i) shapes[16 + 2 * i] = 64, shapes[48 + i] = 16;
        if (!refused) asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
    ~Registers() { _tile_release(); }
};
constexpr bool ROWS_ONLY = true;

void multiply_registers() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

void multiply(const Tile& tile) {
    Vector(*const sums)[2] = tile.sums;
    asm volatile("" ::: "memory");  // what is loaded has been written
    if (tile.first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, &sums[0][0], 128);
        _tile_loadd(1, &sums[0][1], 128);
        _tile_loadd(2, &sums[16][0], 128);
        _tile_loadd(3, &sums[16][1], 128);
    }
    for (int64_t step = 0; step < tile.steps; step += 16) {
        _tile_loadd(4, tile.stripe + step, 4 * STRIDE);
        _tile_loadd(5, tile.stripe + step + 16 * STRIDE, 4 * STRIDE);
        _tile_loadd(6, tile.panel + step * COLUMNS, 4 * COLUMNS);
        _tile_loadd(7, tile.panel + step * COLUMNS + 16, 4 * COLUMNS);
        multiply_registers();
    }
    _tile_stored(0, &sums[0][0], 128);
    _tile_stored(1, &sums[0][1], 128);
    _tile_stored(2, &sums[16][0], 128);
    _tile_stored(3, &sums[16][1], 128);
    for (int64_t row = 0; tile.last && row < tile.rows; ++row) finish(tile, row, sums[row][0], sums[row][1]);
}

void spin(int64_t operations) {
    const Registers registers;
    for (; operations > 0; operations -= 4 * 16 * 16 * 32 * 2) multiply_registers();
}
#else
struct Registers {};
constexpr bool ROWS_ONLY = false;

inline void add(Vector& sums, const Words& x, const Words& y) {
#if defined(__AVX512BF16__)
    sums = _mm512_dpbf16_ps(sums, (__m512bh)x, (__m512bh)y);
#elif defined(__AVX512F__)
    sums = _mm512_fmadd_ps(Vector(x), Vector(y), sums);
#else
    sums = _mm256_fmadd_ps(Vector(x), Vector(y), sums);
#endif
}

template <int64_t HEIGHT, bool ALONG>
void multiply_rows(const Tile& tile) {
    Vector sums[HEIGHT][2];
#pragma GCC unroll 16
    for (int64_t row = 0; row < HEIGHT; ++row)
        for (int64_t i = 0; i < 2; ++i) sums[row][i] = tile.first ? Vector{} : tile.sums[row][i];
    const uint32_t *stripe = tile.stripe, *panel = tile.panel;
    for (int64_t step = 0; step < tile.steps; ++step, stripe += ALONG ? 1 : WIDTH, panel += COLUMNS) {
        const Words* const words = reinterpret_cast<const Words*>(panel);
#pragma GCC unroll 16
        for (int64_t row = 0; row < HEIGHT; ++row) {
            const Words x = Words{} + int32_t(stripe[row * (ALONG ? STRIDE : 1)]);
            add(sums[row][0], x, words[0]);
            add(sums[row][1], x, words[1]);
        }
    }
#pragma GCC unroll 16
    for (int64_t row = 0; row < HEIGHT; ++row)
        if (tile.last)
            finish(tile, row, sums[row][0], sums[row][1]);
        else
            for (int64_t i = 0; i < 2; ++i) tile.sums[row][i] = sums[row][i];
}

template <int64_t HEIGHT = ROWS>
void multiply(const Tile& tile) {
    if constexpr (HEIGHT > 0) {
        if (tile.rows != HEIGHT) return multiply<HEIGHT - 1>(tile);
        tile.along ? multiply_rows<HEIGHT, true>(tile) : multiply_rows<HEIGHT, false>(tile);
    }
}

void spin(int64_t operations) {
    Vector sums[LANES == 16 ? 24 : 12] = {};  // more than are under way at once
    for (; operations > 0; operations -= sizeof sums / 4 * PAIR * 2)
#pragma GCC unroll 32
        for (Vector& sum : sums) {
            add(sum, Words{}, Words{});
            asm volatile("" : "+x"(sum));  // else sums that are equal are computed once
        }
}
#endif

// --- threads ---

using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);  // libgomp's GOMP_parallel

template <class Work>
void share(Team team, int64_t threads, int64_t tasks, const Work& work) {
    std::atomic<int64_t> next{0};
    auto run = [&] {
        for (int64_t task; (task = next++) < tasks;) work(task);
    };
    team([](void* data) { (*static_cast<decltype(run)*>(data))(); }, &run, unsigned(threads), 0);
}

}  // namespace

// Write a (rows, depth) times b (depth, columns) to out (rows, columns). An operand has strides from row to row and
// from column to column, one of them 1. Columns are a multiple of LANES, depth is one of PAIR.
extern "C" void product(Team team, int64_t threads, const Number* a, int64_t a_row, int64_t a_column, const Number* b,
                        int64_t b_row, int64_t b_column, Number* out, int64_t rows, int64_t columns, int64_t depth) {
    const Operand left{a, std::max(a_row, a_column), a_column == 1}, right{b, std::max(b_row, b_column), b_row == 1};
    const int64_t steps = depth / PAIR, panels = parts_of(columns, COLUMNS);
    const int64_t chunks = parts_of(steps, STEPS), chunk = padded(parts_of(steps, chunks));
    static std::vector<Line> packed;
    packed.resize(std::max<size_t>(packed.size(), size_t(panels * padded(steps) * COLUMNS / 16)));
    const auto panel_at = [&](int64_t panel, int64_t step) {
        return packed[(panel * padded(steps) + step) * COLUMNS / 16].words;
    };
    share(team, threads, panels * chunks, [&](int64_t task) {
        const int64_t panel = task / chunks, column = panel * COLUMNS, step = task % chunks * chunk;
        const auto packing = right.along ? pack<true, false> : pack<false, false>;
        packing(right, column, std::min(COLUMNS, columns - column), step, std::min(chunk, steps - step), COLUMNS,
                panel_at(panel, step));
    });
    const int64_t heights = parts_of(parts_of(rows, STRIPES * ROWS), threads) * threads;  // the threads have as many
    const int64_t widths = parts_of(panels, PANELS);
    share(team, threads, heights * widths, [&](int64_t unit) {
        thread_local std::vector<Line> words(STRIDE * WIDTH / 16);
        thread_local std::vector<Line> unit_sums(PANELS * STRIPES * ROWS * COLUMNS / 16);
        [[maybe_unused]] const Registers registers;
        const bool along = left.along || ROWS_ONLY;
        const auto packing = left.along ? pack<true, true> : pack<false, ROWS_ONLY>;
        const int64_t top = rows * (unit % heights) / heights, bottom = rows * (unit % heights + 1) / heights;
        const int64_t begin = panels * (unit / heights) / widths, end = panels * (unit / heights + 1) / widths;
        for (int64_t step = 0; step < steps; step += chunk) {
            const int64_t length = std::min(chunk, steps - step);
            Vector(*sums)[2] = reinterpret_cast<Vector(*)[2]>(unit_sums.data());
            packing(left, top, bottom - top, step, length, along ? STRIDE : WIDTH, words[0].words);
            for (int64_t row = top, stripes = parts_of(bottom - top, ROWS), height; stripes; --stripes, row += height) {
                height = (bottom - row) / stripes;
                const uint32_t* const stripe = words[0].words + (row - top) * (along ? STRIDE : 1);
                for (int64_t panel = begin; panel < end; ++panel, sums += ROWS)
                    multiply({stripe, panel_at(panel, step), height, columns - panel * COLUMNS, length, along,
                              step == 0, step + chunk >= steps, sums, out + row * columns + panel * COLUMNS, columns});
            }
        }
    });
}

// So many operations in the registers of the threads.
extern "C" void peak(Team team, int64_t threads, int64_t operations) {
    share(team, threads, threads, [&](int64_t) { spin(operations / threads); });
}
