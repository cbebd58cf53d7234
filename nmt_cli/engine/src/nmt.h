/* The compiled engine: a Transformer that translates on a CPU. Plain C, for any language.

   arrays ──▶ nmt_model_new ──┬─▶ nmt_search_new ──▶ add ──▶ step ──▶ results: plain beam search, as a whole
                              ├─▶ nmt_decoder_new ─▶ add ──▶ step or best ──▶ reorder ──▶ keep: for searches of the
   caller └─▶ nmt_pass: sentences with their translations ──▶ log-probabilities and attention

   B sentences   W beam   N rows of a step   V target vocabulary   S source tokens   T target tokens   C candidates   K
   n-best D d_model     H heads

   A function that returns a pointer or a number returns NULL or -1 if it fails; nmt_error says why, for the calling
   thread. A model may be used by many threads at once, a search or a decoder by one at a time. The caller's arrays may
   go as soon as a function returns. Source ids end with the end symbol. Ids out of range are an error. */

#ifndef NMT_H
#define NMT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NMT_ABI 5 /* the number of this interface */

#if defined(_WIN32)
#define NMT_API __declspec(dllexport)
#else
#define NMT_API __attribute__((visibility("default")))
#endif

typedef struct nmt_model nmt_model;
typedef struct nmt_decoder nmt_decoder;
typedef struct nmt_search nmt_search;

enum { NMT_FP32 = 0, NMT_BF16 = 1, NMT_INT8 = 2 };                 /* dtypes of arrays; the precision: fp32 or int8 */
enum { NMT_LAYER_NORM = 0, NMT_RMS_NORM = 1 };                     /* norm */
enum { NMT_RELU = 0, NMT_GELU = 1, NMT_SILU = 2, NMT_SWIGLU = 3 }; /* activation */
enum { NMT_SINUSOIDAL = 0, NMT_LEARNED = 1, NMT_ROTARY = 2, NMT_MARIAN = 3 }; /* positions */
enum { NMT_SELF_ATTENTION = 0, NMT_SSRU = 1 }; /* decoder: how its layers read what is written */

/* A named array of one or two dimensions, row by row. */
typedef struct {
    const char* name;
    int64_t dtype, rows, columns; /* columns 0: one dimension, (rows,) */
    const void* data;
    int64_t
        mapped; /* 1: the numbers are pages of a file, which leave this process's memory as soon as they are packed */
} nmt_array;

/* The form of a model. Names of arrays are those of the model folder: embeddings.shared,
   encoder.0.self_attention.query_key_value.weight, …. A matrix in int8 has its scales, one a row, in NAME.scales
   (NAME.weight's in the same name without .weight). */
typedef struct {
    int64_t d_model, heads, key_size, value_size, d_ff, encoder_layers, decoder_layers, max_positions, source_vocab,
        target_vocab;
    int64_t norm, activation, positions, decoder;
    int64_t post_norm;   /* 1: norms follow residual sums */
    int64_t tied;        /* 1: one matrix of embeddings for source, target and output */
    int64_t monotonic;   /* 1: hard monotonic attention: tables next_word.begins and next_word.ends */
    int64_t output_bias; /* 1: the output map has a bias, output_bias (V,) */
    int64_t precision;
    double epsilon; /* of norms */
} nmt_config;

NMT_API int32_t nmt_abi(void);
NMT_API const char* nmt_instructions(void); /* the instruction set of this library */
NMT_API const char* nmt_error(void);
NMT_API void nmt_use_threads(int64_t count); /* functions that the calling thread calls from now on share their work
                                                among so many threads; at first 1 */

/* Check and pack the arrays. Every array must be part of the model. */
NMT_API nmt_model* nmt_model_new(const nmt_config* config, int64_t count, const nmt_array* arrays);
NMT_API void nmt_model_delete(nmt_model* model);

typedef struct {
    int64_t beam, nbest, bos, eos;
    int64_t lookahead; /* a hypothesis is given up if it cannot become one of the n best within so many tokens; 0: none
                          is */
    int64_t min_length;
    int64_t paths;  /* 1: results have the log-probability of the output up to each token */
    int64_t scores; /* 0: nobody reads log-probabilities; with one hypothesis they are 0, and the search is faster */
    int64_t banned_count, textless_count;
    const int64_t *banned, *textless; /* tokens that are never generated; tokens that do not count in min_length */
} nmt_search_options;

/* Sentences that leave a search: F of them, valid until the next call. L is the length of the longest output. */
typedef struct {
    int64_t count, nbest, longest;         /* F, K, L */
    const int64_t *ids, *lengths, *tokens; /* (F,), (F, K), (F, K, L): without end symbol */
    const float *log_probs, *scores;       /* (F, K): -inf: there is no such hypothesis */
    const float* paths;                    /* (F, K, L), or NULL */
} nmt_results;

NMT_API nmt_search* nmt_search_new(const nmt_model* model, const nmt_search_options* options);
NMT_API void nmt_search_delete(nmt_search* search);
/* Add sentences: their ids, numbers of source tokens, tokens one sentence after another, longest outputs without end
   symbol; and the penalties of outputs of 0, 1, … tokens, end symbol counted, at least two more than the longest
   output: the score is (log P - word_penalties[tokens]) / penalties[tokens]. */
NMT_API int64_t nmt_search_add(nmt_search* search, int64_t count, const int64_t* ids, const int64_t* lengths,
                               const int64_t* tokens, const int64_t* max_lengths, int64_t penalty_count,
                               const float* penalties, const float* word_penalties);
/* Take up to `steps` steps; stop when at most the share `stay` of the sentences is unfinished, and let the finished
 * ones leave. */
NMT_API const nmt_results* nmt_search_step(nmt_search* search, int64_t steps, double stay);
NMT_API int64_t nmt_search_drop(nmt_search* search, int64_t count, const int64_t* ids);
NMT_API int64_t nmt_search_sentences(const nmt_search* search);
NMT_API int64_t nmt_search_open(const nmt_search* search); /* hypotheses that the next step extends */

NMT_API nmt_decoder* nmt_decoder_new(const nmt_model* model, int64_t beam);
NMT_API void nmt_decoder_delete(nmt_decoder* decoder);
NMT_API int64_t nmt_decoder_add(nmt_decoder* decoder, int64_t count, const int64_t* lengths, const int64_t* tokens);
/* A step of the open hypotheses `open` (N,), ascending b * W + w, with these newest tokens (N,): logits (N, V). */
NMT_API int64_t nmt_decoder_step(nmt_decoder* decoder, int64_t rows, const int64_t* open, const int64_t* tokens,
                                 float* logits);
/* A step that ranks: the C largest of so_far (B, W) + log-softmax over (W, V) of each sentence, see nmt_rank. */
NMT_API int64_t nmt_decoder_best(nmt_decoder* decoder, int64_t rows, const int64_t* open, const int64_t* tokens,
                                 const float* so_far, int64_t banned_count, const int64_t* banned,
                                 const int64_t* banned_counts, const int64_t* only, int64_t candidates, float* values,
                                 int64_t* numbers);
/* Hypothesis w of sentence b continues its former hypothesis parents[b, w]. */
NMT_API int64_t nmt_decoder_reorder(nmt_decoder* decoder, const int64_t* parents);
/* Keep these sentences, ascending. */
NMT_API int64_t nmt_decoder_keep(nmt_decoder* decoder, int64_t count, const int64_t* sentences);

/* The C largest of so_far (B, W) + log-softmax(logits (N, V)) of each sentence, largest first, equal ones in the order
   of w * V + v: values and numbers w * V + v, (B, C); if there are fewer: -inf and 0. NaN comes first. `banned` are
   never candidates; with `banned_counts` (N,), the first banned_counts[n] of them. If only[n] >= 0, this token is the
   one candidate of row n. Both may be NULL. `normalized`: the logits are log-probabilities. Logits are overwritten. */
NMT_API int64_t nmt_rank(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t vocabulary,
                         float* logits, int64_t normalized, const float* so_far, int64_t banned_count,
                         const int64_t* banned, const int64_t* banned_counts, const int64_t* only, int64_t candidates,
                         float* values, int64_t* numbers);
/* Replace logits (N, V) by their log-softmax: the one that nmt_rank takes. */
NMT_API int64_t nmt_log_softmax(int64_t rows, int64_t vocabulary, float* logits);

/* One pass over sentences and their translations, all tokens at once: `targets` are what the decoder reads, BOS and
   tokens, one translation after another; `next` are the tokens whose log-probability is asked for, as many. Write log P
   of each to `log_probs` (tokens,), unless it is NULL. Weights of attention, unless NULL, one sentence after another:
   `encoder` (layers, S, H, S), `decoder` (layers, T, H, T), `cross` (layers, T, H, S): what each row attends to.
   Weights of later tokens are not written, and a decoder of SSRU has none: `decoder` is then as it was. */
NMT_API int64_t nmt_pass(const nmt_model* model, int64_t count, const int64_t* source_lengths, const int64_t* sources,
                         const int64_t* target_lengths, const int64_t* targets, const int64_t* next, float* log_probs,
                         float* encoder, float* decoder, float* cross);

/* --- Training: operations on packed rows, forward and backward. Products of matrices are the caller's. ---

   Rows x, y, … are (N, D) in `dtype`, fp32 or bf16, as are biases and weights of norms; computations are in fp32. Each
   result has the same bits on any number of threads and on every processor. Gradients of biases and weights are fp32.
 */

/* Let the operations use `count` threads of a team: team(work, data, count, 0) calls work(data) in each of them and
   waits, as libgomp's GOMP_parallel does. NULL: one thread. */
typedef void (*nmt_team)(void (*work)(void*), void* data, unsigned count, unsigned flags);
NMT_API void nmt_train_threads(nmt_team team, int64_t count);

/* Dropout by counter (Philox4x32-10, Salmon et al. 2011): a unit's mask depends on these numbers alone. */
typedef struct {
    int64_t seed, update, place; /* the lower 32 bits of each; `place` is the layer's part that drops */
    int64_t dropped;             /* so many of 65,536 units become 0, the others times 65,536 / (65,536 - dropped) */
    const int32_t *pairs, *positions; /* (N,): each row's pair of sentences, and position in its sentence */
} nmt_dropout;

/* sum = x + Dropout(y + bias), and out = Norm(sum), of sums in `dtype`. */
typedef struct {
    int64_t dtype, rows, size;  /* N, D */
    const void *x, *y, *bias;   /* (N, D), (N, D), (D,); NULL: none. Without y and bias, `sum` is x */
    const nmt_dropout* dropout; /* NULL: none */
    const void *weight, *shift; /* (D,): of LayerNorm; shift NULL: RMSNorm; both NULL: no norm, out is not written */
    double epsilon;
    void *sum, *out; /* (N, D) */
    float* moments;  /* (N, 2): each row's mean (0 for RMSNorm), and 1 / its deviation */
} nmt_residual;
NMT_API int64_t nmt_residual_forward(const nmt_residual* form);
/* grad_out and grad_sum (N, D): gradients of `out` and of `sum`, NULL: 0. Write grad_x, which is the sum's gradient in
   all, grad_y (N, D), grad_bias, grad_weight, grad_shift (D,), unless NULL. x, y, bias and out are not read. */
NMT_API int64_t nmt_residual_backward(const nmt_residual* form, const void* grad_out, const void* grad_sum,
                                      void* grad_x, void* grad_y, float* grad_bias, float* grad_weight,
                                      float* grad_shift);

/* Dropout(f(x + bias)). */
typedef struct {
    int64_t dtype, rows, size, activation; /* N, d_ff */
    const void *x, *bias;                  /* (N, d_ff), (d_ff,); with 2 * d_ff columns for a gate. bias NULL: none */
    const nmt_dropout* dropout;
} nmt_activation;
NMT_API int64_t nmt_activation_forward(const nmt_activation* form, void* out); /* (N, d_ff) */
/* With ReLU, x is what the forward pass wrote to `out`. grad_bias may be NULL. */
NMT_API int64_t nmt_activation_backward(const nmt_activation* form, const void* grad_out, void* grad_x,
                                        float* grad_bias);

/* Equation (1), sentence by sentence and head by head. Rows after the last sentence get 0. */
typedef struct {
    int64_t dtype, rows, key_rows, sentences, heads, key, value, causal; /* N, N', B, H, K, V */
    const int64_t *starts, *key_starts;                                  /* (B + 1,): the first row of each sentence */
    const void *q, *k, *v, *q_bias, *k_bias, *v_bias; /* (N, H * K), (N', H * K), (N', H * V); biases NULL: none */
    int64_t q_stride, k_stride, v_stride;             /* numbers from one row to the next */
    int64_t grad_stride;                              /* the same, of grad_k and grad_v */
    const float* rotation; /* (positions, K / 2, 2): cos and sin, by which q and k are rotated; NULL: they are not */
    int64_t positions;
    const nmt_dropout* dropout; /* of the weights; its pairs and positions are those of q's rows. A unit is the key's
                                   index in its sentence; head h has the blocks from 8,192 * h on */
    void* out;                  /* (N, H * V); not read by the backward pass */
    float* normalizers;         /* (N, H): the logarithm of the sum of exp(score) */
} nmt_attention;
NMT_API int64_t nmt_attention_forward(const nmt_attention* form);
/* grad_out (N, H * V). grad_q has the stride of q; gradients of biases may be NULL. */
NMT_API int64_t nmt_attention_backward(const nmt_attention* form, const void* grad_out, void* grad_q, void* grad_k,
                                       void* grad_v, float* grad_q_bias, float* grad_k_bias, float* grad_v_bias);

/* Label-smoothed cross-entropy, see training/loss.py: scores (N, V) become the gradient of the loss in them. Add the
   sums of the loss and of the NLL to `sums` (2,). With divergence (R-Drop's weight) above 0, rows n and N / 2 + n are
   the two passes of one token. */
typedef struct {
    int64_t dtype, rows, size; /* N, V */
    const int64_t* targets;    /* (N,) */
    double smoothing, divergence;
} nmt_loss;
NMT_API int64_t nmt_loss_rows(const nmt_loss* form, void* scores, double* sums);

/* The Euclidean norm of x (count,). */
NMT_API int64_t nmt_norm(int64_t count, const float* x, double* norm);
/* A step of Adam with the gradients times `scale`; `rounded` gets the new parameters in bf16, unless NULL. */
typedef struct {
    int64_t count, step;
    float *params, *first, *second;
    const float* grads;
    void* rounded;
    double scale, rate, beta1, beta2, epsilon;
} nmt_adam;
NMT_API int64_t nmt_adam_step(const nmt_adam* form);

#ifdef __cplusplus
}
#endif

#endif
