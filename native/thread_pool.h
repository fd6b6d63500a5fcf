// Threads that spin for a short while and then sleep, and `Signal`, a counter that they wait on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace helios {

// Tells the core that this thread spins.
void relax();

// Asks `reached` again and again, for at most `spin`.
template <class Reached>
bool spin_until(std::chrono::nanoseconds spin, const Reached& reached) {
  if (reached()) return true;
  const auto end = std::chrono::steady_clock::now() + spin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (reached()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// A counter that only grows. Waiting spins for at most `spin`, then sleeps.
class Signal {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }
  // Raises the counter and wakes whoever sleeps. One thread at a time.
  void raise(std::uint64_t value);
  // Waits until the counter reaches `value`.
  void wait(std::uint64_t value, std::chrono::nanoseconds spin);
  // The same with a limit; false if it passed first.
  bool wait_for(std::uint64_t value, std::chrono::nanoseconds spin,
                std::chrono::milliseconds limit);

 private:
  std::atomic<std::uint64_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

// Named threads that run `body(index)`; joined when destroyed.
class ThreadPool {
 public:
  ThreadPool() = default;
  ~ThreadPool() { join(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  // Throws std::system_error where the system refuses a thread; those before it are running then.
  void start(int threads, const std::function<void(int)>& body);
  void join();

 private:
  std::vector<std::thread> threads_;
};

}  // namespace helios
