// Spinning, sleeping and waking behind thread_pool.h.
#include "thread_pool.h"

#include <cfenv>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <pthread.h>
#endif

namespace helios {
namespace {

// Named by its creator: the names are there when the pool is.
void name_thread([[maybe_unused]] std::thread& thread, [[maybe_unused]] const std::string& name) {
#if defined(__linux__)
  pthread_setname_np(thread.native_handle(), name.c_str());
#endif
}

}  // namespace

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Signal::raise(std::uint64_t value) {
  // Sequentially consistent on both sides: either this sees the sleeper, or the sleeper, which
  // counts itself first, sees the value.
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  woken_.notify_all();
}

void Signal::wait(std::uint64_t value, std::chrono::nanoseconds spin) {
  if (spin_until(spin, [&] { return this->value() >= value; })) return;
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  woken_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) >= value; });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

bool Signal::wait_for(std::uint64_t value, std::chrono::nanoseconds spin,
                      std::chrono::milliseconds limit) {
  if (spin_until(spin < limit ? spin : limit, [&] { return this->value() >= value; })) return true;
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const bool reached = woken_.wait_for(
      lock, limit, [&] { return value_.load(std::memory_order_seq_cst) >= value; });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return reached;
}

void ThreadPool::start(int threads, const std::function<void(int)>& body) {
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([i, body] {
      // The creator may have set flags that change how tiny numbers round.
      std::fesetenv(FE_DFL_ENV);
      body(i);
    });
    name_thread(threads_.back(), "helios-pool-" + std::to_string(i));
  }
}

void ThreadPool::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace helios
