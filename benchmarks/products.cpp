// For products.py: how many multiplications and additions a second the engine's products do, and what the registers
// can.

#include <chrono>
#include <cstdio>

#include "layers.hpp"

namespace {

using Clock = std::chrono::steady_clock;

// The shortest of several runs of `work`, in seconds.
template <class Work>
double seconds_of(const Work& work) {
    double least = 1e9;
    for (int i = 0; i < 15; ++i) {
        const auto begin = Clock::now();
        work();
        least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return least;
}

// Sums that stay in registers, and numbers that do: billions of operations a second.
template <class Numbers>
double highest(const Weight<Numbers>* w, const typename Numbers::X* x) {
    constexpr int SUMS = std::max(Tiles::most_rows(1), 4 * Tiles::most_rows(4)), ROUNDS = 200000;
    const auto weights = Numbers::load(w);
    const auto numbers = Numbers::spread(x);
    std::vector<int32_t> starts(SUMS + LANES), used(LANES);
    std::iota(starts.begin(), starts.end(), 0);
    const double seconds = seconds_of([&] {
        typename Numbers::Sum sums[SUMS];
#pragma GCC unroll 16
        for (int s = 0; s < SUMS; ++s) {  // different ones
            typename Numbers::Sum first;
            std::memcpy(&first, starts.data() + s, sizeof first);
            sums[s] = first;
        }
        for (int i = 0; i < ROUNDS; ++i) {
#pragma GCC unroll 16
            for (int s = 0; s < SUMS; ++s) Numbers::add(sums[s], numbers, weights);
        }
#pragma GCC unroll 16
        for (int s = 0; s < SUMS; ++s) {
            const typename Numbers::Sum last = sums[s];
            int32_t lanes[LANES];
            std::memcpy(lanes, &last, sizeof lanes);
            for (int i = 0; i < LANES; ++i) used[i] += lanes[i];
        }
    });
    if (used[0] == 1) std::printf(" ");  // the sums are needed
    return 2.0 * SUMS * LANES * Numbers::TOGETHER * ROUNDS / seconds / 1e9;
}

// Products of N rows with a matrix (d_out, d_in): billions of operations a second.
double product(bool in_int8, int64_t rows, int64_t d_in, int64_t d_out) {
    Aligned<char> weight(d_out * d_in * (in_int8 ? 1 : 4));
    std::vector<float> scales(d_out, 1.0f), x(rows * d_in, 1.0f), out(rows * d_out);
    std::vector<int32_t> sums(d_out);
    Map map;
    map.d_in = d_in, map.d_out = d_out, map.weight = weight.data();
    if (in_int8) map.scales = scales.data(), map.sums = sums.data();
    Buffer buffer;
    const RowsOut to = buffer.out(rows, d_in, input_of(map));
    for (int64_t n = 0; n < rows; ++n) to.write(n, x.data() + n * d_in, d_in);
    const int64_t times = std::max<int64_t>(1, (1 << 27) / (rows * d_in * d_out));
    const double seconds = seconds_of([&] {
        for (int64_t i = 0; i < times; ++i) multiply(map, rows, read(to), out.data());
    });
    return 2.0 * double(times * rows * d_in * d_out) / seconds / 1e9;
}

}  // namespace

int main(int count, char**) {  // numbers that the compiler does not know
    const std::vector<float> floats(4 * LANES, float(count) * 1e-3f);
    const std::vector<int8_t> weights(4 * LANES, int8_t(count));
    const std::vector<Bytes::X> bytes(4, Bytes::X(count));
    for (const bool in_int8 : {false, true}) {
        std::printf("%.1f", in_int8 ? highest<Bytes>(weights.data(), bytes.data())
                                    : highest<Floats>(floats.data(), floats.data()));
        for (const int64_t rows : {1, 4, 16, 64}) std::printf(" %.1f", product(in_int8, rows, 512, 2048));
        std::printf("\n");
    }
}
