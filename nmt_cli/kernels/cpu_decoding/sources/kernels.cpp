// What a decoder computes between its matrix products, on a CPU, in one pass over memory each; functions.py calls it.
//
//   N rows   D d_model   H heads   K d_k   V d_v   a "dtype" is that of numbers: fp32, bf16, or int8 with one scale
//
//   norms.hpp           residual (N, D) + a sub-layer's result, LayerNorm, and the rows that the next product reads; embeddings
//   attention.hpp       each row's queries over its keys and values: equation (1), the softmax in fp32
//   history.hpp         which keys and values each hypothesis of a beam search descends from
//   top_candidates.hpp  log-softmax and the best candidates of each sentence
//   int8_matmul.hpp     the one matrix product here: int8, for so few rows that reading the weights is all the work
//
// A row is computed by the same instructions in the same order whatever the other rows are, so no result depends on them.
// Everything is the work of one thread: each core of a CPU has a worker. Sums of adjacent numbers may be taken in any order
// (`omp simd reduction`): in vector registers, the same order for the same length.

#include "top_candidates.hpp"
#include "norms.hpp"
#include "history.hpp"
#include "int8_matmul.hpp"
