// Linear maps, and what happens to the sums of their products: scales, bias, maximum, and where results are written.

#pragma once

#include <algorithm>

#include "dtypes.hpp"

// A linear map: max(0, W x * scales + bias), the maximum where `relu`. It is of int8 if it has scales. Addresses are of packed numbers.
struct Map {
    int64_t d_in, d_out;
    const void* weight;
    const int32_t* sums;  // of int8: 128 times the sum of each row of W
    const float* scales;  // of int8: what one step of a sum is worth, by output
    const float* bias;    // may be null
    float input_scale;    // of int8: what one step of x is worth
    int32_t relu;
};

// Where the results go: (N, width) in fp32, or in uint8 after another factor, of the outputs from `first` on.
struct Result {
    void* out;
    int in_bytes;
    float factor;
    int64_t width, first;
};

namespace {

// What happens to a sum: `Result::in_bytes` and the maximum of a map, known when this is compiled.
enum Finish { PLAIN, RELU, RELU_IN_BYTES };

// Sixteen outputs of a map, from `at` on.
struct Outputs {
    int64_t left;  // that there are, at most LANES
    Vector bias, scales;

    Outputs(const Map& map, int64_t at) : left(std::min<int64_t>(LANES, map.d_out - at)), bias(map.bias ? vector(map.bias + at) : Vector{}), scales(map.scales ? vector(map.scales + at) : Vector{}) {}
};

}  // namespace
