// AMX: tile registers, each of 16 rows of 64 bytes, beside those of AVX-512.
//
//   0 to 3   sums of 32 rows of x and 32 rows of W: (0, 0), (0, 1), (1, 0), (1, 1)
//   4, 5     64 numbers of 16 rows of x
//   6, 7     64 numbers of 16 rows of W: of each, four side by side, as a panel has them
//
// Linux gives a process these registers when it asks (arch_prctl), and a thread has them from a `Tiling` on.

#pragma once

#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

namespace amx {
namespace {

constexpr int64_t HEIGHT = 16;  // rows of a register
constexpr int64_t DEPTH = 64;   // numbers of a row that are multiplied at once

// Whether the processor and Linux let this process use them. The first call asks.
bool allowed() {
    constexpr uint64_t TILES = 3 << 17;  // their configuration and their data, among the states that Linux switches
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    uint32_t low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILES) == TILES && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

// The shapes of the registers, while it lives: `height` rows of x, 1 to HEIGHT.
class Tiling {
public:
    explicit Tiling(int64_t height) {
        struct {
            uint8_t palette = 1, start = 0, unused[14] = {};
            uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {};
        } shapes;
        for (int i = 0; i < 8; ++i) shapes.rows[i] = uint8_t(i < 6 ? height : HEIGHT);
        asm volatile("ldtilecfg %0" ::"m"(shapes));
    }
    ~Tiling() { asm volatile("tilerelease"); }
    Tiling(const Tiling&) = delete;
    Tiling& operator=(const Tiling&) = delete;
};

// Rows of a register, `stride` bytes apart.
template <int TILE>
void load(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(TILE), "r"(rows), "r"(stride) : "memory");
}

template <int TILE>
void store(int32_t (*rows)[16]) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(TILE), "r"(rows), "r"(int64_t(64)) : "memory");
}

// Add the products of unsigned X with signed W.
template <int SUMS, int X, int W>
void add() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(X), "i"(W));
}

// Sums of products: of the rows at x, if TALL also those at `lower`, with a panel at w, or two if WIDE. Those of a
// column start with the numbers at `starts`. The memory from `ahead` bytes on behind w is fetched.
template <bool TALL, bool WIDE>
void multiply(const int32_t* starts, const uint8_t* x, const uint8_t* lower, int64_t d_in, const int8_t* w,
              int64_t ahead, int32_t (*sums)[16][16]) {
    load<0>(starts, 0);
    if (WIDE) load<1>(starts + 16, 0);
    if (TALL) load<2>(starts, 0);
    if (TALL && WIDE) load<3>(starts + 16, 0);
    const int8_t* next = w + d_in * 16;
    for (int64_t i = 0; i < d_in; i += DEPTH, w += DEPTH * 16, next += DEPTH * 16) {
        for (int64_t line = 0; !TALL && line < DEPTH * 16; line += 64) {
            __builtin_prefetch(w + ahead + line);
            if (WIDE) __builtin_prefetch(next + ahead + line);
        }
        load<4>(x + i, d_in);
        load<6>(w, 64);
        add<0, 4, 6>();
        if (WIDE) {
            load<7>(next, 64);
            add<1, 4, 7>();
        }
        if (TALL) {
            load<5>(lower + i, d_in);
            add<2, 5, 6>();
            if (WIDE) add<3, 5, 7>();
        }
    }
    store<0>(sums[0]);
    if (WIDE) store<1>(sums[1]);
    if (TALL) store<2>(sums[2]);
    if (TALL && WIDE) store<3>(sums[3]);
}

}  // namespace
}  // namespace amx
