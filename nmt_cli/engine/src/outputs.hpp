// Linear maps, the rows that they read, and what happens to the sums of their products: scales, bias, maximum.

#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "vectors.hpp"

namespace {

// What the weights of a panel for one input have beside those that are packed.
struct Rest {
    int64_t input;
    int32_t amounts[LANES];
};

// A linear map: max(0, W x + bias), the maximum where `relu`. It is of int8 if it has scales. Addresses are of packed
// numbers.
struct Map {
    int64_t d_in = 0, d_out = 0;
    const void* weight = nullptr;
    const int32_t* sums = nullptr;  // of int8: of each row of W, what its products with shifted rows lack
    const float* scales = nullptr;  // of int8: what one step of each row of W is worth
    const float* bias = nullptr;    // may be null
    bool relu = false;
    std::shared_ptr<std::vector<std::vector<Rest>>> rests;  // of each panel, if `ShortSums` multiplies
};

// Rows (N, d_in) that a map reads: floats, or bytes of a grid with one scale per row.
struct RowsIn {
    const void* data;
    const float* scales;
    int kind;
};

// Where the results go: (N, width) of the outputs from `first` on.
struct Result {
    float* out;
    int64_t width, first;
};

// What happens to a sum, known when this is compiled.
enum Finish { PLAIN, RELU };

// Sixteen outputs of a map, from `at` on.
struct Outputs {
    int64_t left;  // that there are, at most LANES
    Vector bias, scales;

    Outputs(const Map& map, int64_t at)
        : left(std::min<int64_t>(LANES, map.d_out - at)),
          bias(map.bias ? vector(map.bias + at) : Vector{}),
          scales(map.scales ? vector(map.scales + at) : Vector{}) {}
};

}  // namespace
