// The recurrence of an SSRU layer (Kim et al. 2019): what a decoder layer remembers of the words before.
//
//   recur(size, wide, before, after, out)

#pragma once

#include "activations.hpp"

namespace {

// after (D) <- f * before + (1 - f) * candidate, out (D) <- max(0, after); `wide` (2 D) has the candidate, then what f
// is the sigmoid of. `after` may be `before`.
inline void recur(int64_t size, const float* wide, const float* before, float* after, float* out) {
    const Vector zero = broadcast(0.0f), one = broadcast(1.0f);
    for (int64_t i = 0; i < size; i += LANES) {
        const auto read = [&](const float* x) { return vector(x + i, size - i, 0.0f); };
        const Vector forget = sigmoid(read(wide + size)), state = read(before);
        const Vector next = fused(forget, state, (one - forget) * read(wide));
        put(next, after + i, size - i);
        put(larger(zero, next), out + i, size - i);
    }
}

}  // namespace
