// The replayer: keeps programs, queues submissions, and walks each program's launches on its
// thread pool. Every worker takes every submission from the ring and walks all its launches, taking
// pieces of them as `Progress` deals them out. Nothing here touches Python.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "program.h"
#include "progress.h"
#include "scratch.h"
#include "thread_pool.h"

namespace helios {

class Replayer {
 public:
  // Submissions that may be outstanding, and those whose timing is kept.
  static constexpr std::uint64_t kRing = 256;

  Replayer(int threads, std::string_view instruction_set);
  ~Replayer() { close(); }

  // Also makes room for the scratch that the program's launches need, so that running it allocates
  // nothing. The caller keeps the memory at the operands' addresses alive until close(). Throws
  // std::invalid_argument where a launch doesn't fit; std::runtime_error while a submission is
  // outstanding or where there is no memory for the scratch.
  int add_program(const LaunchList& list);
  // Throws std::invalid_argument or, closed or full, std::runtime_error.
  void submit(int program, std::uint64_t sequence);
  std::uint64_t completed() const { return completed_.value(); }
  bool wait(std::uint64_t sequence, std::chrono::milliseconds limit);
  // (start, end) in nanoseconds of the steady clock.
  std::pair<std::int64_t, std::int64_t> timing(std::uint64_t sequence) const;
  // Bytes of scratch, all workers together.
  std::uint64_t scratch_nbytes() const {
    const std::lock_guard lock(host_);
    return scratch_.nbytes();
  }
  // Launches begun so far, so it moves while a long submission runs. All of a submission's count
  // once it has completed.
  std::uint64_t launches() const { return launches_.load(std::memory_order_relaxed); }
  // Finishes what is queued and ends the threads; whoever calls it returns when they have ended.
  // Idempotent.
  void close();

 private:
  struct Submission {
    const Program* program = nullptr;
    Progress progress;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };

  void work(int worker);
  void run(Submission& submission, std::uint64_t sequence, int worker);

  // The host's threads take turns at adding, submitting and closing; workers never do.
  mutable std::mutex host_;
  std::mutex joining_;
  const KernelTable& table_;
  const int threads_;
  std::vector<std::unique_ptr<Program>> programs_;
  Scratch scratch_;
  std::array<Submission, kRing> ring_;
  std::uint64_t submitted_count_ = 0;
  std::atomic<std::uint64_t> end_{~std::uint64_t{0}};  // last sequence there will be
  std::atomic<std::uint64_t> launches_{0};
  Signal submitted_;  // one more than the last sequence once closing, so that sleepers wake
  Signal completed_;
  ThreadPool pool_;  // last: its threads use all of the above
};

}  // namespace helios
