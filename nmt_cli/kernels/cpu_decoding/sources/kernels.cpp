// What a decoder computes on a CPU, in few passes over memory; functions.py calls it.
//
//   N rows   D d_model   H heads   K d_k   V d_v   a "dtype" is that of numbers: fp32, bf16, or int8 with one scale
//
//   norms.hpp           residual (N, D) + a sub-layer's result, its norm, and the rows that the next product reads
//   activations.hpp     the nonlinearities that are no part of a product
//   positions.hpp       embeddings and positions
//   attention.hpp       each row's queries over its keys and values: equation (1), the softmax in fp32
//   history.hpp         which keys and values each hypothesis of a beam search descends from
//   matmul.hpp          matrix products in fp32 and int8, where the processor has AVX2; threads.hpp has their threads,
//                       outputs.hpp what happens to their sums, numbers_avx2.hpp and numbers_avx512.hpp their registers
//   stack.hpp           all of these as one function: a step of the decoder's layers
//   top_candidates.hpp  log-softmax and the best candidates of each sentence
//   beam.hpp            the hypotheses that they finish and extend
//   search.hpp          all of these as one function: steps of beam search
//
// A row is computed by the same instructions in the same order whatever the other rows are, so no result depends on them.
// Each core of a CPU has a worker, so all but products and the ranking of outputs is the work of one thread. Sums of adjacent
// numbers may be taken in any order (`omp simd reduction`): in vector registers, the same order for the same length.

#include "search.hpp"
