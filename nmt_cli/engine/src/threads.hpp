// Threads that share one product: for a few sentences that have all of a CPU's cores.
//
// The caller works too. Who has nothing to do looks a few times, because the next product comes at once, and then
// sleeps. Helpers live as long as the process. One caller at a time has them; another one works alone.

#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

namespace {

thread_local int64_t threads_here = 1;  // that share the work of this thread, itself counted

// Look a few times, a microsecond or two, whether ready().
template <class Ready>
bool soon(const Ready& ready) {
    constexpr int TIMES = 64;
    for (int i = 0; i < TIMES; ++i) {
        if (ready()) return true;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    return false;
}

class Helpers {
public:
    const pid_t owner = getpid();

    // Call work(part) for each of the parts, 0 to parts - 1, in any order, and wait for all of them. Throw what one of
    // them threw.
    template <class Work>
    void share(int parts, const Work& work) {
        if (parts <= 1 || !taken.try_lock()) {
            for (int part = 0; part < parts; ++part) work(part);
            return;
        }
        std::lock_guard<std::mutex> mine(taken, std::adopt_lock);
        grow(parts - 1);
        run = [](const void* all, int part) { (*static_cast<const Work*>(all))(part); };
        data = &work;
        done.store(0);
        left.store(parts);
        if (asleep.load()) {
            std::lock_guard<std::mutex> lock(door);
            called.notify_all();
        }
        while (take()) {}
        const auto complete = [&] { return done.load() == parts; };
        if (!soon(complete)) {
            std::unique_lock<std::mutex> lock(door);
            last = parts;
            finished.wait(lock, complete);
            last = 0;
        }
        if (failed.exchange(false)) std::rethrow_exception(std::exchange(failure, nullptr));
    }

private:
    std::mutex taken, door;
    std::condition_variable called, finished;
    std::atomic<int> left{0}, done{0}, asleep{0},
        last{0};  // `last`: the number of parts that a sleeping caller waits for
    void (*run)(const void*, int) = nullptr;
    const void* data = nullptr;
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    int helpers = 0;

    // Do a part that nobody has; return whether there was one.
    bool take() {
        if (left.load(std::memory_order_relaxed) <= 0) return false;
        const int part = left.fetch_sub(1, std::memory_order_acquire) - 1;
        if (part < 0) return false;
        try {
            run(data, part);
        } catch (...) {
            if (!failed.exchange(true)) failure = std::current_exception();
        }
        if (done.fetch_add(1) + 1 == last.load()) {
            std::lock_guard<std::mutex> lock(door);
            finished.notify_one();
        }
        return true;
    }

    void grow(int wanted) {
        for (; helpers < wanted; ++helpers) {
            try {
                std::thread([this] { help(); }).detach();
            } catch (const std::system_error&) {  // no more threads: the caller does their parts
                return;
            }
        }
    }

    void help() {
        const auto there_is = [this] { return left.load() > 0; };
        for (;;) {
            while (take()) {}
            if (soon(there_is)) continue;
            std::unique_lock<std::mutex> lock(door);
            ++asleep;
            called.wait(lock, there_is);
            --asleep;
        }
    }
};

// Never deleted: its threads may run when the process ends. A fork gets others, because a thread that it lacks may hold
// the locks.
Helpers& helpers() {
    static std::atomic<Helpers*> all{new Helpers};
    Helpers* here = all.load();
    if (here->owner != getpid()) {
        Helpers* const own = new Helpers;
        if (!all.compare_exchange_strong(here, own)) delete own;
    }
    return *all.load();
}

}  // namespace
