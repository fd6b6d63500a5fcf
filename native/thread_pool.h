// Threads that spin for a short while and then sleep: `Signal`, a counter that threads wait on,
// and `Barrier`, where the workers of a pool meet between launches.
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
  bool spin_until(std::uint64_t value, std::chrono::nanoseconds spin) const;

  std::atomic<std::uint64_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

// A reusable barrier for a fixed number of threads.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void meet();

 private:
  const int threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) Signal phase_;
};

// Starts `threads` named threads that run `body(index)`; joins them when destroyed.
class ThreadPool {
 public:
  ThreadPool(int threads, const std::function<void(int)>& body);
  ~ThreadPool() { join(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  void join();

 private:
  std::vector<std::thread> threads_;
};

}  // namespace helios
