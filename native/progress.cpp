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

void Progress::reset(std::size_t launches, int workers) {
  const std::size_t stride = launches / 8 + 1;
  const std::size_t count = stride * static_cast<std::size_t>(workers);
  stride_ = stride;
  workers_ = workers;
  if (count > capacity_) {
    lines_ = std::make_unique<Line[]>(count);
    capacity_ = count;
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (Counters& counters : lines_[i].of) {
      counters.taken.store(0, std::memory_order_relaxed);
      counters.finished.store(0, std::memory_order_relaxed);
    }
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

std::uint32_t Progress::take(std::size_t launch, int worker, std::uint32_t pieces) {
  // Shares are equal; of fewer pieces than workers, each is its own worker's.
  const auto workers = static_cast<std::uint32_t>(workers_);
  const std::uint32_t share = pieces > workers ? pieces / workers : 1;
  auto owner = static_cast<std::uint32_t>(worker);
  for (std::uint32_t i = 0; i < workers; ++i) {
    std::atomic<std::uint32_t>& taken = at(owner, launch).taken;
    if (owner * share < pieces && taken.load(std::memory_order_relaxed) < share) {
      const std::uint32_t piece = taken.fetch_add(1, std::memory_order_acq_rel);
      if (piece < share) return owner * share + piece;
    }
    owner = owner + 1 < workers ? owner + 1 : 0;
  }
  return pieces;
}

void Progress::finish(std::size_t launch, int worker, std::uint32_t count) {
  // Sequentially consistent, as in wait(): either this sees the sleeper, or the sleeper, which
  // counts itself first, sees the pieces.
  at(static_cast<std::uint32_t>(worker), launch).finished.store(count, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
}

bool Progress::finished(std::size_t launch, std::uint32_t pieces) const {
  std::uint32_t count = 0;
  for (std::uint32_t worker = 0; worker < static_cast<std::uint32_t>(workers_); ++worker) {
    count += at(worker, launch).finished.load(std::memory_order_seq_cst);
  }
  return count >= pieces;
}

void Progress::wait(std::size_t launch, std::uint32_t pieces) {
  if (spin_until(kPieceSpin, [&] { return finished(launch, pieces); })) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t seen = wakes_.load(std::memory_order_acquire);
    if (finished(launch, pieces)) break;
    wakes_.wait(seen, std::memory_order_acquire);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace helios
