// What the operations of training share.
//
//   share_rows(rows, work)     work(part, first, last) for each part of PART rows, on the team's threads
//   PartSums                   sums over rows, such as a bias's gradient: one partial sum for each part, added in order
//
// A part's work and sums are the same on any number of threads.

#pragma once

#include <exception>

#include "model.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace {

constexpr int64_t PART = 64;  // rows
constexpr int64_t MOST_ROWS = int64_t(1) << 32, WIDEST_ROW = 1 << 24;

std::atomic<nmt_team> training_team{nullptr};
std::atomic<int64_t> training_threads{1};

// Call work(part) for each of the parts, 0 to parts - 1, in any order, on the threads of the team. Throw what one of
// them threw.
template <class Work>
void share_training(int64_t parts, const Work& work) {
    const nmt_team team = training_team;
    const int64_t threads = std::min<int64_t>(training_threads, parts);
    if (!team || threads <= 1) {
        for (int64_t part = 0; part < parts; ++part) work(part);
        return;
    }
    struct Job {
        const Work& work;
        const int64_t parts;
        std::atomic<int64_t> next{0};
        std::atomic<bool> failed{false};
        std::exception_ptr failure = nullptr;
    } job{work, parts};
    const auto run = [](void* data) {
        Job& job = *static_cast<Job*>(data);
        try {
            for (int64_t part; (part = job.next.fetch_add(1)) < job.parts;) job.work(part);
        } catch (...) {
            if (!job.failed.exchange(true)) job.failure = std::current_exception();
        }
    };
    team(run, &job, unsigned(threads), 0);
    if (job.failed) std::rethrow_exception(job.failure);
}

inline int64_t parts_of(int64_t rows) { return (rows + PART - 1) / PART; }

template <class Work>
void share_rows(int64_t rows, const Work& work) {
    share_training(parts_of(rows), [&](int64_t part) { work(part, part * PART, std::min(rows, (part + 1) * PART)); });
}

// Sums (size,) over rows. `of(part)` is the part's own, zero at first; `write` adds all of them, in order.
class PartSums {
public:
    PartSums(int64_t rows, int64_t size) : parts(parts_of(rows)), size(size), sums(parts * size, 0.0f) {}

    float* of(int64_t part) { return sums.data() + part * size; }

    void write(float* out) {
        std::fill_n(out, size, 0.0f);
        for (int64_t part = 0; part < parts; ++part) add(out, of(part), size);
    }

private:
    const int64_t parts, size;
    Aligned<float> sums;
};

// The number of rows and their size, checked.
inline void check_rows(int64_t dtype, int64_t rows, int64_t size) {
    if (dtype != FP32 && dtype != BF16) fail("rows have the dtype %lld, expected fp32 or bf16", (long long)dtype);
    if (rows < 0 || rows > MOST_ROWS)
        fail("the number of rows is %lld, expected 0 to %lld", (long long)rows, (long long)MOST_ROWS);
    if (size < 1 || size > WIDEST_ROW)
        fail("rows have %lld numbers, expected 1 to %lld", (long long)size, (long long)WIDEST_ROW);
}

// Call work with a null pointer of the rows' type, float or bf16.
template <class Work>
void with_dtype(int64_t dtype, const Work& work) {
    if (dtype == BF16)
        work(static_cast<bf16*>(nullptr));
    else
        work(static_cast<float*>(nullptr));
}

inline float number(float x) { return x; }
inline float number(bf16 x) { return number_of(uint32_t(x.bits) << 16); }

// x (count,) in fp32.
template <class T>
inline void load(const T* x, int64_t count, float* out) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = number(x[i]);
}

inline void store(const float* x, int64_t count, float* out) { store(x, count, out, FP32); }
inline void store(const float* x, int64_t count, bf16* out) { store(x, count, out, BF16); }

}  // namespace
