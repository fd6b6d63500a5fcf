// Counting, spinning and sleeping behind progress.h.
#include "progress.h"

#include <chrono>
#include <thread>

#include "thread_pool.h"

namespace helios {
namespace {

// How long workers spin for another's last piece: longer than a balanced launch's skew.
constexpr std::chrono::nanoseconds kPieceSpin = std::chrono::microseconds(100);

}  // namespace

void Progress::reset(std::size_t launches) {
  const std::size_t count = launches + 1;
  if (count > capacity_) {
    counters_ = std::make_unique<Counters[]>(count);
    capacity_ = count;
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    counters_[i].taken.store(0, std::memory_order_relaxed);
    counters_[i].finished.store(0, std::memory_order_relaxed);
  }
}

bool Progress::enter(std::uint64_t sequence) {
  // Sequentially consistent, as in close(): either close() sees this worker inside, or the worker
  // sees that the sequence is gone.
  inside_.fetch_add(1, std::memory_order_seq_cst);
  if (sequence_.load(std::memory_order_seq_cst) == sequence) return true;
  leave();
  return false;
}

void Progress::close() {
  sequence_.store(0, std::memory_order_seq_cst);
  while (inside_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

std::uint32_t Progress::take(std::size_t launch, std::uint32_t pieces) {
  std::atomic<std::uint32_t>& taken = counters_[launch].taken;
  const std::uint32_t seen = taken.load(std::memory_order_relaxed);
  return seen >= pieces ? seen : taken.fetch_add(1, std::memory_order_acq_rel);
}

void Progress::finish_piece(std::size_t launch, std::uint32_t pieces) {
  std::atomic<std::uint32_t>& finished = counters_[launch].finished;
  if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) finished.notify_all();
}

void Progress::wait(std::size_t launch, std::uint32_t pieces) {
  std::atomic<std::uint32_t>& finished = counters_[launch].finished;
  if (spin_until(kPieceSpin, [&] { return finished.load(std::memory_order_acquire) >= pieces; })) {
    return;
  }
  for (;;) {
    const std::uint32_t seen = finished.load(std::memory_order_acquire);
    if (seen >= pieces) return;
    finished.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace helios
