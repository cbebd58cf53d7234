// The functions of nmt.h. No exception leaves them.
//
//   vectors.hpp         sixteen numbers, the exponential, rows of floats and of bytes; registers_X.hpp: what differs
//                       between processors
//   softmax.hpp         the sum of exponentials, its logarithm
//   norms.hpp           residual (N, D) + a sub-layer's result, its norm, and the rows that the next product reads
//   activations.hpp     the nonlinearities that are no part of a product
//   positions.hpp       embeddings and positions; tables.hpp: sines and cosines
//   ssru.hpp            the recurrence of a decoder layer without self-attention
//   attention.hpp       each row's queries over its keys and values: equation (1), the softmax in fp32
//   history.hpp         which keys and values, or which state, each hypothesis of a beam search descends from
//   matmul.hpp          matrix products in fp32 and int8; threads.hpp has their threads, outputs.hpp what happens to
//                       their sums
//   model.hpp           named arrays, checked and packed
//   layers.hpp          a pass through the encoder's or the decoder's layers
//   top_candidates.hpp  log-softmax and the best candidates of each sentence
//   decoder.hpp         a step of the open hypotheses
//   search.hpp          plain beam search
//   pass.hpp            a sentence and its translation at once
//   training.hpp        what the operations of training share: their threads, rows, gradients of biases
//   philox.hpp          dropout by counter; small_products.hpp: products of matrices that stay in the caches
//   training_X.hpp      X: residual (with dropout and norm), activation, attention, loss, adam
//
// A row is computed by the same operations in the same order whatever the other rows are and whatever the processor is,
// so no result depends on them: every sum has one shape, products in it are fused, and nothing else is
// (-ffp-contract=off).

#include "nmt.h"

#include <new>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // there is no other translation unit
#endif

#include "pass.hpp"
#include "search.hpp"
#include "training_activation.hpp"
#include "training_adam.hpp"
#include "training_attention.hpp"
#include "training_loss.hpp"
#include "training_residual.hpp"

namespace {

thread_local char last_error[512] = "";  // no memory is needed to say that there is none

// Return work(), or `failed` and keep why for nmt_error.
template <class Value, class Work>
Value guarded(Value failed, const Work& work) noexcept {
    const auto keep = [](const char* why) { std::snprintf(last_error, sizeof last_error, "%s", why); };
    try {
        return work();
    } catch (const std::bad_alloc&) {
        keep("out of memory");
    } catch (const std::length_error&) {  // more than a vector can have
        keep("out of memory");
    } catch (const std::exception& error) {
        keep(error.what());
    }
    return failed;
}

template <class Work>
int64_t done(const Work& work) noexcept {
    return guarded(int64_t(-1), [&] {
        work();
        return int64_t(0);
    });
}

// Check the ids and sizes of a request for the best candidates of `batch` sentences.
void check(const Request& to, int64_t batch, int64_t rows) {
    check_beam(to.beam);
    if (to.size < 1 || to.size > MOST_TOKENS)
        fail("the vocabulary has %lld tokens, expected 1 to %lld", (long long)to.size, (long long)MOST_TOKENS);
    if (to.count < 1) fail("the number of candidates is %lld, expected at least 1", (long long)to.count);
    if (counted("sentences", batch) > std::numeric_limits<int64_t>::max() / MOST_BEAM)
        fail("the number of sentences is %lld", (long long)batch);
    counted("open hypotheses", rows);
    if (to.count > MOST_BEAM * to.size)
        fail("the number of candidates is %lld, expected at most %lld", (long long)to.count,
             (long long)(MOST_BEAM * to.size));
    afford(double(rows) * double(Largest::crowd_space(to.count, to.size)) * sizeof(uint64_t));
    for (int64_t i = 0; i < counted("banned tokens", to.banned_count); ++i)
        if (to.banned_ids[i] < 0 || to.banned_ids[i] >= to.size)
            fail("a banned token is %lld, expected 0 to %lld", (long long)to.banned_ids[i], (long long)to.size - 1);
    for (int64_t n = 0; n < rows; ++n) {
        if (to.open[n] < 0 || to.open[n] >= batch * to.beam || (n && to.open[n] <= to.open[n - 1]))
            fail("the open hypothesis number %lld is %lld, expected ascending numbers below %lld", (long long)n,
                 (long long)to.open[n], (long long)(batch * to.beam));
        if (to.banned && (to.banned[n] < 0 || to.banned[n] > to.banned_count))
            fail("%lld banned tokens, expected 0 to %lld", (long long)to.banned[n], (long long)to.banned_count);
        if (to.only && to.only[n] >= to.size)
            fail("the one candidate is %lld, expected at most %lld", (long long)to.only[n], (long long)to.size - 1);
    }
}

}  // namespace

int32_t nmt_abi(void) { return NMT_ABI; }
const char* nmt_instructions(void) {
#ifdef __AMX_INT8__
    if (!tiles_run()) return "avx512-vnni";
#endif
    return NMT_INSTRUCTIONS;
}
const char* nmt_error(void) { return last_error; }
void nmt_use_threads(int64_t count) { threads_here = std::max<int64_t>(1, std::min<int64_t>(count, 1024)); }

nmt_model* nmt_model_new(const nmt_config* config, int64_t count, const nmt_array* arrays) {
    return guarded<nmt_model*>(nullptr, [&] { return new_model(*config, count, arrays); });
}
void nmt_model_delete(nmt_model* model) { delete model; }

nmt_search* nmt_search_new(const nmt_model* model, const nmt_search_options* options) {
    return guarded<nmt_search*>(nullptr, [&] { return new nmt_search(*model, *options); });
}
void nmt_search_delete(nmt_search* search) { delete search; }
int64_t nmt_search_add(nmt_search* search, int64_t count, const int64_t* ids, const int64_t* lengths,
                       const int64_t* tokens, const int64_t* max_lengths, int64_t penalty_count, const float* penalties,
                       const float* word_penalties) {
    return done(
        [&] { search->add(count, ids, lengths, tokens, max_lengths, penalty_count, penalties, word_penalties); });
}
const nmt_results* nmt_search_step(nmt_search* search, int64_t steps, double stay) {
    return guarded<const nmt_results*>(nullptr, [&] { return search->step(steps, stay); });
}
int64_t nmt_search_drop(nmt_search* search, int64_t count, const int64_t* ids) {
    return done([&] { search->drop(count, ids); });
}
int64_t nmt_search_sentences(const nmt_search* search) { return int64_t(search->sentences.size()); }
int64_t nmt_search_open(const nmt_search* search) { return search->open_hypotheses(); }

nmt_decoder* nmt_decoder_new(const nmt_model* model, int64_t beam) {
    return guarded<nmt_decoder*>(nullptr, [&] { return new nmt_decoder(*model, beam); });
}
void nmt_decoder_delete(nmt_decoder* decoder) { delete decoder; }
int64_t nmt_decoder_add(nmt_decoder* decoder, int64_t count, const int64_t* lengths, const int64_t* tokens) {
    return done([&] { decoder->add(count, lengths, tokens); });
}
int64_t nmt_decoder_step(nmt_decoder* decoder, int64_t rows, const int64_t* open, const int64_t* tokens,
                         float* logits) {
    return done([&] { decoder->logits(decoder->step(rows, open, tokens), rows, logits); });
}
int64_t nmt_decoder_best(nmt_decoder* decoder, int64_t rows, const int64_t* open, const int64_t* tokens,
                         const float* so_far, int64_t banned_count, const int64_t* banned, const int64_t* banned_counts,
                         const int64_t* only, int64_t candidates, float* values, int64_t* numbers) {
    return done([&] {
        const nmt_model& model = decoder->model;
        const int64_t batch = int64_t(decoder->history.sentences.size());
        const Request request{decoder->beam, model.config.target_vocab,
                              candidates,    LOG_SUMS,
                              open,          so_far,
                              banned_count,  banned,
                              banned_counts, only,
                              values,        numbers};
        check(request, batch, rows);
        rank_outputs(model.output, read(decoder->step(rows, open, tokens)), request, batch, rows);
    });
}
int64_t nmt_decoder_reorder(nmt_decoder* decoder, const int64_t* parents) {
    return done([&] {
        const int64_t beam = decoder->beam;
        for (int64_t i = 0; i < int64_t(decoder->history.sentences.size()) * beam; ++i)
            if (parents[i] < 0 || parents[i] >= beam)
                fail("a parent is %lld, expected 0 to %lld", (long long)parents[i], (long long)beam - 1);
        if (beam > 1) decoder->history.reorder(parents);
    });
}
int64_t nmt_decoder_keep(nmt_decoder* decoder, int64_t count, const int64_t* sentences) {
    return done([&] {
        const int64_t all = int64_t(decoder->history.sentences.size());
        for (int64_t i = 0; i < counted("sentences", count); ++i)
            if (sentences[i] < 0 || sentences[i] >= all || (i && sentences[i] <= sentences[i - 1]))
                fail("a sentence to keep is %lld, expected ascending numbers below %lld", (long long)sentences[i],
                     (long long)all);
        decoder->history.keep(count, sentences);
    });
}

int64_t nmt_rank(int64_t batch, int64_t beam, int64_t rows, const int64_t* open, int64_t vocabulary, float* logits,
                 int64_t normalized, const float* so_far, int64_t banned_count, const int64_t* banned,
                 const int64_t* banned_counts, const int64_t* only, int64_t candidates, float* values,
                 int64_t* numbers) {
    return done([&] {
        const Sums sums = normalized ? NORMALIZED : LOG_SUMS;
        const Request request{beam,         vocabulary, candidates,    sums, open,   so_far,
                              banned_count, banned,     banned_counts, only, values, numbers};
        check(request, batch, rows);
        rank(request, batch, rows, logits);
    });
}
int64_t nmt_log_softmax(int64_t rows, int64_t vocabulary, float* logits) {
    return done([&] {
        if (vocabulary < 1) fail("the vocabulary has %lld tokens, expected at least 1", (long long)vocabulary);
        log_softmax(counted("rows", rows), vocabulary, logits);
    });
}

int64_t nmt_pass(const nmt_model* model, int64_t count, const int64_t* source_lengths, const int64_t* sources,
                 const int64_t* target_lengths, const int64_t* targets, const int64_t* next, float* log_probs,
                 float* encoder, float* decoder, float* cross) {
    return done([&] {
        const nmt_config& config = model->config;
        const int64_t heads = config.heads, encoding = config.encoder_layers * heads,
                      decoding = config.decoder_layers * heads;
        Pass pass(*model);
        for (int64_t s = 0; s < counted("sentences", count); ++s) {
            const int64_t rows = target_lengths[s], columns = source_lengths[s];
            const Packed source("source", 1, &columns, sources, config.source_vocab, config.max_positions);
            const Packed target("translation", 1, &rows, targets, config.target_vocab, config.max_positions);
            for (int64_t i = 0; i < rows; ++i)
                if (log_probs && (next[i] < 0 || next[i] >= config.target_vocab))
                    fail("a translation has the token %lld, expected 0 to %lld", (long long)next[i],
                         (long long)config.target_vocab - 1);
            pass.run(source, target, next, log_probs, encoder, decoder, cross);
            sources += columns, targets += rows, next += log_probs ? rows : 0;
            if (log_probs) log_probs += rows;
            if (encoder) encoder += encoding * columns * columns;
            if (decoder) decoder += decoding * rows * rows;
            if (cross) cross += decoding * rows * columns;
        }
    });
}

void nmt_train_threads(nmt_team team, int64_t count) {
    training_team = team;
    training_threads = std::max<int64_t>(1, std::min<int64_t>(count, 1024));
}
int64_t nmt_residual_forward(const nmt_residual* form) {
    return done([&] { residual_forward(*form); });
}
int64_t nmt_residual_backward(const nmt_residual* form, const void* grad_out, const void* grad_sum, void* grad_x,
                              void* grad_y, float* grad_bias, float* grad_weight, float* grad_shift) {
    return done(
        [&] { residual_backward(*form, grad_out, grad_sum, grad_x, grad_y, grad_bias, grad_weight, grad_shift); });
}
int64_t nmt_activation_forward(const nmt_activation* form, void* out) {
    return done([&] { activation_forward(*form, out); });
}
int64_t nmt_activation_backward(const nmt_activation* form, const void* grad_out, void* grad_x, float* grad_bias) {
    return done([&] { activation_backward(*form, grad_out, grad_x, grad_bias); });
}
int64_t nmt_attention_forward(const nmt_attention* form) {
    return done([&] { attention_forward(*form); });
}
int64_t nmt_attention_backward(const nmt_attention* form, const void* grad_out, void* grad_q, void* grad_k,
                               void* grad_v, float* grad_q_bias, float* grad_k_bias, float* grad_v_bias) {
    return done(
        [&] { attention_backward(*form, grad_out, grad_q, grad_k, grad_v, grad_q_bias, grad_k_bias, grad_v_bias); });
}
int64_t nmt_loss_rows(const nmt_loss* form, void* scores, double* sums) {
    return done([&] { loss_rows(*form, scores, sums); });
}
int64_t nmt_norm(int64_t count, const float* x, double* norm) {
    return done([&] { norm_of(count, x, norm); });
}
int64_t nmt_adam_step(const nmt_adam* form) {
    return done([&] { adam_step(*form); });
}
