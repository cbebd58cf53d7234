// What a decoder computes between its matrix products, for a CPU, in one pass each; `__init__.py` compiles and calls it.
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

#include "best.hpp"
#include "norms.hpp"
#include "past.hpp"
#include "product.hpp"
